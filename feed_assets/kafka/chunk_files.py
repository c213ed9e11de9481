"""Files of chunks on the blackboard, below `chunks/`. A chunk never changes after it is signalled.

A process may still write a chunk after another process has fenced it off. So a file is written with a conditional
create, which succeeds only once per key. If a partition has a chunk without a signal when it is opened, the same chunk
is cut again. The file is replaced only if that is impossible, because the topic's settings have changed or the file is
not a chunk.
"""

import gzip
import zlib
from collections import deque
from collections.abc import Mapping
from typing import Any

from feed_assets.core.chunks import PACKED_CSV, PARQUET, ending_of, key_of
from feed_assets.core.errors import ChunkDiffers
from feed_assets.core.topics import Topic
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect

FOLDER = "chunks"
"""Prefix of the keys of chunks on the blackboard."""

PARQUET_NAME = "feed_assets/parquet/1"
"""Name of chunks in Parquet in signals. If a type or a text in them changes, they get a new name."""


def signalled_key(topic: str, partition: int, first_offset: int, path: str) -> str:
    """Return the key of the chunk file that a signal announces. It has the ending of the signal's `path`."""
    return f"{FOLDER}/{key_of(topic, partition, first_offset, ending_of(path))}"


def dialect_of(ending: str) -> str:
    """Return the name by which signals call the content of a chunk's file."""
    return PARQUET_NAME if ending == PARQUET else dialect.NAME


def stored(lines: bytes, topic: Topic, record: Mapping[str, Any] | None) -> bytes:
    """Return the content of a chunk's file, made of its lines. `record` has the columns' types, for Parquet alone.

    `record` is the Avro type of the rows; None if all are tombstones.
    """
    if topic.ending != PARQUET:
        return packed(lines) if topic.gzip else lines
    # Import it here, because it takes 60 MB of memory, which processes that only have chunks in CSV do not need.
    from feed_assets.kafka import parquet_chunks

    return parquet_chunks.written(lines, record or {"fields": ()}) if lines else lines


def packed(content: bytes) -> bytes:
    """Return the content compressed by gzip, without a timestamp. So one zlib version always makes the same bytes."""
    return gzip.compress(content, mtime=0)


def content_of(board: Blackboard, key: str) -> bytes | None:
    """Return the content of a chunk's file; None if the file is missing."""
    return board.get(f"{FOLDER}/{key}")


def end_of(content: bytes | None, ending: str) -> int:
    """Return the offset after the last record of a chunk; 0 if `content` is not a chunk."""
    if ending == PARQUET:
        from feed_assets.kafka import parquet_chunks

        return parquet_chunks.end_of(content or b"")
    lines = gzip.decompress if ending == PACKED_CSV else bytes
    try:
        (last,) = deque(dialect.read(lines(content or b"")), maxlen=1)
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
        raise ChunkDiffers(
            f"another process has written {path} meanwhile, or its signal is lost: the signals are read again first."
        )
    board.put(path, content)
