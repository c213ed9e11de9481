"""Rows of CSV and JSON lines, whose last line may be half-written."""

import csv
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import Any
from zlib import crc32

from feed_assets.core.feeds import File
from feed_assets.core.limits import REJECT_BYTES, ROW_BYTES, excerpt, shortened
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.records import Place, Record, Unfinished, check_header, gone, shrunk
from feed_assets.sources.rows import Columns

_log = logging.getLogger(__name__)
_BOM = "\ufeff"


class _Lines:
    """The whole lines after a place in a file; `place` is where the last one that was taken ends.

    The last line of a file that may still grow is whole once it ends with a newline.
    """

    def __init__(self, board: Blackboard, file: File, place: Place, may_grow: bool) -> None:
        self._size, self.place, chunks = _opened(board, file, place)
        self._lines, self._may_grow = self._split(chunks), may_grow
        self._taken: list[str] = []
        self._began = self.place.offset
        self.at_end = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if (line := next(self._lines, None)) is None:
            self.at_end = True
            raise StopIteration
        at, offset = self.place, self.place.offset + line.size
        self.place = replace(at, offset=offset, line=at.line + 1, crc=line.crc, ended=offset == self._size)
        text = line.head.decode(errors="surrogateescape")
        self._taken.append(text if at.offset else text.removeprefix(_BOM))
        if line.digest:
            raise _TooLong(shortened(line.head, line.size, line.digest.hexdigest(), REJECT_BYTES))
        if self.size > ROW_BYTES:
            raise _TooLong(excerpt(self.text, REJECT_BYTES))
        return self._taken[-1]

    def begin(self) -> int:
        """Begin a record, which may be several lines; the number of its first line."""
        self._taken.clear()
        self._began = self.place.offset
        return self.place.line + 1

    @property
    def size(self) -> int:
        """The bytes of this record."""
        return self.place.offset - self._began

    @property
    def text(self) -> str:
        """The lines of this record."""
        return "".join(self._taken)

    @property
    def is_text(self) -> bool:
        """Whether the lines of this record are UTF-8."""
        try:
            self.text.encode()
        except UnicodeEncodeError:
            return False
        return True

    @property
    def unfinished(self) -> list[Unfinished]:
        """The end of the file if it is not whole yet, else nothing."""
        if not self._may_grow or (self.place.offset == self._size and not self._taken):
            return []
        return [Unfinished(f"the end of {self.place.file} is not yet a whole line with its newline")]

    def rejected(self, line: int, reason: str) -> Record:
        """This record as text, with the reason why it is no row."""
        return Record(self.place, line, None, excerpt(json.dumps(self.text), REJECT_BYTES), reason, REJECT_BYTES)

    def too_long(self, line: int, said: "_TooLong") -> Record:
        """What is kept of this record, which is longer than what is looked at."""
        reason = f"it has {self.size} bytes: expected at most {ROW_BYTES}"
        return Record(self.place, line, None, str(said), reason, REJECT_BYTES)

    def _split(self, chunks: Iterator[bytes]) -> Iterator["_Line"]:
        line = _Line(self.place.crc)
        for chunk in chunks:
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                line.add(end + b"\n")
                yield line
                line = _Line(line.crc)
            line.add(rest)
        if line.size and not self._may_grow:
            yield line


class _TooLong(Exception):
    """A line or record that is longer than what is looked at; the message is what is kept of it."""


class _Line:
    """A line as it is read, piece by piece: `head` is all of it, or of one that is too long the beginning."""

    def __init__(self, crc: int) -> None:
        self.crc = crc
        """The checksum of the file up to its end."""
        self.size = 0
        self.digest: Any = None
        """Of one that is too long."""
        self._pieces: list[bytes] = []

    @property
    def head(self) -> bytes:
        """All of it, or its beginning."""
        return b"".join(self._pieces)

    def add(self, piece: bytes) -> None:
        """Go on with the next piece, of which no more is kept than is looked at."""
        self.size, self.crc = self.size + len(piece), crc32(piece, self.crc)
        if self.digest:
            self.digest.update(piece)
            return
        self._pieces.append(piece)
        if self.size > ROW_BYTES:
            self.digest = sha256(self.head)
            self._pieces = [self.head[:REJECT_BYTES]]


