"""A folder on local disk as a store. Only regular files are objects.

Every folder below the root is opened from its parent. No symbolic link is followed, even if somebody replaces a folder
by a link meanwhile. The user chooses the root, so the path to the root may contain links. Hard links count as files.
"""

import errno
import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import category
from uuid import uuid4

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import UNREADABLE

if TYPE_CHECKING:
    from obstore import ObjectMeta

HALF_WRITTEN = re.compile(r"#[0-9]+$")
"""The end of the name of a half-written file. obstore hides such files, other readers see them."""

DEPTH = 64
"""The most path segments of a listed folder. Our longest keys have less than half as many."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a FIFO would wait for a writer. A FIFO is refused.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_BYTES_PER_READ = 1 << 20
_EARLIEST, _LATEST = (
    -62_000_000_000,
    253_000_000_000,
)  # These moments are in the years 5 and 9987. Disks can store times that Python's datetime cannot represent.
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class LocalObject:
    """An open regular file, with its metadata and size at the time of opening."""

    def __init__(self, file: int, meta: "ObjectMeta", start: int, length: int | None = None) -> None:
        self._file = file
        self.meta = meta
        self._start = start
        self._end = meta["size"] if length is None else min(start + length, meta["size"])

    def __del__(self) -> None:
        os.close(self._file)

    def stream(self, min_chunk_size: int = _BYTES_PER_READ) -> Iterator[bytes]:
        """Yield the bytes of the requested range in chunks."""
        at = self._start
        while data := os.pread(self._file, max(min(max(min_chunk_size, 1), self._end - at), 0), at):
            yield data
            at += len(data)

    def bytes(self) -> bytes:
        """Return all bytes of the requested range."""
        return b"".join(self.stream())

    @property
    def path(self) -> Path:
        """Return a path that opens this file, whatever its name means by now. Keep the object while you use it."""
        return Path(f"/dev/fd/{self._file}")


@dataclass(frozen=True)
class FileBelow:
    """A regular file below a folder that others may write to. It is opened without following links."""

    root: Path
    key: str

    def opened(self) -> LocalObject:
        """Open the file. Raise InvalidName for a link, a FIFO, a socket or a device."""
        return opened(self.root, self.key)


def opened(root: Path, key: str, start: int = 0, length: int | None = None) -> LocalObject:
    """Open an object. Raise FileNotFoundError or NotADirectoryError if it does not exist, InvalidName for a link."""
    parent, name = _split(key)
    with folder(root, parent) as above:
        try:
            file = os.open(name, _FILE, dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # It is a link or a socket.
                raise _no_file(key, above, name) from error
            raise
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode):
        return LocalObject(file, _meta(key, status), start, length)
    os.close(file)
    raise _no_object(key, status)


def looked_at(root: Path, key: str) -> "ObjectMeta":
    """Return the metadata of an object without opening it. Raise the same errors as `opened`."""
    parent, name = _split(key)
    with folder(root, parent) as above:
        status = os.stat(name, dir_fd=above, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise _no_object(key, status)
    return _meta(key, status)


def _no_object(key: str, status: os.stat_result) -> Exception:
    if stat.S_ISDIR(status.st_mode):
        return FileNotFoundError(key)
    return InvalidName(f"{key} is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no file')}, not an object. Remove it.")


@contextmanager
def folder(root: Path, segments: Sequence[str]) -> Generator[int]:
    """Yield the descriptor of a folder below the root. Raise InvalidName if a folder on the path is a link."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number, segment in enumerate(segments, 1):
            try:
                below = os.open(segment, _FOLDER, dir_fd=descriptor)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise _no_file("/".join(segments[:number]), descriptor, segment) from error
                raise type(error)(error.errno, error.strerror, "/".join(map(readable, segments[:number]))) from error
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _no_file(key: str, above: int, name: str) -> Exception:
    """Return the error for a link, FIFO, socket or device. For anything else return NotADirectoryError."""
    kind = stat.S_IFMT(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    if kind not in _KINDS:
        return NotADirectoryError(key)
    return InvalidName(f"{key} is {_KINDS[kind]}, which is not part of a feed and is not followed. Remove it.")


def objects(root: Path, prefix: str, after: str = "", last: str = "") -> Iterator["ObjectMeta"]:
    """Yield every regular file below a prefix whose key follows `after`, unsorted. Half-written files are included.

    Files in folders deeper than DEPTH are skipped. `no_files` returns such folders. Folders after `last` are skipped.
    """
    pending = [prefix.split("/") if prefix else []]
    while pending:
        segments = pending.pop()
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            folder(root, segments) as opened,
            _scan(opened) as entries,
        ):
            above = "".join(f"{readable(segment)}/" for segment in segments)
            for entry in entries:
                key = above + readable(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if len(segments) < DEPTH and _is_within(key, after, last):
                        pending.append([*segments, entry.name])
                elif key > after and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):  # The file was removed meanwhile.
                        yield _meta(key, entry.stat(follow_symlinks=False))


