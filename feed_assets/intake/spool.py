"""Accepted events on disk until the ledger has them: append-only segments, each flushed as a whole.

A frame is the content of one request, present as a whole or not at all: its first line has the checksum and the sizes
of the rest. A killed process may leave an incomplete frame at a segment's end, or a complete one that was never
acknowledged. The reader ignores the former and takes the latter, as if its answer had been lost. Other bytes before a
complete frame are damage, and so is an end that no kill can cause. Then all complete frames are taken, and the segment
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
"""Suffix of a segment's file, after the name of the segment's batches."""

DAMAGED = ".damaged"
"""Suffix of a damaged segment: its complete frames are published, the rest is left to a person."""

_HEAD = re.compile(rb"([0-9a-f]{8}) ([0-9]{1,12}) ([0-9]{1,12})\n")
_BEGUN = re.compile(rb"[0-9a-f]{0,8}|[0-9a-f]{8} ([0-9]{0,12}|[0-9]{1,12} [0-9]{0,12})")
_LONGEST_HEAD = 64
_FULL = (28, 122)  # ENOSPC and EDQUOT
_log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Events of one window: the key of their hour, the window's start in seconds since 1970, their number and bytes."""

    key: str
    start: int
    events: int
    size: int


@dataclass(frozen=True)
class Frame:
    """The content of one request: its events in lines, by piece, and the rejected ones with their reasons.

    `key`, `digest` and `answer` belong to its idempotency key, if it had one. `source` is the partner, if the feed has
    a partition for each partner of an hour.
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
        """Return the name to which events were pushed. It scopes idempotency keys and rejected events."""
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
    """A range of bytes in a segment without a complete frame, though one was there and may have been acknowledged."""

    start: int
    end: int


def frames(segment: Path) -> Iterator[Frame]:
    """Yield the complete frames of a segment, one in memory at a time."""
    return (each for each in frames_and_gaps(segment) if isinstance(each, Frame))


def frames_and_gaps(segment: Path) -> Iterator[Frame | Gap]:
    """Yield a segment's frames and gaps in order. An incomplete frame at its end, never answered, is only logged."""
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
    """Return whether the frame that begins here is cut off by the segment's end, as by a killed write."""
    file.seek(start)
    head = file.readline(_LONGEST_HEAD)
    if match := _HEAD.fullmatch(head):
        return start + len(head) + int(match[2]) + int(match[3]) > size
    return start + len(head) == size and _BEGUN.fullmatch(head) is not None


def _following(file: IO[bytes], start: int) -> int | None:
    """Return where the next complete frame begins. No line of events looks like a frame's first line."""
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
    """The segments of one receiver, in its own folder: one is being written, and the sealed ones wait.

    Args:
        folder: The folder, on a disk that keeps synced data. It is made if its parent exists.
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
        """Write frames and sync them, all at once. Raise DiskFull or SpoolBroken; none of them is kept then.

        Each sync includes the file's size. The folder is synced when the file is made.
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
        """Add a frame's feeds and hours to those of the next flush. Return how many are new."""
        hours = self._hours  # A flush may begin a new set meanwhile.
        before = len(hours)
        hours.update((frame.feed, piece.key) for piece in frame.pieces)
        return len(hours) - before

    def seal(self, older_than: float = 0) -> None:
        """Seal the current segment, if its first frame is `older_than` seconds old. Then it can be flushed."""
        with self._lock:
            if self._open and self._open.size and monotonic() - self._open.since >= older_than:
                self._seal()

    def sealed(self) -> list[Path]:
        """Return the waiting segments, the oldest first, including those of earlier starts."""
        with self._lock:
            current = self._open.path if self._open else None
            stat_by_path = {path: stat for path, stat in self._stat_by_path().items() if path != current}
        return sorted(stat_by_path, key=lambda path: (stat_by_path[path].st_mtime_ns, path.name))

    def set_aside(self, segment: Path, gaps: Sequence[Gap]) -> None:
        """Keep and log a segment that has gaps, after its complete frames are published. It waits no longer."""
        segment.rename(kept := segment.with_suffix(DAMAGED))
        places = ", ".join(f"{gap.start} to {gap.end}" for gap in gaps)
        _log.error("%s: the bytes %s are damaged frames, which may have been acknowledged", kept, places)

    def damaged(self) -> list[str]:
        """Return the files that were set aside, until somebody moves them away."""
        return sorted(path.name for path in self.folder.glob(f"*{DAMAGED}"))

    @property
    def size(self) -> int:
        """Return the waiting bytes in all segments."""
        return sum(stat.st_size for stat in self._stat_by_path().values())

    def oldest_seconds(self) -> float:
        """Return for how many seconds the oldest events have waited, in any segment; 0 if none wait."""
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
        """Return the segments' files. A flush may remove one meanwhile."""
        stat_by_path = dict[Path, os.stat_result]()
        for path in self.folder.glob(f"*{SEGMENT}"):
            with suppress(FileNotFoundError):
                stat_by_path[path] = path.stat()
        return stat_by_path

    def close(self) -> None:
        """Let another receiver use the folder. Everything is already synced."""
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
        """Close the segment, whose frames are synced: an error on close does not affect accepted events."""
        if segment := self._open:
            self._open, self._hours = None, set()
            try:
                os.close(segment.file)
            except OSError as error:
                _log.warning("%s was synced, but not closed: %s", segment.path, error)
            if not segment.size:
                segment.path.unlink()

    def _take_back(self, segment: "_Segment", error: OSError) -> None:
        """Cut off the rest of a failed write or sync, as unacknowledged events must not appear. Raise the error."""
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
    return SpoolBroken(f"The spool cannot be written: {error}. Nothing of this request was accepted.")


def _identity(folder: Path) -> str:
    """Return the receiver's name, made once for a folder, and used in its batches and for idempotency keys."""
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
