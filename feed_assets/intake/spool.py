"""Accepted events on disk until the ledger has them: append-only segments, each of which is flushed as a whole.

A frame is the content of one request, there as a whole or not at all: its first line has the checksum and the sizes of
what follows. A segment that a kill left ends with a frame that is not whole, or with one that was never acknowledged.
The reader takes nothing of the former, and all of the latter, as if the answer had been lost on its way. Other bytes
before a whole frame are damage, and so is an end that no kill leaves: then all whole frames are taken, and the segment
is kept.
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
from feed_assets.home import OWNED, make_folder

SEGMENT = ".spool"
"""Suffix of a segment's file; before it is the name of the segment's batches."""

DAMAGED = ".damaged"
"""Suffix of a segment whose whole frames are published, and whose rest is left to people."""

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9]{1,12}) ([0-9]{1,12})\n")
_BEGUN = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} ([0-9]{0,12}|[0-9]{1,12} [0-9]{0,12})")
_LONGEST_HEAD = 64
_FULL = (28, 122)  # ENOSPC and EDQUOT
_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Events of one window: the key of their hour, its start in seconds since 1970, their number, their bytes."""

    key: str
    start: int
    events: int
    size: int


@dataclass(frozen=True)
class Frame:
    """The content of one request: its events in lines, piece by piece, and the rejected ones, each with its reason.

    `key`, `digest` and `answer` are those of its idempotency key, if it had one. `source` is the partner, if the feed
    has a partition for each partner of an hour.
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
        """Return the name that was pushed to: idempotency keys and rejected events are its own."""
        return f"{self.feed}/{self.source}" if self.source else self.feed

    def encoded(self) -> bytes:
        """Return the frame as it stands on disk."""
        fields = self.feed, self.pieces, self.rejected, self.key, self.digest, self.answer, self.source
        header, lines = json.dumps(fields).encode(), self.lines
        return b"%08x %d %d\n" % (crc32(lines, crc32(header)), len(header), len(lines)) + header + lines


def _decoded(header: bytes, lines: bytes) -> Frame:
    feed, pieces, rejected, *optional = json.loads(header)
    kept = tuple((raw, reason) for raw, reason in rejected)
    return Frame(feed, tuple(Piece(*piece) for piece in pieces), lines, kept, *optional)


class Gap(NamedTuple):
    """Range of bytes without a whole frame in a segment, though there was one, which may have been acknowledged."""

    start: int
    end: int


def frames(segment: Path) -> Iterator[Frame]:
    """Yield the whole frames of a segment, one in memory at a time."""
    return (each for each in frames_and_gaps(segment) if isinstance(each, Frame))


def frames_and_gaps(segment: Path) -> Iterator[Frame | Gap]:
    """Yield the frames and gaps of a segment, in order; only log a frame begun at its end, which was not answered."""
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
                    _log.warning("%s: what follows byte %d is no whole frame, and was never acknowledged", segment, at)
                else:
                    yield Gap(at, size)
                return


def _is_begun(file: IO[bytes], start: int, size: int) -> bool:
    """Return whether the frame that begins at a byte is cut off by the segment's end, as by a killed write."""
    file.seek(start)
    head = file.readline(_LONGEST_HEAD)
    if match := _HEAD.fullmatch(head):
        return start + len(head) + int(match[2]) + int(match[3]) > size
    return start + len(head) == size and _BEGUN.fullmatch(head) is not None


