"""Events in the body of a request. Each event has its text as sent, and its parsed value."""

import re
from codecs import BOM_UTF8, utf_8_decode
from collections.abc import Callable, Iterable, Iterator
from json import JSONDecoder
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from pydantic_core import from_json

from feed_assets.core.limits import ROW_BYTES
from feed_assets.core.repeated_values import first_repeated
from feed_assets.intake.numbers import LONG_NUMBER, Number
from feed_assets.intake.refused import RefusedRequest

LINES, ARRAY = "application/x-ndjson", "application/json"
KINDS = {LINES: "lines", "application/jsonl": "lines", "application/jsonlines": "lines", ARRAY: "array"}
"""Kinds of bodies by media type: one event per line, or an array of events."""

VALUES = 100_000
"""The most values of an event, including those in lists. Parsed values take 20 times the memory of their text."""

SLICE_BYTES = 256 << 10
"""Bytes of events that are checked before other requests get a turn. A single event may be larger."""


T = TypeVar("T")

_WORD = re.compile(r"[^ \t\r\n]|\Z")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_BREAKS = str.maketrans("\r\n", "  ")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Raise ValueError for a repeated field: Python would keep only its last value."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"field {first_repeated(name for name, _ in pairs)!r} occurs twice")
    return fields


_DECODER = JSONDecoder(parse_constant=_no_number, parse_float=Number, object_pairs_hook=_each_once)
_LONG_NUMBER = re.compile(rb"[:\s]-?" + LONG_NUMBER)
_KEY = re.compile(rb'"[ \t\r\n]*:')
# The closing quote is optional (`?`). Otherwise, an unclosed string would be scanned again from each quote in it.
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{},]', re.DOTALL)
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


class Sent(NamedTuple):
    """An event: its bytes in one line, and its parsed value. If it cannot be parsed, `broken` has the reason."""

    raw: bytes
    value: Any = None
    broken: str = ""


def events(body: bytes, kind: str) -> Iterator[Sent]:
    """Return the events of a body of kind `lines` or `array`. Raise RefusedRequest for a malformed array."""
    return map(sent, lines_of(body)) if kind == "lines" else _in_array(body)


def lines_of(body: bytes) -> Iterator[bytes]:
    """Return the lines of a body without blank lines."""
    return (raw for line in body.split(b"\n") if (raw := line.strip(b" \t\r")))


def sent(raw: bytes) -> Sent:
    """Return the event in a line. Skip a byte order mark at the line's beginning, as Spark runs do."""
    if len(raw) > ROW_BYTES:
        return _too_long(raw)
    if raw.count(b",") >= VALUES and _TEXT.sub(b"", raw).count(b",") >= VALUES:
        return Sent(raw, broken=f"it has more than {VALUES} values: expected one for each column")
    try:
        text = raw.removeprefix(BOM_UTF8)
        value = from_json(text, allow_inf_nan=False, cache_strings="keys")
        return Sent(raw, _DECODER.decode(text.decode()) if _needs_its_text(text, value) else value)
    except (ValueError, RecursionError) as error:
        return Sent(raw, broken=f"malformed: {error}")


def _needs_its_text(text: bytes, value: Any) -> bool:
    """Return whether an event must be parsed again, more slowly, from its text.

    This is the case if the event has repeated keys, or numbers whose digits may be lost in a float.
    """
    if not isinstance(value, dict):
        return False
    fields = cast(dict[str, Any], value)
    if len(fields) != len(_KEY.findall(text)):
        return True
    floats = [each for each in fields.values() if type(each) is float]
    return any(each.is_integer() for each in floats) or (bool(floats) and _LONG_NUMBER.search(text) is not None)


