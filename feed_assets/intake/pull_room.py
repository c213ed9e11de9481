"""Disk space for pulled files. A file is copied only if enough space for the ledger and the spool remains."""

from pathlib import Path
from shutil import disk_usage
from tempfile import gettempdir

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.stores import local_root

RESERVE = 1 << 30
"""Free bytes that a pulled file must leave on each disk: the ledger and the spool need them."""


def lacking_room(size: int, board: Blackboard, last_reason: str | None) -> str | None:
    """Return why there is no room for a file of `size` bytes, or None if there is room.

    The file is copied into TMPDIR, and from there to our own blackboard, which may be on the same disk. If
    `last_reason` names the same need, return `last_reason`: only the free space differs, and a new text would cause a
    new alert.
    """
    root = local_root(board.url)
    needs = dict[int, int]()
    for folder in (folders := [Path(gettempdir()), *([root] if root and root.is_dir() else [])]):
        needs[_device(folder)] = needs.get(_device(folder), RESERVE) + size
    for folder in folders:
        need, free = needs[_device(folder)], disk_usage(folder).free
        if need > free:
            expected = (
                f"this machine has no room for it: expected {need:,} free bytes at {folder}, of which "
                f"{RESERVE >> 30} GiB are a reserve; found"
            )
            is_known = last_reason and last_reason.startswith(expected)
            return last_reason if is_known else f"{expected} {free:,}. Make room, or set TMPDIR to another disk"
    return None


def _device(folder: Path) -> int:
    return folder.stat().st_dev