def _following(file: IO[bytes], start: int) -> int | None:
    """Return where the first whole frame behind a byte begins. No event's line looks like the first one of a frame."""
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
    """The segments of one receiver, in a folder of its own: one is written, and the sealed ones wait.

    Args:
        folder: The folder, on a disk that keeps what was synced; made, unless its parent is missing, too.
        segment_bytes: Size at which a segment is sealed.
    """

    folder: Path
    segment_bytes: int = 32 << 20
    broken: str = ""
    """The reason why no frame can be written any more, until the receiver is started again."""
    _open: "_Segment | None" = None
    _number: int = 0
    _hours: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        make_folder(self.folder, "the spool", 0o700)
        # A lock of the whole process: a server in a thread of its own closes what another thread has opened.
        self._alone = FileLock(self.folder / ".lock", timeout=0, mode=OWNED, thread_local=False)
        try:
            self._alone.acquire()
        except Timeout:
            raise HomeBusy(
                f"another receiver spools in {self.folder}: expected one for each folder. End it, or set --spool."
            ) from None
        try:
            self.receiver = _identity(self.folder)
        except OSError as error:
            self._alone.release()
            raise _spool_error(error) from error
        self._start = token_hex(4)

    def append(self, group: Sequence[Frame]) -> list[None]:
        """Write frames and sync them, all at once. Raise DiskFull and SpoolBroken; then nothing of them is kept.

        The file's size is synced with its data, the folder when the file is made.
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
        """Add a frame's feeds and hours to those of the next flush. Return how many of them are new."""
        hours = self._hours  # A flush may begin a new set meanwhile.
        before = len(hours)
        hours.update((frame.feed, piece.key) for piece in frame.pieces)
        return len(hours) - before

    def seal(self, older_than: float = 0) -> None:
        """End the current segment, if its first frame is `older_than` seconds old: then it can be flushed."""
        with self._lock:
            if self._open and self._open.size and monotonic() - self._open.since >= older_than:
                self._seal()

    def sealed(self) -> list[Path]:
        """Return the segments that wait, the oldest first; those of earlier starts, too."""
        with self._lock:
            current = self._open.path if self._open else None
            stat_by_path = {path: stat for path, stat in self._stat_by_path().items() if path != current}
        return sorted(stat_by_path, key=lambda path: (stat_by_path[path].st_mtime_ns, path.name))

    def set_aside(self, segment: Path, gaps: Sequence[Gap]) -> None:
        """Keep a segment whose whole frames are published, and which has gaps: it waits no longer, and is logged."""
        segment.rename(kept := segment.with_suffix(DAMAGED))
        places = ", ".join(f"{gap.start} to {gap.end}" for gap in gaps)
        _log.error("%s: the bytes %s are no whole frames any more, and may have been acknowledged", kept, places)

    def damaged(self) -> list[str]:
        """Return the files that were set aside, until somebody moves them away."""
        return sorted(path.name for path in self.folder.glob(f"*{DAMAGED}"))

    @property
    def size(self) -> int:
        """Return the bytes that wait, in all segments."""
        return sum(stat.st_size for stat in self._stat_by_path().values())

    def oldest_seconds(self) -> float:
        """Return how many seconds the oldest events have waited, in the current segment, too; 0 if none do."""
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
        """Return the segments' files; a flush may remove one meanwhile."""
        stat_by_path = dict[Path, os.stat_result]()
        for path in self.folder.glob(f"*{SEGMENT}"):
            with suppress(FileNotFoundError):
                stat_by_path[path] = path.stat()
        return stat_by_path

    def close(self) -> None:
        """Let another receiver have the folder. Everything is synced already."""
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
        """Close the segment, whose frames are synced: an error of the close does not concern accepted events."""
        if segment := self._open:
            self._open, self._hours = None, set()
            try:
                os.close(segment.file)
            except OSError as error:
                _log.warning("%s was synced, but not closed: %s", segment.path, error)
            if not segment.size:
                segment.path.unlink()

    def _take_back(self, segment: "_Segment", error: OSError) -> None:
        """Cut off what a failed write or sync left: unacknowledged events must not appear later. Raise the error."""
        try:
            os.ftruncate(segment.file, segment.size)
            os.fsync(segment.file)
        except OSError as again:
            self.broken = f"{segment.path} cannot be written ({error}), nor what was begun be taken back ({again})."
            raise SpoolBroken(self.broken) from error
        raise _spool_error(error) from error


@dataclass
class _Segment:
    path: Path
    file: int
    size: int = 0
    """Bytes of whole frames that are synced."""
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
        return DiskFull(f"The disk of the spool is full ({error}). Make room: what was accepted is kept.")
    return SpoolBroken(f"The spool cannot be written: {error}. Nothing of this request was accepted.")


def _identity(folder: Path) -> str:
    """Return the receiver's own name, drawn once for a folder: its batches have it, and its idempotency keys."""
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
