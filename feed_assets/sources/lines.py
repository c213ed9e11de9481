"""Split of a text file into records, in little memory even for long records or malformed content."""

import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import Any, ClassVar, Protocol
from zlib import crc32

from feed_assets.core.feeds import File
from feed_assets.core.limits import REJECT_BYTES, ROW_BYTES, shortened
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.records import Blank, FilePosition, Unfinished, gone, shrunk

_log = logging.getLogger(__name__)
_BOM = b"\xef\xbb\xbf"


class Ends(Protocol):
    """A rule for where a format's records end."""

    blank: ClassVar[re.Pattern[bytes]]
    """A run of blank lines, which are not records."""
    lines: int
    """Newlines in the record so far."""
    opened: int | None
    """The line in which the still open quote was opened, counted from 0 in the record; None if no quote is open."""

    def begin(self) -> None:
        """Reset the rule's state, because a new record begins."""
        ...

    def scan(self, data: bytes, start: int) -> tuple[int, bool]:
        """Continue the record from `start`.

        Return the position up to which the bytes belong to the record, and whether the record ends there. If the record
        does not end there, the bytes after that position can only be judged together with the next data.
        """
        ...


class Newlines:
    """The rule that each line is a record."""

    blank: ClassVar = re.compile(rb"\s*\n")

    def begin(self) -> None:
        """Reset the rule's state, because a new record begins."""
        self.lines: int = 0
        self.opened: int | None = None

    def scan(self, data: bytes, start: int) -> tuple[int, bool]:
        """Search the newline that ends the record.

        Return the position after it, or the end of `data`, and whether the newline was found.
        """
        self.lines = min(data.find(b"\n", start) + 1, 1)
        return data.find(b"\n", start) + 1 or len(data), bool(self.lines)


_QUOTED = rb'"[^"]*+(?:""[^"]*+)*+"(?=[^"])'
_FIELD = rb"(?:" + _QUOTED + rb'|(?=[^"]))[^,\n]*+'
_FIELDS = rb"(?>(?:," + _FIELD + rb")*)"  # Not `*+`, which stops too early in Python before 3.11.5 (gh-106052).


class QuotedNewlines:
    """The rule of RFC 4180: a field in quotes may contain newlines. Malformed text is split as Python's `csv` does.

    The patterns never backtrack, so each byte is read once, wherever the quotes are.
    """

    blank: ClassVar = re.compile(rb"[\r\n]*\n")
    _from_first = re.compile(_FIELD + _FIELDS)
    _from_within = re.compile(rb"[^,\n]*+" + _FIELDS)
    _to_quote = re.compile(rb'[^"]*+(?:""[^"]*+)*+')

    def begin(self) -> None:
        """Reset the rule's state, because a new record begins."""
        self.lines: int = 0
        self.opened: int | None = None
        self._has_begun = False

    def scan(self, data: bytes, start: int) -> tuple[int, bool]:
        """Continue up to a newline outside quotes.

        Leave a quote or comma at the end of `data` to be judged with the next data.
        """
        end, is_whole = self._scan(data, start)
        self.lines += data.count(b"\n", start, end)
        return end, is_whole

    def _scan(self, data: bytes, start: int) -> tuple[int, bool]:
        end = start
        while True:
            if self.opened is not None:
                end = _end(self._to_quote, data, end)
                if end >= len(data) - 1:
                    return end, False
                self.opened, end = None, end + 1
            pattern = self._from_within if self._has_begun else self._from_first
            self._has_begun, end = True, _end(pattern, data, end)
            if data[end : end + 1] == b"\n":
                return end + 1, True
            quote = end + (data[end : end + 1] == b",")
            if quote >= len(data):
                return end, False
            self.opened, end = self.lines + data.count(b"\n", start, quote), quote + 1


def _end(pattern: re.Pattern[bytes], data: bytes, start: int) -> int:
    match = pattern.match(data, start)
    return match.end() if match else start


class Text:
    """A record that is read piece by piece. If it is longer than ROW_BYTES, only its beginning is kept."""

    def __init__(self, place: FilePosition) -> None:
        self.line = place.line + 1
        """The number of the record's first line."""
        self.crc = place.crc
        """The checksum of the file up to the record's end."""
        self.size = 0
        self.opened: int | None = None
        """The line of the file in which the record's unclosed quote was opened; None if no quote is unclosed."""
        self._digest: Any = None
        self._pieces: list[bytes] = []

    def add(self, piece: bytes) -> None:
        """Add the next bytes of the record. If the record gets too long, keep only its beginning and a digest."""
        self.size, self.crc = self.size + len(piece), crc32(piece, self.crc)
        if self._digest:
            self._digest.update(piece)
            return
        self._pieces.append(piece)
        if self.size > ROW_BYTES:
            self._digest = sha256(b"".join(self._pieces))
            self._pieces = [b"".join(self._pieces)[:REJECT_BYTES]]

    @property
    def is_too_long(self) -> bool:
        """Return whether only the beginning of the record is kept."""
        return self._digest is not None

    @property
    def shortened(self) -> str:
        """Return the kept beginning of a record that is too long."""
        return shortened(b"".join(self._pieces), self.size, self._digest.hexdigest(), REJECT_BYTES)

    @property
    def text(self) -> str:
        """Return the record's text, with surrogates for bytes that are not UTF-8."""
        data = b"".join(self._pieces)
        return (data.removeprefix(_BOM) if self.line == 1 else data).decode(errors="surrogateescape")


