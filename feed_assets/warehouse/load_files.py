"""The files of a load: local copies of chunks, checked against their signals, and manifests that list the chunks."""

import gzip
import json
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from feed_assets.core.chunks import PARQUET, ending_of
from feed_assets.core.errors import ChunkBroken, DiskFull
from feed_assets.core.feeds import File
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect
from feed_assets.kafka.chunk_files import dialect_of, packed, signalled_key
from feed_assets.warehouse.load_groups import LoadGroup
from feed_assets.warehouse.shapes import OFFSET

if TYPE_CHECKING:
    from feed_assets.kafka.signal_message import Signal

FOLDER = "manifests"
"""Prefix of the keys of manifests on the blackboard."""

_AT_ONCE = 8
"""Chunks that are copied or checked at the same time, because a store answers slowly."""


class Copy(NamedTuple):
    """A chunk in a local file: lines without the header, or Parquet. `file` describes the object as it was copied."""

    partition: int
    columns: tuple[str, ...]
    path: Path
    file: File
    schema_id: int | None = None
    """The schema of its group in the load. None if the group has only tombstones, or the rows are a dataset's."""
    types: tuple[str, ...] = ()
    """Arrow's names of the columns' types in Parquet; () for lines, which are texts."""

    @property
    def ending(self) -> str:
        """Return the ending of the object's key."""
        return ending_of(self.file.key)

    @property
    def is_packed(self) -> bool:
        """Return whether the object is compressed. The copy never is."""
        return self.file.key.endswith(".gz")


class ChunkGroup(NamedTuple):
    """Input of one statement, and the URL of its manifest.

    The chunks have one partition, schema and format, and the same columns of the same types.
    """

    partition: int
    columns: tuple[str, ...]
    copies: tuple[Copy, ...]
    manifest: str

    @property
    def schema_id(self) -> int | None:
        """Return the schema of the chunks, as `Copy` has it."""
        return self.copies[0].schema_id

    @property
    def is_packed(self) -> bool:
        """Return whether the objects of the chunks are compressed."""
        return self.copies[0].is_packed

    @property
    def types(self) -> tuple[str, ...]:
        """Return the types of the columns, as `Copy` has them."""
        return self.copies[0].types


@contextmanager
def room() -> Generator[Path]:
    """Yield a local folder for copies of the chunks that one load reads.

    The folder is removed at the end of the block. Raise DiskFull if the disk has no room for the copies.
    """
    try:
        with TemporaryDirectory(prefix="feed-assets-") as folder:
            yield Path(folder)
    except OSError as error:
        problem = f"cannot keep the copies of a load on this machine: {error.strerror or error}"
        advice = "Make room for everything that is loaded at once, set TMPDIR, or load fewer chunks at once"
        raise DiskFull(f"{problem}. {advice}.") from error


def batches(board: Blackboard, topic: str, copies: Sequence[Copy]) -> list[ChunkGroup]:
    """Group the copies for the statements of a load. Write a manifest for each group, under a unique key.

    The order of rows in the staging table does not matter. So chunks of schemas that alternate need few statements.
    """
    by_statement: dict[tuple[object, ...], list[Copy]] = {}
    for each in copies:
        place = each.partition, each.schema_id
        by_statement.setdefault((*place, each.columns, each.types, each.is_packed), []).append(each)
    chunk_groups = list[ChunkGroup]()
    for chunks in by_statement.values():
        key = f"{FOLDER}/{topic}/{uuid4().hex}.json"
        board.put(key, manifest(board, chunks))
        partition, columns = chunks[0].partition, chunks[0].columns
        chunk_groups.append(ChunkGroup(partition, columns, tuple(chunks), f"{board.url}/{key}"))
    return chunk_groups


def manifest(board: Blackboard, copies: Sequence[Copy]) -> bytes:
    """Return the manifest of some copies for Redshift's COPY. With it, a missing file makes the load fail."""
    entries = [
        {"url": f"{board.url}/{each.file.key}", "mandatory": True, "meta": {"content_length": each.file.size}}
        for each in copies
    ]
    return json.dumps({"entries": entries}, indent=1).encode()


def fetch(
    board: Blackboard, groups: Sequence[LoadGroup], folder: Path, refused: Collection[int | None] = ()
) -> list[Copy]:
    """Copy the chunks of groups to a local folder. Each signal announces one chunk.

    A chunk with only tombstones gets its group's schema, unless that is one of the `refused` schemas. Raise ChunkBroken
    if a chunk differs from its signal.
    """
    signals = [(group.schema_id, each.signal) for group in groups for each in group.signals if each.signal.path]
    pairs = [(signal.schema_id if schema_id in refused else schema_id, signal) for schema_id, signal in signals]
    schema_ids, announced = [schema_id for schema_id, _ in pairs], [signal for _, signal in pairs]
    targets = [folder / str(number) for number in range(len(pairs))]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [*pool.map(partial(_fetched, board), schema_ids, announced, targets)]