def in_slices(events: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield groups of at most `most` events. A group also ends when it has `SLICE_BYTES` or more."""
    group, size = list[T](), 0
    for event in events:
        group.append(event)
        size += size_of(event)
        if len(group) == most or size >= SLICE_BYTES:
            yield group
            group, size = list[T](), 0
    if group:
        yield group


def _too_long(raw: bytes) -> Sent:
    """Return a broken event, cut to the allowed size. In the spool's JSON, one byte of it may take six bytes."""
    return Sent(raw[:ROW_BYTES], broken=f"it has {len(raw)} bytes: expected at most {ROW_BYTES}")


def _in_array(body: bytes) -> Iterator[Sent]:
    """Yield each element with its original text as one line, so that numbers keep their digits."""
    try:
        text = _Window(body)
        text.skip("[")
        is_over = text.next_is("]")
        while not is_over:
            yield _element(*text.element())
            is_over = text.next_is("]")
            if not is_over:
                text.skip(",")
        text.skip("]")
        text.check_end()
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(400, f"the body is not a JSON array: {error}. No event was accepted") from None


def _element(text: str, value: Any) -> Sent:
    """Return the event of an array element, by the same rules as for a line.

    Parse an element with an escaped surrogate again by `sent`: Python's parser would accept a lone surrogate, which
    UTF-8 cannot encode.
    """
    raw = text.translate(_BREAKS).encode()
    if len(raw) > ROW_BYTES:
        return _too_long(raw)
    return sent(raw) if _SURROGATE.search(raw) else Sent(raw, value)


class _Window:
    """A sliding window over a body's text. An event of the allowed size fits into it; longer events are not parsed."""

    def __init__(self, body: bytes) -> None:
        self._body, self._text, self._at = body.removeprefix(BOM_UTF8), "", 0
        self._end = self._passed = 0
        self._has_many_values = False
        self._fill()

    @property
    def _is_last(self) -> bool:
        return self._end == len(self._body)

    def _fill(self) -> None:
        """Decode more text until the window has twice the size of the largest event, or the body ends."""
        while not self._is_last and len(self._text) - self._at <= 2 * ROW_BYTES:
            data = self._body[self._end : self._end + ROW_BYTES]
            text, size = utf_8_decode(data, "strict", self._end + len(data) == len(self._body))
            self._passed += self._at
            self._text, self._at, self._end = self._text[self._at :] + text, 0, self._end + size
            self._has_many_values = self._text.count(",") > VALUES

    def _skip_blanks(self) -> None:
        self._fill()
        while (match := _WORD.search(self._text, self._at)) and match.start() == len(self._text) and not self._is_last:
            self._at = len(self._text)
            self._fill()
        self._at = match.start() if match else len(self._text)

    def next_is(self, expected: str) -> bool:
        """Return whether the expected text is next, after whitespace."""
        self._skip_blanks()
        return self._text.startswith(expected, self._at)

    def skip(self, expected: str) -> None:
        """Skip the expected text. Raise ValueError if something else is next."""
        if not self.next_is(expected):
            character = self._text[self._at : self._at + 1] or "its end"
            raise ValueError(f"found {character!r} at character {self._passed + self._at}, expected {expected!r}")
        self._at += len(expected)

    def element(self) -> tuple[str, Any]:
        """Return the next element's text and value. Raise ValueError if it is not valid JSON."""
        self._skip_blanks()
        start = self._at
        if self._has_many_values:
            self._check_values()
        try:
            value, self._at = _DECODER.raw_decode(self._text, start)
        except (ValueError, RecursionError) as error:
            longer = "" if self._is_last else f", or it has more than {2 * ROW_BYTES} bytes"
            raise ValueError(f"its element at character {self._passed + start}: {error}{longer}") from None
        return self._text[start : self._at], value

    def _check_values(self) -> None:
        """Raise ValueError if the next element has too many values. Parsed, each would take some hundred bytes."""
        depth = commas = 0
        for match in _JSON_TOKEN.finditer(self._text, self._at):
            character = match[0][0]
            depth += (character in "[{") - (character in "]}")
            if depth <= 0:
                return
            commas += character == ","
            if commas >= VALUES:
                where = self._passed + self._at
                raise ValueError(f"its element at character {where} has more than {VALUES} values")

    def check_end(self) -> None:
        """Raise ValueError if more text follows."""
        self._skip_blanks()
        if self._at < len(self._text):
            raise ValueError(f"it continues after its end, at character {self._passed + self._at}")