def json_records(
    board: Blackboard, file: File, place: Place, _columns: Columns, may_grow: bool
) -> Iterator[Record | Unfinished]:
    """Each line that is not blank; a line that is no JSON object comes with that reason."""
    lines = _Lines(board, file, place, may_grow)
    while number := lines.begin():
        try:
            line = next(lines, None)
        except _TooLong as said:
            yield lines.too_long(number, said)
            continue
        if line is None:
            break
        if line.strip():
            yield _json_record(lines, number, line)
    yield from lines.unfinished


def _json_record(lines: _Lines, number: int, line: str) -> Record:
    row = _object(line) if lines.is_text else None
    if row is None:
        return lines.rejected(number, "no JSON object in UTF-8")
    return Record(lines.place, number, row, size=lines.size)


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]


def csv_records(
    board: Blackboard, file: File, place: Place, columns: Columns, may_grow: bool
) -> Iterator[Record | Unfinished]:
    """Each line after the header, by RFC 4180; an empty field is nothing. What does not fit comes with the reason."""
    lines = _Lines(board, file, place, may_grow)
    reader = csv.reader(lines, strict=True)
    while number := lines.begin():
        try:
            values = next(reader, None)
        except csv.Error as error:
            if lines.at_end and may_grow:
                break
            check_header(file.key, lines.place.header or (lines.text,), columns.named)
            yield lines.rejected(number, str(error))
            continue
        except _TooLong as said:
            check_header(file.key, lines.place.header or (str(said),), columns.named)
            yield lines.too_long(number, said)
            continue
        if values is None:
            break
        if lines.place.header is None and values:
            check_header(file.key, values, columns.named)
            lines.place = replace(lines.place, header=tuple(values))
        elif values:
            yield _record(lines, number, values)
    yield from lines.unfinished


def _record(lines: _Lines, number: int, values: list[str]) -> Record:
    header = lines.place.header or ()
    if not lines.is_text:
        return lines.rejected(number, "not UTF-8")
    if len(values) != len(header):
        return lines.rejected(number, f"{len(values)} fields, expected {len(header)}")
    return Record(lines.place, number, dict(zip(header, values, strict=True)), size=lines.size)


def _opened(board: Blackboard, file: File, place: Place) -> tuple[int, Place, Iterator[bytes]]:
    """The size of a file, and its bytes after a place: after none if what was read of it has changed.

    To read them again is harmless, and to leave one out is not.
    """
    if place.etag and place.etag == file.etag:  # Since it is not ended, there are bytes after the place.
        served, chunks = _served(board, file.key, place.offset)
        if served.etag == place.etag:
            return served.size, place, chunks
    served, chunks = _served(board, file.key, 0)
    if served.size < place.offset:
        raise shrunk(file.key, served.size, place.offset, "bytes")
    if (rest := _after(chunks, place)) is not None:
        return served.size, replace(place, etag=served.etag), rest
    _log.warning(f"{file.key} did not only grow at its end: it is read again from its beginning")
    served, chunks = _served(board, file.key, 0)
    return served.size, Place(file.key, served.etag), chunks


def _served(board: Blackboard, key: str, start: int) -> tuple[File, Iterator[bytes]]:
    if (found := board.stream(key, start)) is None:
        raise gone(key)
    return found


def _after(chunks: Iterator[bytes], place: Place) -> Iterator[bytes] | None:
    """The bytes after a place, None if those before it are not those that were read."""
    left, crc, rest = place.offset, 0, b""
    while left and (chunk := next(chunks, None)) is not None:
        crc, rest, left = crc32(chunk[:left], crc), chunk[left:], left - min(left, len(chunk))
    return chain([rest], chunks) if crc == place.crc else None
