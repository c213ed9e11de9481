"""One topic partition that this process reads: its messages become chunks that are written and signalled.

Chunks are written and signalled one after another. A kill before the signal leaves a file without a signal, and the
next process cuts the same chunk again. A kill after the signal lets the next process continue with the next chunk.
The connector has no state besides files and signals.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from confluent_kafka import Consumer, TopicPartition

from feed_assets.core.chunks import key_of
from feed_assets.core.errors import LogTrimmed, SignalsLost
from feed_assets.core.topics import Topic, signals_of
from feed_assets.kafka import chunk_files, signal_message, signals
from feed_assets.kafka.clients import SECONDS, translated
from feed_assets.kafka.companion_topics import About
from feed_assets.kafka.messages import Message
from feed_assets.kafka.offset_range import Chunking, ChunkWriter, Kept, PartitionOfTopic
from feed_assets.kafka.signal_message import Signal
from feed_assets.kafka.signals import Signals
from feed_assets.kafka.topic_identity import id_of

_AT_ONCE = 16
"""Producers that are created at the same time."""


def schema_id_of(chunking: Chunking, topic: str) -> int:
    """Return the schema id of a topic's signals. It is registered first. Raise SchemaRefused and KafkaUnavailable."""
    return chunking.schemas.register(f"{signals_of(topic)}-value", signal_message.SCHEMA)


def signalling(
    chunking: Chunking, places: Sequence[PartitionOfTopic], about: Mapping[str, About], ids: Mapping[str, int]
) -> list[Signals]:
    """Return a signal writer for each topic partition. Earlier writers can no longer write.

    `about` has what the broker says about each topic, and `ids` the schema ids of their signals. Writers are created in
    parallel, because a broker may delay each writer by up to a second. Raise FencedOff and KafkaUnavailable.
    """

    def writer_of(place: PartitionOfTopic) -> Signals:
        return Signals(chunking.clients, place.topic, place.number, ids[place.topic], about[place.topic])

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [*pool.map(writer_of, places)]


class PartitionReader:
    """Reader of a topic partition. It starts at the first offset that no signal covers.

    A signal is the message that announces a chunk. `signalling` locks out earlier writers of this partition's signals,
    so no other process can add signals meanwhile.
    """

    def __init__(self, chunking: Chunking, reader: Consumer, signalling: Signals, topic: Topic) -> None:
        self._chunking, self._signals = chunking, signalling
        self.place = PartitionOfTopic(signalling.topic, signalling.partition)
        self.start = self._begin(reader)
        leftover = chunk_files.content_of(chunking.board, key_of(*self.place, self.start, topic.ending))
        self.until = chunk_files.end_of(leftover, topic.ending)
        """The end of the first chunk, if its file exists without a signal; else 0."""
        replaces = leftover is not None
        self._chunks = ChunkWriter(chunking, self.place, topic, self.start, self.until, replaces=replaces)
        self._end = 0

    @property
    def next_offset(self) -> int:
        """Return the first offset that was not taken yet."""
        return self._chunks.next_offset

    @property
    def unread_from(self) -> int:
        """Return the first offset that may have a message that was not taken yet."""
        return max(self.next_offset, self._end)

    def reach(self, end: int) -> None:
        """Note that no message before `end` is left. Ends of transactions take offsets, too."""
        self._end = end

    @property
    def costly(self) -> int:
        """Return how many messages changed the schema, were slow to process, or were far longer as CSV lines."""
        return self._chunks.costly

    def take(self, message: Message) -> Iterator[Signal]:
        """Take a message. Yield the signals that announce the chunks that end before or with this message.

        A signal is written only when the caller takes it from the iterator.
        """
        return self.write(self._chunks.take(message))

    def look(self, now: float) -> Iterator[Signal]:
        """Signal the open chunk if it has been open for as long as the topic allows."""
        return self.write(self._chunks.look(now))

    def write(self, chunks: Iterable[Kept]) -> Iterator[Signal]:
        """Signal chunks whose files are already written, so that readers of a signal always find its file.

        Each step of the iterator may raise SignalRefused. It raises LogTrimmed if the topic was recreated since this
        reader began.
        """
        return map(self._write, chunks)

    def drop(self) -> None:
        """Discard the chunk that is being filled. Its messages have no signal, so they will be read again."""
        self._chunks.close()

    def _begin(self, reader: Consumer) -> int:
        """Return the first offset that no signal covers. Raise LogTrimmed if the broker no longer has it."""
        name, number = self.place
        with translated(f"read {name}/{number}"):
            low, high = reader.get_watermark_offsets(TopicPartition(name, number), timeout=SECONDS)
        signal = signals.last(reader, name, number)
        if signal is None:
            if number:
                self._refuse_recreated(reader)
            return low
        refuse_another(self.place, signal, self._signals.topic_id, high)
        if signal.next_offset < low:
            raise trimmed(self.place, signal.next_offset, low, high)
        return signal.next_offset

    def _refuse_recreated(self, reader: Consumer) -> None:
        """Raise LogTrimmed if partition 0 has signals of a deleted topic.

        A topic that was recreated may have more partitions than before, and these have no signals yet.
        """
        first = None
        with suppress(SignalsLost):  # A signal of somebody else stops partition 0 alone.
            first = signals.last(reader, self.place.topic, 0)
        if first is not None and first.topic_id != self._signals.topic_id:
            raise _another(PartitionOfTopic(self.place.topic, 0), first.next_offset)

    def _write(self, kept: Kept) -> Signal:
        self._chunking.on_step("signal")
        self._refuse_another(kept.signal.first_offset)
        self._signals.write(*kept)
        self._chunking.on_step("signalled")
        return kept.signal

    def _refuse_another(self, upto: int) -> None:
        """Raise LogTrimmed if the topic was recreated. No id is used twice, so the same id means the same topic."""
        name = self.place.topic
        with translated(f"describe {name}", self._chunking.admin):
            topic_id = id_of(self._chunking.admin, name)
        if topic_id != self._signals.topic_id:
            raise _another(self.place, upto)


def refuse_another(place: PartitionOfTopic, last: Signal, topic_id: str, high: int) -> None:
    """Raise LogTrimmed if the last signal is about a deleted topic, which was recreated under the same name."""
    if last.topic_id != topic_id or last.next_offset > high:
        raise _another(place, last.next_offset)


def _another(place: PartitionOfTopic, upto: int) -> LogTrimmed:
    name = place.topic
    return LogTrimmed(
        f"{place} is signalled up to offset {upto} of a topic that is gone: expected the same topic, but "
        f"{name} was deleted and recreated. Its offsets begin again: delete the topic {signals_of(name)}, move away "
        f"the chunks of {name}, and declare it as another table. The data read from the old topic stay."
    )


def trimmed(place: PartitionOfTopic, start: int, low: int, high: int) -> LogTrimmed:
    """Return the error for a topic partition whose next messages the broker has removed."""
    return LogTrimmed(
        f"{place} is to be read from offset {start} on, which the broker has removed: expected it within {low} to "
        f"{high}. Set its retention higher than the longest stop. To continue with the remaining messages, delete the "
        f"topic {signals_of(place.topic)}, and move away the chunks of {place.topic}."
    )
