"""Chunks on the blackboard, below `chunks/`: written once, and never again once they are signalled.

Whoever was put out by another process may wake up and write what it had cut. So a chunk is created, and the store lets
only one do so. What is there unsignalled as a topic partition is opened is cut again as it is; only if it cannot be, as
its topic has another key or operation now, or it is no chunk, it is replaced.
"""

import gzip
import zlib
from collections import deque

from feed_assets.core.errors import ChunkDiffers
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect

FOLDER = "chunks"
"""What the keys of chunks begin with on the blackboard."""


def packed(content: bytes) -> bytes:
    """The content by gzip, without the time: the same bytes whenever the same version of zlib packs them."""
    return gzip.compress(content, mtime=0)


def left(board: Blackboard, key: str) -> bytes | None:
    """What is there under the key of a chunk."""
    return board.get(f"{FOLDER}/{key}")


def end_of(found: bytes | None, *, is_packed: bool) -> int:
    """The offset behind the last record of a chunk; 0 of what is none."""
    try:
        (last,) = deque(dialect.read(gzip.decompress(found or b"") if is_packed else found or b""), maxlen=1)
        return int(last[1] or "") + 1
    except (ValueError, IndexError, EOFError, OSError, zlib.error):
        return 0


def put(board: Blackboard, key: str, content: bytes, *, replaces: bool) -> None:
    """Write a chunk, unless it is there just like this.

    Raises ChunkDiffers where another process has written another one, unless it may be replaced.
    """
    path = f"{FOLDER}/{key}"
    if board.create(path, content) or board.get(path) == content:
        return
    if not replaces:
        raise ChunkDiffers(f"another process has written {path} meanwhile: what it has signalled is read first.")
    board.put(path, content)
