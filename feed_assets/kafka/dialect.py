"""The CSV dialect of all chunks: the text of each value, and how a line is written and read.

| value | as text |
|---|---|
| null | `\\N` without quotes; the string `\\N` has quotes, like every string |
| string, enum, uuid | in quotes, `"` doubled; a comma, CR or LF is written as it is |
| int, long, float, double | digits without quotes; `nan`, `inf`, `-inf` |
| boolean | `true`, `false` without quotes |
| decimal | plain digits with its scale, without quotes |
| bytes, fixed | hexadecimal digits in quotes |
| date, time | `2026-01-31`, `23:59:59.999999` in quotes |
| timestamp | `2026-01-31 23:59:59.999999+00:00` in quotes; a local timestamp without the offset |
| array, map, record | JSON in quotes, values as above; decimals, `nan`, `inf`, `-inf` are strings there |

The text is UTF-8 with commas between values. Each line ends with LF, and the first line has the names of the columns.
NUL and lone surrogates cannot be written, even in JSON, because no database accepts them.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import Any, cast
from uuid import UUID

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.limits import json_length

NAME = "feed_assets/1"
"""Name of this dialect in signals. If the written text changes, the dialect gets a new name."""

NULL = "\\N"

JSON_CHARACTERS = 32 << 20
"""The most characters of JSON in a line. Some bytes of Avro may stand for gigabytes of names, symbols and digits."""

_HAS_NUL = "a text with a NUL, which no database accepts"


class Unwritable(FeedAssetsError):
    """An error for a value that the dialect cannot represent. Its text is the reason."""


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A pattern for an escaped NUL in JSON, but not for an escaped backslash before `u0000`."""


def _json(value: object) -> str:
    try:
        text = _dumped(value)
    except ValueError:  # The value contains a number that JSON lacks, which is rare.
        text = _dumped(_spelled(value))
    except RecursionError as error:
        raise Unwritable("lists and records that are nested too deeply") from error
    if "\\u0000" in text and _NUL.search(text):
        raise Unwritable(_HAS_NUL)
    return text


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_in_json)


def _spelled(value: Any) -> Any:
    """Return the value with texts instead of the numbers that JSON lacks: nan, inf and -inf."""
    if isinstance(value, dict):
        return {name: _spelled(each) for name, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_spelled(each) for each in cast(list[Any], value)]
    return repr(value) if isinstance(value, float) and not isfinite(value) else value


def _in_json(value: object) -> str:
    return _TEXTS[type(value)](value)


_TEXTS: dict[type, Callable[[Any], str]] = {
    bytes: bytes.hex,
    Decimal: lambda value: f"{value:f}",
    date: date.isoformat,
    time: lambda value: value.isoformat("microseconds"),
    datetime: lambda value: value.isoformat(" ", "microseconds"),
    UUID: str,
}
"""Functions that return a value's text, by type, for types that JSON lacks."""


def _in_quotes(kind: type) -> Callable[[Any], str]:
    text = _TEXTS[kind]
    return lambda value: f'"{text(value)}"'


_CELLS: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    type(None): lambda _: NULL,
    bool: lambda value: "true" if value else "false",
    int: repr,
    float: repr,
    Decimal: _TEXTS[Decimal],
    **{kind: _in_quotes(kind) for kind in (bytes, date, time, datetime, UUID)},
    list: lambda value: _quoted(_json(value)),
    dict: lambda value: _quoted(_json(value)),
}
"""Functions that return a value's cell, by type, for all types of Avro values. Python's `csv` takes twice the time."""

_NESTED = frozenset({list, dict})


def is_nested(value: object) -> bool:
    """Return whether the cell of a value is JSON."""
    return type(value) in _NESTED


def text(value: object) -> str:
    """Return the text that a reader of the value's cell gets. The value is not null. Raise Unwritable, like `line`."""
    if isinstance(value, str):
        return value
    kind = type(value)
    if kind in _NESTED:
        _check_length([value])
        return _json(value)
    return _TEXTS[kind](value) if kind in _TEXTS else _CELLS[kind](value)


def _check_length(nested: Sequence[object]) -> None:
    if nested and json_length(nested, JSON_CHARACTERS) > JSON_CHARACTERS:
        raise Unwritable(f"lists and records that have more than {JSON_CHARACTERS:,} characters as JSON")


def line(values: Sequence[object]) -> bytes:
    """Return one line of CSV with its newline. Raise Unwritable for NUL, lone surrogates, and too much JSON."""
    _check_length([each for each in values if type(each) in _NESTED])
    written = ",".join([_CELLS[type(value)](value) for value in values])
    if "\0" in written:
        raise Unwritable(_HAS_NUL)
    try:
        return f"{written}\n".encode()
    except UnicodeEncodeError as error:
        raise Unwritable(f"a text that is not valid Unicode: {error.reason}") from error


_CELL = re.compile(rb'(?:"([^"]*+(?:""[^"]*+)*+)"|([^",\n]*+))([,\n])')
"""The pattern of a cell. Without `*+`, it would keep up to 140 bytes of memory for each byte of a cell."""


def read(content: bytes) -> Iterator[list[str | None]]:
    """Yield the lines of a chunk, beginning with the names. None stands for NULL. Raise ValueError for invalid text."""
    cells, at = list[str | None](), 0
    while at < len(content):
        match = _CELL.match(content, at)
        if match is None:
            raise ValueError(f"byte {at} does not begin a cell of the dialect {NAME}")
        cells.append(_read(match[1], match[2]))
        at = match.end()
        if match[3] == b"\n":
            yield cells
            cells = []
    if cells:
        raise ValueError(f"the last line has no newline: {len(cells)} cells")


def lines(content: bytes) -> Iterator[bytes]:
    """Yield the lines of a chunk unparsed, with their newlines."""
    begin = 0
    for cell in _CELL.finditer(content):
        if cell[3] == b"\n":
            yield content[begin : cell.end()]
            begin = cell.end()


def _read(quoted: bytes | None, bare: bytes | None) -> str | None:
    if quoted is not None:
        return quoted.replace(b'""', b'"').decode()
    text = (bare or b"").decode()
    return None if text == NULL else text
