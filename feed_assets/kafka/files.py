"""Chunks on the blackboard, below `chunks/`: written once, and never again once they are signalled.

Whoever was put out by another process may wake up and write what it had cut. So a chunk is created, and the store lets
only one do so; what lies there unsignalled is cut again as it is (`left_end`), and is overwritten only by who finds
that it cannot be (the settings of its topic are others now).
"""

import gzip
import zlib

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect

FOLDER = "chunks"
"""What the keys of chunks begin with on the blackboard."""


def packed(content: bytes) -> bytes:
    """The content by gzip, without the time: the same bytes whenever the same version of zlib packs them."""
    return gzip.compress(content, mtime=0)


def put(board: Blackboard, key: str, content: bytes) -> None:
    """Write a chunk, unless it is there just like this."""
    path = f"{FOLDER}/{key}"
    if not board.create(path, content) and board.get(path) != content:
        board.put(path, content)


def left_end(board: Blackboard, key: str) -> int:
    """The offset behind the last record of a chunk that nobody has signalled; 0 if there is none that can be read."""
    content = board.get(f"{FOLDER}/{key}")
    try:
        unpacked = gzip.decompress(content or b"") if key.endswith(".gz") else content or b""
        *_, last = dialect.read(unpacked)
        return int(last[1] or "") + 1
    except (ValueError, IndexError, EOFError, zlib.error, gzip.BadGzipFile):
        return 0
