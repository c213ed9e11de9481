"""A range of one topic partition: its messages become chunks that are written, but not signalled yet.

The connector, a run that catches up and Spark's executors use this code. So they write the same bytes to the same keys.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from time import monotonic, thread_time
from typing import IO, NamedTuple

from confluent_kafka.admin import AdminClient

from feed_assets.core.chunks import key_of
from feed_assets.core.topics import Topic
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import chunk_files
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.cutter import Chunk, Cutter
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Decoded, Message, Tombstone
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.signal_message import Signal, minute_of

_IN_MEMORY = 256 << 10
"""The most bytes of an open chunk in memory. A larger chunk is on disk."""

_LONG, _MUCH_LONGER = 1 << 20, 50
"""A message is costly if its line has more than `_LONG` bytes, and is `_MUCH_LONGER` times as long as the message.

That is possible, because one byte of a message may stand for an enum's symbol of 1,000 letters.
"""

SLOW_SECONDS = 0.005
"""A message is slow if it takes this many seconds of processor time, or more, to decode and cut it.

Most messages take less than 0.1 ms, but 10 kB may contain ten thousand small values.
"""


class PartitionOfTopic(NamedTuple):
    """A topic partition."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


class Kept(NamedTuple):
    """A chunk whose file is written: its signal and dead letters, which must still be published."""

    signal: Signal
    dead: tuple[DeadLetter, ...]


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class Chunking:
    """Clients and functions that all topic partitions of a process share.

    `on_step` is called before each step with the step's name. `clock` returns seconds, like `monotonic`.
    """

    clients: Clients
    schemas: Schemas
    board: Blackboard
    on_step: Callable[[str], None] = field(default=_silent)
    clock: Callable[[], float] = field(default=monotonic)
    mask_key: bytes = field(default=b"", repr=False)
    """The secret key of hashes in masked columns."""

    @cached_property
    def admin(self) -> AdminClient:
        """Return the client that requests descriptions of topics from the broker."""
        return self.clients.admin()


class ChunkWriter:
    """Cutter and writer of one topic partition's chunks from the offset `start` on.

    If `until` is greater than `start`, the first chunk ends at `until`. If `replaces` is True, the first chunk may
    replace an existing file that was not signalled.
    """

    def __init__(
        self,
        chunking: Chunking,
        place: PartitionOfTopic,
        topic: Topic,
        start: int,
        until: int = 0,
        *,
        replaces: bool = False,
    ) -> None:
        self._chunking, self._place, self._topic = chunking, place, topic
        self.start, self._replaces = start, replaces
        self._decode = Decoder(topic, chunking.schemas, chunking.mask_key)
        self._cutter = Cutter(start, topic, until, _body)
        self._slow = 0

    @property
    def next_offset(self) -> int:
        """Return the first offset that was not taken yet."""
        return self._cutter.next

    @property
    def costly(self) -> int:
        """Return how many messages changed the schema, were slow to process, or were far longer as CSV lines."""
        return self._cutter.changes + self._slow

    def take(self, message: Message) -> Iterator[Kept]:
        """Take a message, and yield the chunks that it ends. The caller must read the iterator to its end.

        A chunk's file is written only when the caller takes the chunk from the iterator. Raise SchemaRefused.
        """
        began = thread_time()
        decoded = self._decode(message)
        chunks = self._cutter.add(decoded, self._chunking.clock())
        length = _length_of(decoded)
        if thread_time() - began >= SLOW_SECONDS or (length > _LONG and length > _MUCH_LONGER * message.size):
            self._slow += 1
        yield from map(self._keep, chunks)

    def reach(self, offset: int) -> Iterator[Kept]:
        """Yield the chunks that end at or before an offset.

        Call this when no more messages before the offset can arrive.
        """
        return map(self._keep, self._cutter.reach(offset))

    def look(self, now: float) -> Iterator[Kept]:
        """Yield the chunk that is being filled if it has been open for as long as the topic allows."""
        return map(self._keep, filter(None, [self._cutter.due(now)]))

    def close(self) -> None:
        """Discard the open chunk, which has no file yet."""
        self._cutter.drop()

    def _keep(self, chunk: Chunk) -> Kept:
        content = chunk_files.stored(chunk.content, self._topic, chunk.record)
        self._chunking.on_step("put")
        if chunk.content:
            may_replace = self._replaces and chunk.offsets.start == self.start
            chunk_files.put(self._chunking.board, self._key(chunk.offsets.start), content, replaces=may_replace)
        return Kept(self._signal(chunk, content), chunk.dead)

    def _signal(self, chunk: Chunk, content: bytes) -> Signal:
        start, end = chunk.offsets
        path = f"{self._chunking.board.url}/{chunk_files.FOLDER}/{self._key(start)}" if chunk.content else None
        return Signal(
            topic=self._place.topic,
            partition=self._place.number,
            first_offset=start,
            last_offset=end - 1,
            records=chunk.records,
            dead_letters=len(chunk.dead),
            dialect=chunk_files.dialect_of(self._topic.ending),
            path=path,
            size=len(content) if path else 0,
            sha256=sha256(content).hexdigest() if path else None,
            schema_id=chunk.schema_id,
            minutes={minute_of(minute): count for minute, count in sorted(chunk.minutes.items())},
            snapshot_begins="begin" in chunk.markers,
            snapshot_ends="end" in chunk.markers,
        )

    def _key(self, start: int) -> str:
        return key_of(*self._place, start, self._topic.ending)


def _length_of(decoded: Decoded) -> int:
    """Return the bytes of a message's line; 0 for a dead letter, which has none."""
    if isinstance(decoded, ChunkRow):
        return len(decoded.line)
    return decoded.length if isinstance(decoded, Tombstone) else 0


def _body() -> IO[bytes]:
    return SpooledTemporaryFile(_IN_MEMORY)
