"""Parser of CSV records by the rules of a run, which are those of RFC 4180."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class CsvRecord:
    """One record: the number of its first line, its fields, and the rule that it breaks, or None."""

    line: int
    fields: list[str]
    problem: str | None = None


@dataclass(frozen=True)
class _Patterns:
    """Patterns of a quoted field, and of an unquoted one up to the next delimiter or line end."""

    quoted: re.Pattern[str]
    bare: re.Pattern[str]


def csv_records(
    text: str, delimiter: str, quote: str | None, *, line_end: str = "\n", is_whole: bool = True
) -> Iterator[CsvRecord]:
    """Yield the records of a text. Skip blank lines. Skip the last record if the text is only the start of a file."""
    at, line, size = 0, 1, len(text)
    while at < size:
        end = text.find(line_end, at)
        end = size if end < 0 else end
        if quote and quote in text[at:end]:
            end, fields, problem = _quoted_record(text, at, delimiter, quote, line_end)
        else:
            raw = text[at:end].removesuffix("\r")
            fields, problem = raw.split(delimiter), _stray(raw, line_end)
        if end >= size and not is_whole:
            return
        if problem is None and text.startswith(_MARK, at):
            problem = "a byte order mark at its beginning: were files put together?"
        if text[at:end] not in ("", "\r"):
            yield CsvRecord(line, fields, problem)
        line += text.count(line_end, at, end + 1)
        at = end + 1


def count_quoted(text: str, delimiter: str, quote: str) -> int:
    """Return the number of quoted fields."""
    edge, mark = rf"{re.escape(delimiter)}\r\n", re.escape(quote)
    return len(re.findall(rf"(?:\A|(?<=[{edge}])){mark}(?>[^{mark}]+|{mark}{mark})*{mark}(?=[{edge}]|\Z)", text))


@lru_cache
def _patterns(delimiter: str, quote: str, line_end: str) -> _Patterns:
    mark = re.escape(quote)
    quoted = rf"{mark}((?>[^{mark}]+|{mark}{mark})*)({mark}?)"
    return _Patterns(re.compile(quoted), re.compile(f"[^{re.escape(delimiter + line_end)}]*"))


def _quoted_record(text: str, at: int, delimiter: str, quote: str, line_end: str) -> tuple[int, list[str], str | None]:
    """Return the position of a record's end, its fields, and the first rule that it breaks, or None."""
    patterns, begin = _patterns(delimiter, quote, line_end), at
    fields: list[str] = []
    problems: list[str | None] = []
    while True:
        in_quotes = patterns.quoted.match(text, at)
        after_quotes = in_quotes.end() if in_quotes else at
        bare = patterns.bare.match(text, after_quotes)
        end = bare.end() if bare else after_quotes
        tail = text[after_quotes:end]
        is_last = end >= len(text) or text[end] == line_end
        tail = tail.removesuffix("\r") if is_last and line_end == "\n" else tail
        if in_quotes:
            fields.append(in_quotes[1].replace(quote * 2, quote) + tail)
            problems.append(_after_quote(tail, quote) if in_quotes[2] else "a quote that is never closed")
        else:
            fields.append(tail)
            problems += [_misplaced(tail, quote), _stray(tail, line_end)]
        if is_last:
            break
        at = end + 1
    if "\0" in text[begin:end]:
        problems.append("a NUL character in a record with quotes")
    return end, fields, next(filter(None, problems), None)


def _after_quote(tail: str, quote: str) -> str | None:
    if not tail:
        return None
    return f"text after a closing quote, or a quote inside a quoted field that is not written as {quote}{quote}"


def _misplaced(field: str, quote: str) -> str | None:
    """Return the problem of a misplaced quote in an unquoted field, or None."""
    if field.lstrip(" \t").startswith(quote):
        return "blanks before an opening quote"
    if f"\\{quote}" in field:
        return f"a backslash before a quote: expected {quote}{quote} for a quote"
    return "a quote within a field that is not in quotes" if field.count(quote) % 2 else None


def _stray(text: str, line_end: str) -> str | None:
    if line_end == "\n":
        return "a carriage return outside quotes" if "\r" in text else None
    return "a line feed outside quotes" if "\n" in text else None
