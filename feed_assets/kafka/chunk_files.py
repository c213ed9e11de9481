"""Chunks on the blackboard, below `chunks/`: written once, and never again once they are signalled.

A process that was fenced off may still write what it had cut. So a chunk is created, which the store allows only once.
An unsignalled chunk that a topic partition has when it is opened is cut again as it is. It is replaced only if that
cannot be done: its topic has another key or operation now, or it is no chunk.
"""

import gzip
import zlib
from collections import deque

from feed_assets.core.errors import ChunkDiffers
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect

FOLDER = "chunks"
"""Prefix of the keys of chunks on the blackboard."""


def packed(content: bytes) -> bytes:
    """Return the content by gzip, without the time: the same version of zlib always makes the same bytes."""
    return gzip.compress(content, mtime=0)


def content_of(board: Blackboard, key: str) -> bytes | None:
    """Return the content under the key of a chunk; None if there is none."""
    return board.get(f"{FOLDER}/{key}")


def end_of(content: bytes | None, *, is_packed: bool) -> int:
    """Return the offset behind the last record of a chunk; 0 if `content` is no chunk."""
    try:
        (last,) = deque(dialect.read(gzip.decompress(content or b"") if is_packed else content or b""), maxlen=1)
        return int(last[1] or "") + 1
    except (ValueError, IndexError, EOFError, OSError, zlib.error):
        return 0


def put(board: Blackboard, key: str, content: bytes, *, replaces: bool) -> None:
    """Write a chunk, unless the same one is there.

    Raise ChunkDiffers if another process has written another one, unless it may be replaced.
    """
    path = f"{FOLDER}/{key}"
    if board.create(path, content) or board.get(path) == content:
        return
    if not replaces:
        raise ChunkDiffers(f"another process has written {path} meanwhile: what it has signalled is read first.")
    board.put(path, content)
