"""Reader of one offset range from each of several partitions of a topic."""

from collections.abc import Iterator, Mapping
from time import monotonic
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received

from feed_assets.core.chunks import OffsetRange
from feed_assets.core.errors import KafkaUnavailable, LogTrimmed
from feed_assets.kafka.clients import SECONDS
from feed_assets.kafka.offset_range import PartitionOfTopic
from feed_assets.kafka.partition import trimmed
from feed_assets.kafka.topic_reader import Placed, message_of


class Reached(NamedTuple):
    """The offset up to which a partition was read: the range's end, or the beginning of an open transaction."""

    partition: int
    offset: int


def follow(reader: Consumer, topic: str, ranges: Mapping[int, OffsetRange]) -> Iterator[Placed | Reached]:
    """Yield the messages in each partition's range as they arrive, and `Reached` once per partition.

    Raise KafkaUnavailable if nothing arrives for a while, LogTrimmed if messages were removed, and KafkaException.
    """
    following = _Following(reader, topic, ranges)
    last_answer = monotonic()
    while following.unfinished:
        received = reader.poll(0.1)
        if received is not None:
            last_answer = monotonic()
            yield from following.take(received)
        elif monotonic() > last_answer + SECONDS:
            raise KafkaUnavailable(f"cannot read {topic}: no answer within {SECONDS:g} s. Check the broker.")


class _Following:
    """Progress by partition: `unfinished` has the ends of ranges that are not reached yet, `_next` the next offsets."""

    def __init__(self, reader: Consumer, topic: str, ranges: Mapping[int, OffsetRange]) -> None:
        self._reader, self._topic = reader, topic
        self.unfinished = {each: end for each, (start, end) in ranges.items() if start < end}
        self._next = {each: ranges[each].start for each in self.unfinished}
        reader.assign([TopicPartition(topic, *each) for each in self._next.items()])

    def take(self, received: Received) -> Iterator[Placed | Reached]:
        """Yield a message if it is in the range of its partition.

        Yield `Reached` if the range is complete, or if the partition ends.
        """
        number, error = received.partition() or 0, received.error()
        if number not in self.unfinished:
            return
        if error is not None:
            yield self._heed(number, error, received.offset() or 0)
            return
        message = message_of(received)
        self._next[number] = message.offset + 1
        if message.offset < self.unfinished[number]:
            yield Placed(number, message)
        if message.offset + 1 >= self.unfinished[number]:
            yield self._end(number, message.offset + 1)

    def _heed(self, number: int, error: KafkaError, offset: int) -> Reached:
        if error.code() == KafkaError._PARTITION_EOF:
            return self._end(number, offset)
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise self._trimmed(number)
        raise KafkaException(error)

    def _end(self, number: int, offset: int) -> Reached:
        self._reader.incremental_unassign([TopicPartition(self._topic, number)])
        return Reached(number, min(offset, self.unfinished.pop(number)))

    def _trimmed(self, number: int) -> LogTrimmed:
        bounds = self._reader.get_watermark_offsets(TopicPartition(self._topic, number), timeout=SECONDS)
        return trimmed(PartitionOfTopic(self._topic, number), self._next[number], *bounds)
