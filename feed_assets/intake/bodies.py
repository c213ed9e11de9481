"""The events in the body of a request: each as it was sent, and as what it says."""

import re
import zlib
from codecs import BOM_UTF8
from collections.abc import AsyncIterable, Iterator
from json import JSONDecoder
from typing import Any, NamedTuple, NoReturn, cast

from pydantic_core import from_json

from feed_assets.core.limits import ROW_BYTES
from feed_assets.intake.numbers import LONG_NUMBER, Number
from feed_assets.intake.refused import Refused

BODY_BYTES = 8 << 20
"""Bytes of a request's body, as it is sent."""

UNPACKED_BYTES = 16 << 20
"""Bytes of a body that was sent packed."""

LINES, ARRAY = "application/x-ndjson", "application/json"
KINDS = {LINES: "lines", "application/jsonl": "lines", "application/jsonlines": "lines", ARRAY: "array"}
"""What a body may be: an event a line, or an array of events."""

_PIECE = 1 << 16
_WORD = re.compile(r"[^ \t\r\n]|\Z")
_BREAKS = str.maketrans("\r\n", "  ")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. Raises ValueError for a field that is there twice, of which Python would keep the last one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"field {max(found, key=names.count)!r} is there twice")
    return found


_DECODER = JSONDecoder(parse_constant=_no_number, parse_float=Number, object_pairs_hook=_each_once)
_LONG_NUMBER = re.compile(rb"[:\s]-?" + LONG_NUMBER)
_KEY = re.compile(rb'"[ \t\r\n]*:')


class Sent(NamedTuple):
    """An event: its bytes, in one line, and its value; None, and why, of what is no JSON."""

    raw: bytes
    value: Any = None
    broken: str = ""


class Held:
    """The bytes of the bodies that are being read or judged, of all requests: more than so many are refused."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, size: int) -> None:
        """Count more bytes. Raises Refused where there is no room."""
        if size > self._left:
            raise Refused(503, "the receiver is at its limit of bytes in flight: send it again", retry_after=1)
        self._left -= size

    def give_back(self, size: int) -> None:
        """Count bytes no longer."""
        self._left += size


class Body:
    """A body while it is read; its bytes are counted in `held` until it is let go of."""

    def __init__(self, held: Held) -> None:
        self._held, self._size, self._pieces = held, 0, list[bytes]()

    async def read(self, chunks: AsyncIterable[bytes], packing: str) -> bytes:
        """All of it, unpacked. Raises Refused where it is too large, or not packed as it says."""
        packed, sent = _packed(packing), 0
        async for chunk in chunks:
            sent += len(chunk)
            if sent > BODY_BYTES:
                raise Refused(413, f"the body has more than {BODY_BYTES} bytes: send it in several requests")
            for piece in packed.pieces(chunk):
                self._add(piece)
        packed.check_end()
        return b"".join(self._pieces)

    def _add(self, piece: bytes) -> None:
        if self._size + len(piece) > UNPACKED_BYTES:
            raise Refused(413, f"the body has more than {UNPACKED_BYTES} bytes unpacked: send it in several requests")
        self._held.take(len(piece))
        self._size += len(piece)
        self._pieces.append(piece)

    def let_go(self) -> None:
        """Count its bytes no longer."""
        self._held.give_back(self._size)
        self._size = 0


class _Plain:
    """A body that is not packed."""

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def check_end(self) -> None:
        pass


class _Gzip:
    """One gzip stream, of which a chunk gives its bytes piece by piece: a bomb is seen by its first ones."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        is_full = False
        while chunk or is_full:
            if self._stream.eof:
                raise Refused(400, "the body goes on behind its gzip stream: expected one stream")
            yield (piece := self._unpacked(chunk))
            chunk = self._stream.unused_data or self._stream.unconsumed_tail
            is_full = len(piece) == _PIECE and not self._stream.eof

    def _unpacked(self, chunk: bytes) -> bytes:
        try:
            return self._stream.decompress(chunk, _PIECE)
        except zlib.error as error:
            raise Refused(400, f"the body is not packed by gzip: {error}") from None

    def check_end(self) -> None:
        if not self._stream.eof:
            raise Refused(400, "the body ends before its gzip stream does: send it again")


def _packed(packing: str) -> _Plain | _Gzip:
    if packing not in ("", "identity", "gzip"):
        raise Refused(415, f"Content-Encoding {packing!r}: expected gzip, or none")
    return _Gzip() if packing == "gzip" else _Plain()


def events(body: bytes, kind: str) -> Iterator[Sent]:
    """The events of a body that is `lines` or an `array`. Raises Refused for an array that is none."""
    return map(sent, lines_of(body)) if kind == "lines" else _in_array(body)


def lines_of(body: bytes) -> Iterator[bytes]:
    """The lines of a body that are not blank."""
    return (raw for line in body.split(b"\n") if (raw := line.strip(b" \t\r")))


def sent(raw: bytes) -> Sent:
    """The event of a line, which may begin with a byte order mark, as it may for a run."""
    if len(raw) > ROW_BYTES:
        return _too_long(raw)
    try:
        text = raw.removeprefix(BOM_UTF8)
        value = from_json(text, allow_inf_nan=False, cache_strings="keys")
        return Sent(raw, _DECODER.decode(text.decode()) if _needs_its_text(text, value) else value)
    except (ValueError, RecursionError) as error:
        return Sent(raw, broken=f"malformed: {error}")


def _needs_its_text(text: bytes, value: Any) -> bool:
    """Return whether an event has numbers that are told by their digits, or more keys in its text than in its value."""
    if not isinstance(value, dict):
        return False
    found = cast(dict[str, Any], value)
    if len(found) != len(_KEY.findall(text)):
        return True
    floats = [each for each in found.values() if type(each) is float]
    return any(each.is_integer() for each in floats) or (bool(floats) and _LONG_NUMBER.search(text) is not None)


def _too_long(raw: bytes) -> Sent:
    return Sent(raw, broken=f"it has {len(raw)} bytes: expected at most {ROW_BYTES}")


def _in_array(body: bytes) -> Iterator[Sent]:
    """Each element as it stands in the text, in one line: a number keeps its digits."""
    try:
        text = body.decode("utf-8-sig")
        at, end = _past(text, 0, "["), "]"
        is_over = text.startswith(end, at)
        while not is_over:
            value, stop = _DECODER.raw_decode(text, at)
            raw = text[at:stop].translate(_BREAKS).encode()
            yield Sent(raw, value) if len(raw) <= ROW_BYTES else _too_long(raw)
            at = _past(text, stop)
            is_over = text.startswith(end, at)
            at = at if is_over else _past(text, at, ",")
        _check_end(text, _past(text, at, end))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON array: {error}. Nothing of it was accepted") from None


def _past(text: str, at: int, expected: str = "") -> int:
    """Where a text goes on behind blanks, what is expected there, and blanks again. Raises ValueError."""
    at = _next(text, at)
    if not text.startswith(expected, at):
        raise ValueError(f"found {text[at : at + 1] or 'its end'!r} at character {at}, expected {expected!r}")
    return _next(text, at + len(expected))


def _check_end(text: str, at: int) -> None:
    if at < len(text):
        raise ValueError(f"it goes on behind its end, at character {at}")


def _next(text: str, at: int) -> int:
    """Where the next character is that is no blank, or the end."""
    found = _WORD.search(text, at)
    return found.start() if found else len(text)
