"""The spool keeps accepted events on disk until they are published. Its files are append-only segments.

A frame in a segment is the content of one request. Its first line has a checksum and the sizes of the rest, so a reader
accepts a frame as a whole or not at all. A killed process may leave an incomplete frame at the end of a segment, which
readers ignore. It may also leave a complete frame whose request was not answered. That frame is published, as if only
the answer had been lost. A segment is damaged if it has other bytes between frames, or an end that no kill can cause.
Then its complete frames are published, and its file is kept for a person.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from threading import Lock
from time import monotonic, time
from typing import IO, NamedTuple
from zlib import crc32

from filelock import FileLock, Timeout

from feed_assets.core.errors import DiskFull, HomeBusy, SpoolBroken
from feed_assets.home import OWNED, make_folder, refuse_others_folder

SEGMENT = ".spool"
"""Suffix of a segment's file. The name before it is the name of the segment's batches."""

DAMAGED = ".damaged"
"""Suffix of a damaged segment's file. Its complete frames are published; a person decides about the rest."""

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9]{1,12}) ([0-9]{1,12})\n")
_BEGUN = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} ([0-9]{0,12}|[0-9]{1,12} [0-9]{0,12})")
_LONGEST_HEAD = 64
_FULL = (28, 122)  # ENOSPC and EDQUOT
_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Events of one window: key of the hourly partition, window start in seconds since 1970, number and bytes."""

    key: str
    start: int
    events: int
    size: int


@dataclass(frozen=True)
class Frame:
    """The content of one request: its events as lines in the order of the pieces, and rejected events with reasons.

    For a request with an idempotency key, `key` is that key, `digest` the body's digest, and `answer` the JSON answer.
    `source` is the partner, if the feed has a separate partition for each hour and partner.
    """

    feed: str
    pieces: tuple[Piece, ...]
    lines: bytes
    rejected: tuple[tuple[str, str], ...] = ()
    key: str | None = None
    digest: str = ""
    answer: str = ""
    source: str = ""

    @property
    def name(self) -> str:
        """Return the name in the URL of the request. Idempotency keys and rejected events are stored under it."""
        return f"{self.feed}/{self.source}" if self.source else self.feed

    def encoded(self) -> bytes:
        """Return the frame's bytes on disk."""
        fields = self.feed, self.pieces, self.rejected, self.key, self.digest, self.answer, self.source
        header, lines = json.dumps(fields).encode(), self.lines
        return b"%08x %d %d\n" % (crc32(lines, crc32(header)), len(header), len(lines)) + header + lines


def _decoded(header: bytes, lines: bytes) -> Frame:
    feed, pieces, rejected, *optional = json.loads(header)
    kept = tuple((raw, reason) for raw, reason in rejected)
    return Frame(feed, tuple(Piece(*piece) for piece in pieces), lines, kept, *optional)


class Gap(NamedTuple):
    """A damaged range of bytes in a segment. The range had at least one frame, which may have been acknowledged."""

    start: int
    end: int


def frames(segment: Path) -> Iterator[Frame]:
    """Yield the complete frames of a segment, one in memory at a time."""
    return (each for each in frames_and_gaps(segment) if isinstance(each, Frame))


def frames_and_gaps(segment: Path) -> Iterator[Frame | Gap]:
    """Yield a segment's frames and gaps in order.

    An incomplete frame at the end is only logged, because its request was never answered.
    """
    at, size = 0, segment.stat().st_size
    with segment.open("rb") as file:
        while at < size:
            if frame := _read(file, at):
                yield frame
                at = file.tell()
            elif following := _following(file, at):
                yield Gap(at, following)
                at = following
            else:
                if _is_begun(file, at, size):
                    _log.warning(
                        "%s: the bytes after %d are not a complete frame, and were never acknowledged", segment, at
                    )
                else:
                    yield Gap(at, size)
                return


