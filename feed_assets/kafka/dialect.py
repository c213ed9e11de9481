"""The one CSV dialect of chunks: what a value is as a text, how a line is written, and how it is read.

| value | as text |
|---|---|
| null | `\\N` without quotes; a string `\\N` has quotes, as has every string |
| string, enum, uuid | in quotes, `"` doubled; a comma, CR or LF stands for itself |
| int, long, float, double | digits without quotes; `nan`, `inf`, `-inf` |
| boolean | `true`, `false` without quotes |
| decimal | plain digits with its scale, without quotes |
| bytes, fixed | hexadecimal digits in quotes |
| date, time | `2026-01-31`, `23:59:59.999999` in quotes |
| timestamp | `2026-01-31 23:59:59.999999+00:00` in quotes; a local one without the offset |
| array, map, record | JSON in quotes, values as above |

UTF-8, commas, lines that end with LF, one line of names first. NUL and lone surrogates cannot be written: no database
takes them.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from feed_assets.core.errors import FeedAssetsError

NAME = "feed_assets/1"
"""What signals call this dialect; a change of what is written is another name."""

NULL = "\\N"


class Unwritable(FeedAssetsError):
    """A value that the dialect cannot hold; the message says why."""


class _Bare(int):
    """A text that is written without quotes, as numbers are: `csv` asks for a number, and for its text."""

    text: str

    def __new__(cls, text: str) -> "_Bare":
        made = super().__new__(cls)
        made.text = text
        return made

    def __str__(self) -> str:
        return self.text


_NULL, _TRUE, _FALSE = map(_Bare, (NULL, "true", "false"))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_in_json)


def _in_json(value: object) -> str:
    return str(_CELLS[type(value)](value))


_CELLS: dict[type, Callable[[Any], object]] = {
    type(None): lambda _: _NULL,
    bool: lambda value: _TRUE if value else _FALSE,
    bytes: bytes.hex,
    Decimal: lambda value: _Bare(f"{value:f}"),
    date: date.isoformat,
    time: lambda value: value.isoformat("microseconds"),
    datetime: lambda value: value.isoformat(" ", "microseconds"),
    UUID: str,
    list: _json,
    dict: _json,
}
"""What is written of a value by its type; strings, integers and floats are written as they are."""


_KINDS = _CELLS.keys()


class _Echo:
    """A file for `csv`, which hands back what `write` returns."""

    def write(self, text: str) -> str:
        return text


_ECHO: Any = _Echo()
csv.register_dialect(NAME, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
_DIALECT = csv.get_dialect(NAME)


def line(values: Sequence[object]) -> bytes:
    """One line with its end. Raises Unwritable for NUL and lone surrogates."""
    kinds = [*map(type, values)]
    cells = values
    if not _KINDS.isdisjoint(kinds):
        cells = [_CELLS[kind](value) if kind in _KINDS else value for kind, value in zip(kinds, values, strict=True)]
    written: str = csv.writer(_ECHO, _DIALECT).writerow(cells)
    if "\0" in written:
        raise Unwritable("a text with a NUL, which no database takes")
    try:
        return written.encode()
    except UnicodeEncodeError as error:
        raise Unwritable(f"a text that is no Unicode: {error.reason}") from error


_CELL = re.compile(rb'(?:"((?:[^"]|"")*)"|([^",\n]*))([,\n])')


def read(content: bytes) -> Iterator[list[str | None]]:
    """The lines of a chunk, the names first; None is NULL. Raises ValueError for what the dialect has not."""
    cells, at = list[str | None](), 0
    while at < len(content):
        found = _CELL.match(content, at)
        if found is None:
            raise ValueError(f"byte {at} begins no cell of the dialect {NAME}")
        cells.append(_read(found[1], found[2]))
        at = found.end()
        if found[3] == b"\n":
            yield cells
            cells = []
    if cells:
        raise ValueError(f"the last line has no end: {len(cells)} cells")


def _read(quoted: bytes | None, bare: bytes | None) -> str | None:
    if quoted is not None:
        return quoted.replace(b'""', b'"').decode()
    text = (bare or b"").decode()
    return None if text == NULL else text