def _is_within(folder: str, after: str, last: str) -> bool:
    """Return whether a folder may have files after `after`, and is not after the folder `last`, if there is one."""
    is_behind = bool(last) and folder > last and not folder.startswith(f"{last}/")
    return not is_behind and (f"{folder}/" > after or after.startswith(f"{folder}/"))


def folders(root: Path, prefix: str) -> list[str]:
    """Return the names of the direct subfolders of a folder; [] if it is missing."""
    try:
        with folder(root, prefix.split("/") if prefix else []) as opened, _scan(opened) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return names if "".join(names).isprintable() else [*map(readable, names)]


def no_files(root: Path, prefix: str, *, below: bool) -> list[tuple[str, str]]:
    """Return (key, kind) of the links, FIFOs, sockets and devices in a folder. With `below` search subfolders, too.

    Folders deeper than DEPTH are also returned, because their files are skipped.
    """
    pending, irregular = [prefix.split("/") if prefix else []], list[tuple[str, str]]()
    while pending:
        segments = pending.pop()
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            folder(root, segments) as opened,
            _scan(opened) as entries,
        ):
            for entry in entries:
                if len(segments) >= DEPTH and entry.is_dir(follow_symlinks=False):
                    key = "/".join(map(readable, [*segments, entry.name]))
                    irregular.append((key, f"a folder below {DEPTH} others"))
                elif entry.is_dir(follow_symlinks=False):
                    pending += [[*segments, entry.name]] if below else []
                elif not entry.is_file(follow_symlinks=False):
                    kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
                    irregular.append(("/".join(map(readable, [*segments, entry.name])), _KINDS.get(kind, "no file")))
    return sorted(irregular)


def remove(root: Path, key: str) -> None:
    """Remove a file. If it is a link, remove the link, not its target. A missing file is not an error."""
    parent, name = _split(key)
    with suppress(FileNotFoundError, NotADirectoryError), folder(root, parent) as above:
        os.unlink(name, dir_fd=above)


def sweep(root: Path, key: str) -> int:
    """Remove a folder with its contents. If it is a link, remove only the link. Return the number of removed files."""
    parent, name = _split(key)
    count = 0
    with suppress(FileNotFoundError, NotADirectoryError), folder(root, parent) as above:
        while not stat.S_ISREG(mode := os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            with suppress(FileNotFoundError):  # Another process has removed it meanwhile.
                if stat.S_ISDIR(mode):
                    count = max(count, sum(1 for _ in objects(root, key)))
                    _clear(above, name)
                    os.rmdir(name, dir_fd=above)
                else:
                    os.unlink(name, dir_fd=above)
    return count


def _clear(above: int, name: str) -> None:
    """Empty a folder of any depth, with at most two open folders. Contents of subfolders are moved up into the folder.

    If the process is killed, the remaining files are still in the folder, and the next sweep removes them.
    """
    with _opened(above, name) as top:
        while names := _names(top):
            for each in names:
                _remove(top, each, top)


def _remove(above: int, name: str, top: int) -> None:
    """Remove a file, link or folder. A full folder directly in `top` is emptied first.

    A full folder deeper down is moved into `top` instead, because recursion into it could be too deep.
    """
    with suppress(FileNotFoundError):  # Another process has removed it meanwhile.
        if not stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=above)
            return
        if above == top:
            with _opened(above, name) as below:
                for each in _names(below):
                    _remove(below, each, top)
        try:
            os.rmdir(name, dir_fd=above)
        except OSError as error:
            if above == top or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            os.rename(name, f".swept-{uuid4().hex}", src_dir_fd=above, dst_dir_fd=top)


def _names(folder: int) -> list[str]:
    with _scan(folder) as entries:
        return [entry.name for entry in entries]


@contextmanager
def _opened(above: int, name: str) -> Generator[int]:
    descriptor = os.open(name, _FOLDER, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def readable(name: str) -> str:
    """Return a name as listings show it: U+FFFD replaces control characters and invalid UTF-8.

    Otherwise a name could start a new line in a log, or control a terminal.
    """
    return name if name.isprintable() else "".join(UNREADABLE if _is_odd(each) else each for each in name)


def _is_odd(letter: str) -> bool:
    return category(letter) in ("Cc", "Cs", "Zl", "Zp")


def _split(key: str) -> tuple[list[str], str]:
    *parent, name = key.split("/")
    return parent, name


@contextmanager
def _scan(opened: int) -> Generator[Iterator["os.DirEntry[str]"]]:
    with os.scandir(opened) as entries:
        yield entries


def _meta(key: str, status: os.stat_result) -> "ObjectMeta":
    """Return the same metadata as obstore, including the etag, because ledgers contain obstore's etags."""
    microseconds = max(status.st_mtime_ns // 1000, 0)
    return {
        "path": key,
        "last_modified": datetime.fromtimestamp(min(max(status.st_mtime, _EARLIEST), _LATEST), UTC),
        "size": status.st_size,
        "e_tag": None if HALF_WRITTEN.search(key) else f'"{status.st_ino:x}-{microseconds:x}-{status.st_size:x}"',
        "version": None,
    }