class Lines:
    """The records of a file from a position on. `place` is the position after the last record returned.

    In a file that may still grow, the last record is complete only if it ends with a newline.
    """

    def __init__(self, board: Blackboard, file: File, place: FilePosition, may_grow: bool, ends: Ends) -> None:
        self._size, self.place, self._chunks = _opened(board, file, place)
        self._may_grow, self._ends = may_grow, ends
        self._data, self._at = b"", 0
        self.unfinished: list[Unfinished] = []

    def __iter__(self) -> Iterator[Text | Blank]:
        while self._has_more():
            if match := self._ends.blank.match(self._data, self._at):
                self._at = match.end()
                yield self._blank(match[0])
                continue
            is_whole = self._read(text := Text(self.place))
            if not is_whole and self._may_grow:
                self.unfinished = [self._why(text)]
                return
            self._move(text.size, self._ends.lines + (not is_whole), text.crc)
            yield text

    def _has_more(self) -> bool:
        while self._at == len(self._data) and (chunk := next(self._chunks, None)) is not None:
            self._data, self._at = bytes(chunk), 0
        return self._at < len(self._data)

    def _blank(self, data: bytes) -> Blank:
        self._move(len(data), data.count(b"\n"), crc32(data, self.place.crc))
        return Blank(self.place, len(data))

    def _move(self, size: int, lines: int, crc: int) -> None:
        at, offset = self.place, self.place.offset + size
        self.place = replace(at, offset=offset, line=at.line + lines, crc=crc, ended=offset == self._size)

    def _read(self, text: Text) -> bool:
        """Read the next record into `text`. Return whether a newline ends the record."""
        self._ends.begin()
        if not self.place.offset and self._data.startswith(_BOM):
            self._take(text, len(_BOM))
        while self._has_more():
            end, is_whole = self._ends.scan(self._data, self._at)
            self._take(text, end)
            if is_whole:
                return True
            if remainder := self._data[end:]:
                self._go_on(text, remainder)
        text.opened = None if self._ends.opened is None else text.line + self._ends.opened
        return False

    def _take(self, text: Text, end: int) -> None:
        text.add(self._data[self._at : end])
        self._at = end

    def _go_on(self, text: Text, remainder: bytes) -> None:
        """Put the remaining byte before the next chunk. At the end of the file, add the byte to the record.

        The remaining byte is a quote or comma, whose meaning depends on the byte after it. At the end of the file, a
        quote closes the open field.
        """
        if (chunk := next(self._chunks, None)) is not None:
            self._data, self._at = remainder + bytes(chunk), 0
            return
        self._take(text, len(self._data))
        if remainder == b'"':
            self._ends.opened = None

    def _why(self, text: Text) -> Unfinished:
        detail = f"; a quote that was opened in line {text.opened} is still open" if text.opened else ""
        return Unfinished(f"the last line of {self.place.file} has no newline yet{detail}")


def _opened(board: Blackboard, file: File, place: FilePosition) -> tuple[int, FilePosition, Iterator[bytes]]:
    """Return a file's size, the position to read from, and the bytes after that position.

    If the bytes before `place` have changed, the file is read from its beginning. Repeated rows are harmless, but
    skipped rows are not.
    """
    # The file is unchanged since the last read, which did not reach the file's end.
    if place.etag and place.etag == file.etag:
        served, chunks = _served(board, file.key, place.offset)
        if served.etag == place.etag:
            return served.size, place, chunks
    served, chunks = _served(board, file.key, 0)
    if served.size < place.offset:
        raise shrunk(file.key, served.size, place.offset, "bytes")
    if (new_chunks := _after(chunks, place)) is not None:
        return served.size, replace(place, etag=served.etag), new_chunks
    _log.warning(f"{file.key} has changed in the part that was already read: it is read again from its beginning")
    served, chunks = _served(board, file.key, 0)
    return served.size, FilePosition(file.key, served.etag), chunks


def _served(board: Blackboard, key: str, start: int) -> tuple[File, Iterator[bytes]]:
    if (served := board.stream(key, start)) is None:
        raise gone(key)
    return served


def _after(chunks: Iterator[bytes], place: FilePosition) -> Iterator[bytes] | None:
    """Return a file's bytes after a position. Return None if the bytes before it have changed since they were read."""
    remaining, crc, tail = place.offset, 0, b""
    while remaining and (chunk := next(chunks, None)) is not None:
        crc, tail, remaining = crc32(chunk[:remaining], crc), chunk[remaining:], remaining - min(remaining, len(chunk))
    return chain([tail], chunks) if crc == place.crc else None
