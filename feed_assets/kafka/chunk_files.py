"""Files of chunks on the blackboard, below `chunks/`. A chunk never changes after it is signalled.

A process may still write a chunk after another process has fenced it off. So a file is written with a conditional
create, which succeeds only once per key. If a partition has a chunk without a signal when it is opened, the same chunk
is cut again. The file is replaced only if that is impossible, because the topic's settings have changed or the file is
not a chunk.
"""

import gzip
import zlib
from collections import deque

from feed_assets.core.chunks import key_of
from feed_assets.core.errors import ChunkDiffers
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect

FOLDER = "chunks"
"""Prefix of the keys of chunks on the blackboard."""


def signalled_key(topic: str, partition: int, first_offset: int, path: str) -> str:
    """Return the key of the chunk file that a signal announces. It ends with `.gz` if the signal's `path` does."""
    return f"{FOLDER}/{key_of(topic, partition, first_offset, is_packed=path.endswith('.gz'))}"


def packed(content: bytes) -> bytes:
    """Return the content compressed by gzip, without a timestamp. So one zlib version always makes the same bytes."""
    return gzip.compress(content, mtime=0)


def content_of(board: Blackboard, key: str) -> bytes | None:
    """Return the content of a chunk's file; None if the file is missing."""
    return board.get(f"{FOLDER}/{key}")


def end_of(content: bytes | None, *, is_packed: bool) -> int:
    """Return the offset after the last record of a chunk; 0 if `content` is not a chunk."""
    try:
        (last,) = deque(dialect.read(gzip.decompress(content or b"") if is_packed else content or b""), maxlen=1)
        return int(last[1] or "") + 1
    except (ValueError, IndexError, EOFError, OSError, zlib.error):
        return 0


def put(board: Blackboard, key: str, content: bytes, *, replaces: bool) -> None:
    """Write a chunk's file, unless it exists with the same content.

    Raise ChunkDiffers if it exists with other content and may not be replaced.
    """
    path = f"{FOLDER}/{key}"
    if board.create(path, content) or board.get(path) == content:
        return
    if not replaces:
        raise ChunkDiffers(f"another process has written {path} meanwhile: its signals are read first.")
    board.put(path, content)
