"""The files of a load: the manifest that names them, and local copies that are what their signals say."""

import gzip
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from feed_assets.core.errors import ChunkBroken, DiskFull
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect
from feed_assets.kafka.signals import Signal

FOLDER = "manifests"
"""What the keys of manifests begin with on the blackboard."""

_AT_ONCE = 8
"""Chunks that are copied at a time: each is in memory, and a store takes a while to answer."""


class Copy(NamedTuple):
    """The lines of a chunk, without that of the names, in a file of this machine."""

    partition: int
    columns: tuple[str, ...]
    path: Path


def manifest(signals: Iterable[Signal]) -> bytes:
    """What is loaded together, as Redshift's COPY reads it: a file that is not there fails the load."""
    entries = [
        {"url": each.path, "mandatory": True, "meta": {"content_length": each.size}} for each in signals if each.path
    ]
    return json.dumps({"entries": entries}, indent=1).encode()


def put_manifest(board: Blackboard, topic: str, signals: Iterable[Signal]) -> None:
    """Write the manifest of one load, under a key that no other has."""
    board.put(f"{FOLDER}/{topic}/{uuid4().hex}.json", manifest(signals))


def fetch(board: Blackboard, signals: Sequence[Signal], folder: Path) -> list[Copy]:
    """Copy chunks to a folder. Raises ChunkBroken for one that is not what its signal says, and DiskFull."""
    with_files = [each for each in signals if each.path]
    targets = [folder / f"{number}.csv" for number in range(len(with_files))]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [*pool.map(partial(_fetched, board), with_files, targets)]


def _fetched(board: Blackboard, signal: Signal, target: Path) -> Copy:
    content = _content(board, signal)
    head, _, lines = (gzip.decompress(content) if str(signal.path).endswith(".gz") else content).partition(b"\n")
    try:
        target.write_bytes(lines)
    except OSError as error:
        more = "It needs room for all chunks of a load: make some, set TMPDIR, or let fewer be loaded at once."
        raise DiskFull(f"cannot keep a copy of {signal.path} in {target.parent}: {error.strerror}. {more}") from error
    (columns,) = dialect.read(head + b"\n")
    return Copy(signal.partition, tuple(map(str, columns)), target)


def _content(board: Blackboard, signal: Signal) -> bytes:
    """A chunk as it lies there."""
    path = str(signal.path)
    if signal.dialect != dialect.NAME or not path.startswith(f"{board.url}/"):
        expected = f"expected {dialect.NAME} below {board.url}"
        raise ChunkBroken(f"{path} is a chunk of the dialect {signal.dialect}: {expected}. Correct the settings.")
    content = board.get(path.removeprefix(f"{board.url}/"))
    if content is None:
        raise ChunkBroken(f"{path} is not there: expected {signal.size} bytes, as signalled. Put it back as it was.")
    if (found := (len(content), sha256(content).hexdigest())) != (signal.size, signal.sha256):
        expected = f"expected {signal.size} and {signal.sha256}, as signalled"
        raise ChunkBroken(f"{path} has {found[0]} bytes and the digest {found[1]}: {expected}. Put it back as it was.")
    return content
