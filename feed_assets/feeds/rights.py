"""Rights of what another process writes for us on a local blackboard: those of what this process writes there itself.

A JVM of ours makes every file for its user alone, scratch files above all. Parts of feeds are read by others where the
umask of the run's own process lets them.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from feed_assets.feeds import local_disk
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import local_root

_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PROBE = ".rights"
_OTHERS = 0o077


@contextmanager
def written_by_another(board: Blackboard, prefix: str) -> Generator[None]:
    """Have files that another process writes under a new prefix in the block end with the rights of our own files.

    Raises InvalidName if a link stands where a folder above them is.
    """
    root = local_root(board.url)
    if not root or not root.is_dir():
        yield
        return
    local_disk.check_writable(root, prefix)
    (root / prefix).parent.mkdir(parents=True, exist_ok=True)
    yield
    _share(root, prefix)


def _share(root: Path, prefix: str) -> None:
    """Give a folder and its files our rights, where others have none; what is another user's keeps its own."""
    with local_disk.folder(root, prefix.split("/")) as opened:
        mode = _mode_of_files(opened)
        if not mode & _OTHERS:
            return
        with os.scandir(opened) as found:
            names = [each.name for each in found]
        for name in names:
            with suppress(FileNotFoundError):
                file = os.open(name, _FILE, dir_fd=opened)
                try:
                    _widen(file, mode)
                finally:
                    os.close(file)
        _widen(opened, mode | (mode & 0o444) >> 2)


def _mode_of_files(folder: int) -> int:
    """Return the rights of a file that this process makes in a folder: by its umask, or by the folder's own rules."""
    file = os.open(_PROBE, _NEW, 0o666, dir_fd=folder)
    try:
        return stat.S_IMODE(os.fstat(file).st_mode)
    finally:
        os.close(file)
        os.unlink(_PROBE, dir_fd=folder)


def _widen(file: int, mode: int) -> None:
    status = os.fstat(file)
    if status.st_uid == os.geteuid() and not status.st_mode & _OTHERS:
        os.fchmod(file, stat.S_IMODE(status.st_mode) | mode)
