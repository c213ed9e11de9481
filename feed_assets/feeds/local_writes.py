"""Writes of files on local disk. A file has its name only when it is whole, and no link below the root is followed."""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path

from feed_assets.feeds import local_disk

_BYTES_PER_CHUNK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write(root: Path, key: str, data: bytes | Path, *, create: bool) -> None:
    """Write a file as `write_chunks` does. With `create`, raise FileExistsError if it exists."""
    if isinstance(data, Path):
        with data.open("rb") as source:
            _write(root, key, iter(partial(source.read, _BYTES_PER_CHUNK), b""), create=create)
    else:
        _write(root, key, [data], create=create)


def write_chunks(root: Path, key: str, chunks: Iterable[bytes]) -> str:
    """Write or overwrite a file from chunks atomically, and return its etag. If `chunks` raises, nothing is written.

    Raise InvalidName if a folder above it is a link. After a kill, a file is left that listings take for half-written.
    """
    _write(root, key, chunks, create=False)
    return local_disk.looked_at(root, key)["e_tag"] or ""


def _write(root: Path, key: str, chunks: Iterable[bytes], *, create: bool) -> None:
    *parent, name = key.split("/")
    _make_folder(root, parent)
    with local_disk.folder(root, parent) as above, _unfinished(above, name) as (file, unfinished):
        for chunk in chunks:
            view = memoryview(chunk)
            while view:
                view = view[os.write(file, view) :]
        if create:
            os.link(unfinished, name, src_dir_fd=above, dst_dir_fd=above, follow_symlinks=False)
            os.unlink(unfinished, dir_fd=above)
        else:
            os.rename(unfinished, name, src_dir_fd=above, dst_dir_fd=above)


def _make_folder(root: Path, segments: list[str]) -> None:
    """Make a folder with the folders above it, one in the other, if it is missing."""
    with suppress(FileNotFoundError), local_disk.folder(root, segments):
        return
    for depth, segment in enumerate(segments):
        with local_disk.folder(root, segments[:depth]) as above, suppress(FileExistsError):
            os.mkdir(segment, dir_fd=above)


@contextmanager
def _unfinished(above: int, name: str) -> Generator[tuple[int, str]]:
    """Yield a new file with a name that only half-written files have, and that name. Remove it after an error."""
    file, unfinished = next(filter(None, (_new(above, f"{name}#{number}") for number in count(1))))
    try:
        yield file, unfinished
    except BaseException:  # Whatever the caller's chunks raise, also an interrupt.
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=above)
        raise
    finally:
        os.close(file)


def _new(above: int, name: str) -> tuple[int, str] | None:
    """Make a file. Return None if it exists: another process writes it, or was killed."""
    with suppress(FileExistsError):
        return os.open(name, _NEW, 0o666, dir_fd=above), name
    return None
