"""A parser of RFC 4180, character by character. It shares no code with the reader that it checks."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Parsed:
    """One record: its text without the line end, its fields, and its problems."""

    raw: str = ""
    fields: list[str] = field(default_factory=list[str])
    problems: set[str] = field(default_factory=set[str])


def parse(text: str, columns: int, delimiter: str = ",", quote: str | None = '"') -> Iterator[Parsed]:
    """Yield the records of a text, without blank lines.

    RFC 4180 does not define where a malformed record ends. After a closing quote, everything up to the next delimiter
    or line end belongs to the field. An unquoted field may hold quotes in pairs, but not after blanks or backslashes.
    """
    at = 0
    while at < len(text):
        record, at = _record(text, at, columns, delimiter, quote)
        if record.raw:
            yield record


def _record(text: str, at: int, columns: int, delimiter: str, quote: str | None) -> tuple[Parsed, int]:
    record, begin = Parsed(), at
    while True:
        at = _field(record, text, at, delimiter, quote)
        if at >= len(text) or text[at] == "\n":
            break
        at += 1
    record.raw = text[begin:at].removesuffix("\r") if at < len(text) else _without_line_end(text[begin:at])
    if len(record.fields) != columns:
        record.problems.add("count")
    if quote and quote in record.raw and "\0" in record.raw:
        record.problems.add("NUL")
    return record, at + 1


def _field(record: Parsed, text: str, at: int, delimiter: str, quote: str | None) -> int:
    """Take one field, and return where its delimiter or line end is."""
    if quote and text[at : at + 1] == quote:
        value, at, is_closed = _quoted(text, at + 1, quote)
        rest = _up_to(text, at, delimiter)
        tail = text[at:rest]
        if text[rest : rest + 1] in ("\n", "") and tail == "\r":
            tail = ""
        if not is_closed:
            record.problems.add("not closed")
        elif tail:
            record.problems.add("text after quote")
        record.fields.append(value)
        return rest
    end = _up_to(text, at, delimiter)
    value = text[at:end]
    if text[end : end + 1] in ("\n", ""):
        value = value.removesuffix("\r")
    if "\r" in value:
        record.problems.add("CR")
    if quote and (value.lstrip(" \t").startswith(quote) or f"\\{quote}" in value or value.count(quote) % 2):
        record.problems.add("quote")
    record.fields.append(value)
    return end


def _quoted(text: str, at: int, quote: str) -> tuple[str, int, bool]:
    """Return the quoted text, the position of its end, and True if a quote closes it."""
    value = ""
    while at < len(text):
        if text[at] != quote:
            value += text[at]
        elif text[at + 1 : at + 2] == quote:
            value += quote
            at += 1
        else:
            return value, at + 1, True
        at += 1
    return value, at, False


def _without_line_end(text: str) -> str:
    """Return the text of a last record without its line end: Spark removes one of any kind, even within quotes."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text.removesuffix("\r")


def _up_to(text: str, at: int, delimiter: str) -> int:
    while at < len(text) and text[at] not in (delimiter, "\n"):
        at += 1
    return at