def _is_begun(file: IO[bytes], start: int, size: int) -> bool:
    """Return whether the segment ends in the middle of the frame at `start`. A killed write leaves such an end."""
    file.seek(start)
    head = file.readline(_LONGEST_HEAD)
    if match := _HEAD.fullmatch(head):
        return start + len(head) + int(match[2]) + int(match[3]) > size
    return start + len(head) == size and _BEGUN.fullmatch(head) is not None


def _following(file: IO[bytes], start: int) -> int | None:
    """Return the position of the next complete frame, or None. No line of events looks like a frame's first line."""
    file.seek(start)
    begins = [start + match.start() for match in _HEAD.finditer(file.read())]
    return next((each for each in begins if _read(file, each)), None)


def _read(file: IO[bytes], start: int) -> Frame | None:
    file.seek(start)
    match = _HEAD.fullmatch(file.readline(_LONGEST_HEAD))
    if match is None:
        return None
    header = file.read(int(match[2]))
    lines = file.read(int(match[3]))
    if crc32(lines, crc32(header)) != int(match[1], 16) or len(lines) != int(match[3]):
        return None
    return _decoded(header, lines)


@dataclass
class Spool:
    """The segments of one receiver, in its own folder. One is being written; sealed segments wait to be flushed.

    Args:
        folder: The folder, on a disk that keeps synced data. It is created if its parent exists.
        segment_bytes: The size at which a segment is sealed.
    """

    folder: Path
    segment_bytes: int = 32 << 20
    broken: str = ""
    """The reason why no frame can be written until the receiver is restarted."""
    _open: "_Segment | None" = None
    _number: int = 0
    _hours: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        make_folder(self.folder, "the spool", 0o700)
        refuse_others_folder(self.folder, "the spool")
        # The lock belongs to the whole process: one thread may open the spool, and another close it.
        self._alone = FileLock(self.folder / ".lock", timeout=0, mode=OWNED, thread_local=False)
        try:
            self._alone.acquire()
        except Timeout:
            raise HomeBusy(
                f"another receiver uses {self.folder}: expected one receiver per folder. End it, or set --spool."
            ) from None
        try:
            self.receiver = _identity(self.folder)
        except OSError as error:
            self._alone.release()
            raise _spool_error(error) from error
        self._start = token_hex(4)

    def append(self, group: Sequence[Frame]) -> list[None]:
        """Write frames, and sync them to disk together. Raise DiskFull or SpoolBroken; then no frame is kept.

        The sync includes the file's size. The folder was synced when the file was created.
        """
        with self._lock:
            if self.broken:
                raise SpoolBroken(self.broken)
            segment = self._open = self._open or self._new()
            try:
                segment.write([frame.encoded() for frame in group])
            except OSError as error:
                self._take_back(segment, error)
            if segment.size >= self.segment_bytes:
                self._seal()
        return [None] * len(group)

    def note_hours(self, frame: Frame) -> int:
        """Add a frame's hours (of event time) to those of the current segment. Return the number of new hours."""
        hours = self._hours  # Another thread may replace `_hours` when it seals the segment.
        before = len(hours)
        hours.update((frame.feed, piece.key) for piece in frame.pieces)
        return len(hours) - before

    def seal(self, older_than: float = 0) -> None:
        """Seal the current segment if its first frame is at least `older_than` seconds old. Then it can be flushed."""
        with self._lock:
            if self._open and self._open.size and monotonic() - self._open.since >= older_than:
                self._seal()

    def sealed(self) -> list[Path]:
        """Return the sealed segments, oldest first, including those of earlier processes."""
        with self._lock:
            current = self._open.path if self._open else None
            stat_by_path = {path: stat for path, stat in self._stat_by_path().items() if path != current}
        return sorted(stat_by_path, key=lambda path: (stat_by_path[path].st_mtime_ns, path.name))

    def set_aside(self, segment: Path, gaps: Sequence[Gap]) -> None:
        """Rename a damaged segment, so that it is kept but not flushed again, and log its gaps.

        Call this after its complete frames are published.
        """
        segment.rename(kept := segment.with_suffix(DAMAGED))
        places = ", ".join(f"{gap.start} to {gap.end}" for gap in gaps)
        _log.error("%s: the bytes %s are damaged frames, which may have been acknowledged", kept, places)

    def damaged(self) -> list[str]:
        """Return the names of the damaged files in the folder. A person has to move them away."""
        return sorted(path.name for path in self.folder.glob(f"*{DAMAGED}"))

    @property
    def size(self) -> int:
        """Return the number of bytes in all segments that are not flushed yet."""
        return sum(stat.st_size for stat in self._stat_by_path().values())

    def oldest_seconds(self) -> float:
        """Return for how many seconds the oldest events have waited in a segment; 0 if no events wait."""
        with self._lock:
            current = self._open
            ages = [
                time() - stat.st_mtime
                for path, stat in self._stat_by_path().items()
                if not current or path != current.path
            ]
            ages += [monotonic() - current.since] if current and current.size else []
        return max([0.0, *ages])

    def _stat_by_path(self) -> dict[Path, os.stat_result]:
        """Return the stat results of the segments' files. Skip a file that a flush has just removed."""
        stat_by_path = dict[Path, os.stat_result]()
        for path in self.folder.glob(f"*{SEGMENT}"):
            with suppress(FileNotFoundError):
                stat_by_path[path] = path.stat()
        return stat_by_path

    def close(self) -> None:
        """Seal the current segment, and let another receiver use the folder. All frames are already synced."""
        with self._lock:
            self._seal()
        self._alone.release()

    def _new(self) -> "_Segment":
        self._number += 1
        path = self.folder / f"{self.receiver}-{self._start}-{self._number:06d}{SEGMENT}"
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, OWNED)
            try:
                sync_folder(self.folder)
            except OSError:
                os.close(file)
                raise
        except OSError as error:
            raise _spool_error(error) from error
        return _Segment(path, file)

    def _seal(self) -> None:
        """Close the current segment. Its frames are already synced, so an error on close loses no events."""
        if segment := self._open:
            self._open, self._hours = None, set()
            try:
                os.close(segment.file)
            except OSError as error:
                _log.warning("%s was synced, but not closed: %s", segment.path, error)
            if not segment.size:
                segment.path.unlink()

    def _take_back(self, segment: "_Segment", error: OSError) -> None:
        """Remove what a failed write or sync has left in the file, and raise the error.

        Otherwise events of a refused request would be published.
        """
        try:
            os.ftruncate(segment.file, segment.size)
            os.fsync(segment.file)
        except OSError as again:
            self.broken = (
                f"{segment.path} cannot be written ({error}), and the unfinished write cannot be undone ({again})."
            )
            raise SpoolBroken(self.broken) from error
        raise _spool_error(error) from error


@dataclass
class _Segment:
    path: Path
    file: int
    size: int = 0
    """Bytes of complete, synced frames."""
    since: float = field(default_factory=monotonic)

    def write(self, frames: Sequence[bytes]) -> None:
        data = memoryview(b"".join(frames))
        self.since = self.since if self.size else monotonic()
        written = 0
        while written < len(data):
            written += os.write(self.file, data[written:])
        os.fdatasync(self.file)
        self.size += len(data)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _spool_error(error: OSError) -> Exception:
    if error.errno in _FULL:
        return DiskFull(f"The disk of the spool is full ({error}). Make room: accepted events are kept.")
    return SpoolBroken(f"The spool cannot be written: {error}. No event of this request was accepted.")


def _identity(folder: Path) -> str:
    """Return the receiver's name, a random text that is created once per folder.

    The name is used in batch names and for idempotency keys.
    """
    path = folder / "receiver"
    if not path.exists():
        new = path.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, OWNED), "w", encoding="ascii") as file:
            file.write(token_hex(4))
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
        sync_folder(folder)
    return path.read_text(encoding="ascii")
