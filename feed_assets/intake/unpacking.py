"""A body while it is received and unpacked. A body that is too large is refused before it fills the memory."""

import asyncio
import zlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator

from feed_assets.intake.refused import RefusedRequest

BODY_BYTES = 8 << 20
"""The most bytes of a request's body, as sent."""

UNPACKED_BYTES = 16 << 20
"""The most bytes of a compressed body after unpacking."""

MOST_LINES = 100_000
"""The most lines of a body, including blank ones. That is twice the allowed number of events."""

LARGE_BYTES, LARGE_EVENTS = 256 << 10, 5000
"""A body above one of these limits is large. Only one large body at a time is unpacked and checked.

The events are estimated by line breaks, or by commas in an array.
"""

EVENT_BYTES = 2048
"""For rate limits, a body counts as at least one event per this number of bytes. An average event has a tenth of it."""

SPARED_BYTES, SPARED_OF_PARTNER = 8 << 20, 1 << 20
"""Memory that is reserved for partners whose bodies use little memory, and the most bytes that count as little.

Without this reserve, two partners with large, slow bodies could have the bodies of all others refused.
"""

_PIECE, _PIECES_AT_A_TIME = 1 << 16, 16


class BodyMemory:
    """A limit for the bytes of bodies that are being read or checked. Bodies beyond it are refused.

    Args:
        limit: The most bytes.
        total: The memory of all partners, if this is the memory of one. It counts the bytes of this one, too.
        spared: Bytes reserved for partners whose bodies have no more than `SPARED_OF_PARTNER` bytes together.
    """

    def __init__(self, limit: int, total: "BodyMemory | None" = None, *, spared: int = 0) -> None:
        self._limit = self._remaining = limit
        self._total, self._spared = total, spared

    def take(self, size: int, *, by_few: bool = True) -> None:
        """Reserve memory for more bytes of a request body. Raise RefusedRequest if the limit is reached.

        `by_few` is True if the partner uses so few bytes that it may also take the reserved ones (`spared`).
        """
        if size > self._remaining - (0 if by_few else self._spared):
            raise RefusedRequest(
                503, "the receiver is at its limit of bytes in flight: send the request later", retry_after=1
            )
        if self._total:
            used = self._limit - self._remaining + size
            self._total.take(size, by_few=used <= SPARED_OF_PARTNER)
        self._remaining -= size

    def give_back(self, size: int) -> None:
        """Stop counting bytes that are no longer in memory."""
        self._remaining += size
        if self._total:
            self._total.give_back(size)


class Body:
    """A body while it is received and unpacked. Its bytes count in `held` until `let_go` is called.

    Args:
        held: The memory limit that counts the bytes of the body.
        packing: The body's Content-Encoding.
        kind: `lines` or `array`.
    """

    def __init__(self, held: BodyMemory, packing: str = "", kind: str = "lines") -> None:
        self._held, self._counted, self._sent = held, 0, bytearray()
        self._packing, self._kind = _packed(packing), kind
        self._size = self._events = self._received = 0

    @property
    def cost(self) -> int:
        """Return how many events the rate limits count for the part of the body that was received."""
        return max(self._events if self._kind == "lines" else 0, max(self._size, self._received) // EVENT_BYTES)

    async def receive(self, chunks: AsyncIterable[bytes]) -> None:
        """Receive the body as sent. Raise RefusedRequest if it is too large."""
        async for chunk in chunks:
            if len(self._sent) + len(chunk) > BODY_BYTES:
                raise RefusedRequest(413, f"the body has more than {BODY_BYTES} bytes: send it in several requests")
            self._take(len(chunk))
            self._sent += chunk
            self._received += len(chunk)

    async def unpacked(self, turn: Callable[[], Awaitable[None]]) -> bytes:
        """Return the whole body, unpacked. Other requests get turns in between.

        Args:
            turn: Waits until no other large body is in memory. It is called once, and only for a large body.

        Raises:
            RefusedRequest: The body is too large, or its compression is invalid.
        """
        pieces, has_turn = list[bytes](), False
        for number, piece in enumerate(self._pieces(), 1):
            self._count(piece)
            if not has_turn and (self._size > LARGE_BYTES or self._events > LARGE_EVENTS):
                await turn()
                has_turn = True
            if not has_turn:
                self._take(len(piece))
            pieces.append(piece)
            if number % _PIECES_AT_A_TIME == 0:
                await asyncio.sleep(0)
        self._packing.check_end()
        self._sent.clear()
        return b"".join(pieces)

    def _pieces(self) -> Iterator[bytes]:
        for start in range(0, len(self._sent), _PIECE):
            yield from self._packing.pieces(bytes(self._sent[start : start + _PIECE]))

    def _count(self, piece: bytes) -> None:
        self._size += len(piece)
        self._events += piece.count(b"\n" if self._kind == "lines" else b",")
        if self._size > UNPACKED_BYTES:
            raise RefusedRequest(
                413, f"the body has more than {UNPACKED_BYTES} bytes unpacked: send it in several requests"
            )
        if self._kind == "lines" and self._events > MOST_LINES:
            raise RefusedRequest(
                413, f"the body has more than {MOST_LINES} lines, including blank ones: leave the blank ones out"
            )

    def _take(self, size: int) -> None:
        self._held.take(size)
        self._counted += size

    def let_go(self) -> None:
        """Stop counting the bytes of the body."""
        self._held.give_back(self._counted)
        self._counted = 0


class _Plain:
    """A body that is not compressed."""

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def check_end(self) -> None:
        pass


class _Gzip:
    """One gzip stream that is unpacked piece by piece, so that a decompression bomb is refused early."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        is_full = False
        while chunk or is_full:
            if self._stream.eof:
                raise RefusedRequest(400, "the body continues after its gzip stream: expected one stream")
            yield (piece := self._unpacked(chunk))
            chunk = self._stream.unused_data or self._stream.unconsumed_tail
            is_full = len(piece) == _PIECE and not self._stream.eof

    def _unpacked(self, chunk: bytes) -> bytes:
        try:
            return self._stream.decompress(chunk, _PIECE)
        except zlib.error as error:
            raise RefusedRequest(400, f"the body is not packed by gzip: {error}") from None

    def check_end(self) -> None:
        if not self._stream.eof:
            raise RefusedRequest(400, "the body ends in the middle of its gzip stream: send the whole body")


def _packed(packing: str) -> _Plain | _Gzip:
    if packing not in ("", "identity", "gzip"):
        raise RefusedRequest(415, f"Content-Encoding {packing!r}: expected gzip, or none")
    return _Gzip() if packing == "gzip" else _Plain()