def without(board: Blackboard, topic: str, copy: Copy, offsets: Collection[int]) -> Copy:
    """Write a new object beside the manifests: the chunk without the rows of some offsets.

    Return `copy` with the new object as its file.
    """
    data, key = _without(copy, offsets), f"{FOLDER}/{topic}/{uuid4().hex}{copy.ending}"
    board.put(key, data)
    return copy._replace(file=File(key, len(data)))


def _without(copy: Copy, offsets: Collection[int]) -> bytes:
    if copy.types:
        from feed_assets.kafka import parquet_chunks

        return parquet_chunks.without(copy.path, offsets)
    at = copy.columns.index(OFFSET)  # No column before OFFSET has a value with a comma.
    kept = [each for each in dialect.lines(copy.path.read_bytes()) if int(each.split(b",", at + 1)[at]) not in offsets]
    content = b"".join([dialect.line(copy.columns), *kept])
    return packed(content) if copy.is_packed else content


def check_unchanged(board: Blackboard, copies: Sequence[Copy]) -> None:
    """Raise ChunkBroken for a chunk whose object has changed since it was copied.

    Call this after the warehouse has read the objects. If the objects are unchanged, the warehouse has read the content
    that was checked.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        files = [*pool.map(board.file, [each.file.key for each in copies])]
    for was, now in zip([each.file for each in copies], files, strict=True):
        if now != was:
            problem = "no longer exists" if now is None else f"has {now.size} bytes and the ETag {now.etag}"
            expected = f"expected {was.size} and {was.etag}, as before the load"
            raise ChunkBroken(f"{board.url}/{was.key} {problem}: {expected}. Put it back as it was.")


def _fetched(board: Blackboard, schema_id: int | None, signal: "Signal", target: Path) -> Copy:
    file, served = _served(board, signal)
    parts = _checked(signal, served)
    if ending_of(str(signal.path)) == PARQUET:
        return _parquet(signal, schema_id, file, parts, target)
    if str(signal.path).endswith(".gz"):  # Decompress only after the digests of all parts were checked.
        parts = iter([gzip.decompress(b"".join(parts))])
    head, begin = _head(parts)
    with target.open("wb") as lines:
        lines.writelines(chain([begin], parts))
    (columns,) = dialect.read(head + b"\n")
    return Copy(signal.partition, tuple(map(str, columns)), target, file, schema_id)


def _parquet(signal: "Signal", schema_id: int | None, file: File, parts: Iterable[bytes], target: Path) -> Copy:
    """Copy a chunk in Parquet as it is. Raise ChunkBroken if it does not have the rows of its signal."""
    # Import it here, because it takes 60 MB of memory, which loads of chunks in CSV do not need.
    from feed_assets.kafka import parquet_chunks

    with target.open("wb") as content:
        content.writelines(parts)
    try:
        rows, types = parquet_chunks.layout(target)
    except ValueError as error:
        raise ChunkBroken(f"{signal.path} cannot be read: {error}. Put it back as it was.") from error
    if rows != signal.records or OFFSET not in types:
        expected = f"expected {signal.records} with {OFFSET}, as signalled"
        raise ChunkBroken(f"{signal.path} has {rows} rows with {', '.join(types):.200}: {expected}.")
    return Copy(signal.partition, (*types,), target, file, schema_id, types=(*types.values(),))


def _head(parts: Iterator[bytes]) -> tuple[bytes, bytes]:
    """Return the first line, and the rest of the part in which the line ends."""
    head = b""
    for part in parts:
        line_part, end, begin = part.partition(b"\n")
        head += line_part
        if end:
            return head, begin
    return head, b""


def _served(board: Blackboard, signal: "Signal") -> tuple[File, Iterator[bytes]]:
    """Return the object with a chunk's rows, and the object's content in parts.

    Raise ChunkBroken if the object is missing. Raise it also if the signal names another path than these settings give,
    or a dialect that is not ours.
    """
    path = str(signal.path)
    key = signalled_key(signal.topic, signal.partition, signal.first_offset, path)
    name = dialect_of(ending_of(path))
    if signal.dialect != name or path != f"{board.url}/{key}":
        expected = f"expected {name} at {board.url}/{key}"
        raise ChunkBroken(f"{path} is a chunk of the dialect {signal.dialect}: {expected}. Correct the settings.")
    served = board.stream(key)
    if served is None:
        raise ChunkBroken(f"{path} is missing: expected {signal.size} bytes, as signalled. Put it back as it was.")
    return served


def _checked(signal: "Signal", parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts of a chunk. After the last one, raise ChunkBroken if they differ from the signal."""
    size, digest = 0, sha256()
    for part in parts:
        size += len(part)
        digest.update(part)
        yield part
    if (hex_digest := digest.hexdigest()) != signal.sha256 or size != signal.size:
        expected = f"expected {signal.size} and {signal.sha256}, as signalled"
        raise ChunkBroken(
            f"{signal.path} has {size} bytes and the digest {hex_digest}: {expected}. Put it back as it was."
        )
