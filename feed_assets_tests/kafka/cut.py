"""Decoded messages made by hand, and chunks that a cutter makes of them."""

from feed_assets.core.topics import Topic
from feed_assets.kafka import dialect
from feed_assets.kafka.cutter import Chunk, Cutter
from feed_assets.kafka.messages import OFFSET, OPERATION, ChunkRow, DeadLetter, Headers, Message, Tombstone

TEN = Topic(key=("id",), messages=10, seconds=60)


def row(offset: int, schema_id: int = 1) -> ChunkRow:
    columns = (OPERATION, OFFSET, "id", *(f"v{number}" for number in range(schema_id)))
    return ChunkRow(offset, schema_id, columns, dialect.line(["update", offset, f"k{offset}", *range(schema_id)]))


def tombstone(offset: int) -> Tombstone:
    return Tombstone(offset, {"id": f"k{offset}"})


def dead(offset: int, size: int = 1, headers: Headers = ()) -> DeadLetter:
    return DeadLetter(Message(offset, None, b"x" * size, headers), "no Avro")


def cut(cutter: Cutter, *messages, now: float = 0) -> list[Chunk]:
    return [chunk for message in messages for chunk in cutter.add(message, now)]


def said(chunks: list[Chunk]) -> list[tuple[int, int, int, int | None]]:
    """Return start, end, records and schema of each chunk."""
    return [(*each.offsets, each.records, each.schema_id) for each in chunks]


def lines(chunk: Chunk) -> list[list[str | None]]:
    return [*dialect.read(chunk.content)]
