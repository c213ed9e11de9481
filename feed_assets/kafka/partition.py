"""One topic partition that this process has: from messages to chunks that are there and signalled.

A chunk is put, then signalled, one after another. A kill before the signal leaves a file that nobody knows of, which is
cut again as it is; a kill after it leaves nothing. Nothing else is kept anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import IO

from confluent_kafka import Consumer, TopicPartition

from feed_assets.core.chunks import key_of
from feed_assets.core.errors import LogTrimmed
from feed_assets.core.topics import Topic, signals_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import dialect, files, signals
from feed_assets.kafka.clients import SECONDS, Clients, translated
from feed_assets.kafka.cutter import Chunk, Cutter
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import Message
from feed_assets.kafka.schemas import Schemas
from feed_assets.kafka.signals import Signal, Signals, minute_of

_IN_MEMORY = 256 << 10
"""Bytes of an open chunk that are in memory; the rest is on disk."""


def _silent(_: str) -> None:
    pass


@dataclass(frozen=True)
class Chunking:
    """What all topic partitions of a process share. `on_step` is told of what is about to be done."""

    clients: Clients
    schemas: Schemas
    board: Blackboard
    on_step: Callable[[str], None] = field(default=_silent)


class Partition:
    """A topic partition that is read from where its signals end. Whoever had it before can signal no more."""

    def __init__(self, chunking: Chunking, reader: Consumer, name: str, number: int, topic: Topic) -> None:
        self._chunking, self.name, self.number, self._topic = chunking, name, number, topic
        schema_id = chunking.schemas.register(f"{signals_of(name)}-value", signals.SCHEMA)
        self._signals = Signals(chunking.clients, name, number, schema_id)  # First: then what is read stays the last.
        self.start = self._begin(reader)
        left = files.left(chunking.board, self._key(self.start))
        self._replaces, until = left is not None, files.end_of(left, is_packed=topic.gzip)
        self._decode = Decoder(topic, chunking.schemas)
        self._cutter = Cutter(self.start, topic, until, _body)

    @property
    def next_offset(self) -> int:
        """The first offset that was not read."""
        return self._cutter.next

    def take(self, message: Message, now: float) -> list[Signal]:
        """Take a message, and what was signalled of it."""
        return [self._keep(chunk) for chunk in self._cutter.add(self._decode(message), now)]

    def look(self, now: float) -> list[Signal]:
        """Signal the open chunk, if its time is over."""
        due = self._cutter.due(now)
        return [self._keep(due)] if due else []

    def drop(self) -> None:
        """Forget what is not signalled."""
        self._cutter.drop()

    def _begin(self, reader: Consumer) -> int:
        with translated(f"read {self.name}/{self.number}"):
            low, high = reader.get_watermark_offsets(TopicPartition(self.name, self.number), timeout=SECONDS)
        found = signals.last(reader, self.name, self.number)
        if found is None:
            return low
        if not low <= found.next_offset <= high:
            raise trimmed(self.name, self.number, found.next_offset, low, high)
        return found.next_offset

    def _keep(self, chunk: Chunk) -> Signal:
        """Put a chunk, then signal it: in this order, as whoever reads the signal reads the file."""
        signal, content = self._signal(chunk)
        self._chunking.on_step("put")
        if chunk.content:
            self._put(chunk.offsets.start, content)
        self._chunking.on_step("signal")
        self._signals.write(signal, chunk.dead)
        self._chunking.on_step("signalled")
        return signal

    def _put(self, start: int, content: bytes) -> None:
        board, replaces = self._chunking.board, self._replaces and start == self.start
        files.put(board, self._key(start), content, replaces=replaces)

    def _signal(self, chunk: Chunk) -> tuple[Signal, bytes]:
        content = files.packed(chunk.content) if self._topic.gzip else chunk.content
        start, end = chunk.offsets
        path = f"{self._chunking.board.url}/{files.FOLDER}/{self._key(start)}" if chunk.content else None
        signal = Signal(
            topic=self.name,
            partition=self.number,
            first_offset=start,
            last_offset=end - 1,
            records=chunk.records,
            dead_letters=len(chunk.dead),
            dialect=dialect.NAME,
            path=path,
            size=len(content) if path else 0,
            sha256=sha256(content).hexdigest() if path else None,
            schema_id=chunk.schema_id,
            minutes={minute_of(minute): count for minute, count in sorted(chunk.minutes.items())},
        )
        return signal, content

    def _key(self, start: int) -> str:
        return key_of(self.name, self.number, start, is_packed=self._topic.gzip)


def _body() -> IO[bytes]:
    return SpooledTemporaryFile(_IN_MEMORY)


def trimmed(name: str, number: int, start: int, low: int, high: int) -> LogTrimmed:
    """The error where the broker has not what comes next of a topic partition."""
    lost = "has no longer" if start < low else "has never had"
    return LogTrimmed(
        f"{name}/{number} is to be read from offset {start} on, which the broker {lost}: expected it within {low} to "
        f"{high}. Set its retention higher than the longest stop. To go on with what is there delete the topic "
        f"{signals_of(name)}, and move away the chunks of {name}."
    )
