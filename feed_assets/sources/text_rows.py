"""Rows of CSV and JSON lines. The last line may be half-written."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from feed_assets.core.csv_dialect import misplaced_quote
from feed_assets.core.feeds import File
from feed_assets.core.limits import REJECT_BYTES, ROW_BYTES, excerpt
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.lines import Lines, Newlines, QuotedNewlines, Text
from feed_assets.sources.records import Blank, FilePosition, Record, Unfinished, check_header


def json_records(
    board: Blackboard, file: File, place: FilePosition, _columns: Columns, may_grow: bool
) -> Iterator[Record | Blank | Unfinished]:
    """Yield each line as a Record, and blank lines as Blank.

    If a line is not a JSON object, its Record has the reason.
    """
    lines = Lines(board, file, place, may_grow, Newlines())
    for text in lines:
        if isinstance(text, Blank):
            yield text
        elif not text.text.strip():
            yield Blank(lines.place, text.size)
        else:
            yield _record(lines.place, text, _too_long(lines.place, text) or json_object(text.text))
    yield from lines.unfinished


def json_object(line: str) -> dict[str, Any] | str:
    """Return the JSON object in a line. If the line is not a JSON object, return the reason."""
    try:
        value = json.loads(line) if _is_text(line) else None
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else "not a JSON object in UTF-8"  # pyright: ignore[reportUnknownVariableType]


def csv_records(
    board: Blackboard, file: File, place: FilePosition, columns: Columns, may_grow: bool
) -> Iterator[Record | Blank | Unfinished]:
    """Yield each record after the header, by RFC 4180. An empty field is null.

    If a record is invalid, the Record has the reason.
    """
    lines = Lines(board, file, place, may_grow, QuotedNewlines())
    for text in lines:
        if isinstance(text, Blank):
            yield text
            continue
        values = _too_long(lines.place, text) or _values(text)
        if not values:
            yield Blank(lines.place, text.size)
            continue
        if lines.place.header is None:
            check_header(file.key, (text.text,) if isinstance(values, str) else values, columns.named)
        if lines.place.header is None and not isinstance(values, str):
            lines.place = replace(lines.place, header=tuple(values))
        else:
            yield _record(lines.place, text, _row(lines.place.header or (), text, values))
    yield from lines.unfinished


def _values(text: Text) -> list[str] | str:
    """Return the fields of a CSV record. If the record is malformed, return the reason."""
    try:
        values = next(csv.reader([text.text], strict=True))
        return misplaced_quote(text.text) or values
    except csv.Error as error:
        detail = f": a quote that was opened in line {text.opened} is not closed" if text.opened else ""
        return f"{error}{detail}"


def _row(header: tuple[str, ...], text: Text, values: list[str] | str) -> dict[str, Any] | str:
    """Return the values of a record by the names in the header, or why the record is invalid."""
    if isinstance(values, str):
        return values
    if not _is_text(text.text):
        return "not UTF-8"
    if len(values) != len(header):
        return f"{len(values)} fields, expected {len(header)}"
    return dict(zip(header, values, strict=True))


def _too_long(place: FilePosition, text: Text) -> str:
    """Return why a record that is too long is rejected; '' for any other record."""
    if not text.is_too_long:
        return ""
    lines = f" up to line {place.line}" if place.line > text.line else ""
    detail = f"; a quote that was opened in line {text.opened} is not closed" if text.opened else ""
    return f"it has {text.size} bytes{lines}: expected at most {ROW_BYTES}{detail}"


def _record(place: FilePosition, text: Text, row: dict[str, Any] | str) -> Record:
    """Return the record that ends at a position of a file.

    If `row` is a text, the text is the reason to reject the record.
    """
    if not isinstance(row, str):
        return Record(place, text.line, row, size=text.size)
    raw = text.shortened if text.is_too_long else excerpt(json.dumps(text.text), REJECT_BYTES)
    return Record(place, text.line, None, raw=raw, reason=row, size=text.size)


def _is_text(text: str) -> bool:
    """Return whether a text was decoded from valid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
