"""Take a topic's lag as it is found, then end: the connector's own partitions, without its group.

Files, signals and transactional ids are the service's: of the two, whoever opens a partition last is the only one who
can signal it. Killed anywhere, it goes on from the last signal the next time, as the service does.
"""

from contextlib import closing
from math import inf
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.topics import Topic
from feed_assets.kafka import log, topics
from feed_assets.kafka.clients import SECONDS, translated
from feed_assets.kafka.log import message_of
from feed_assets.kafka.partition import Chunking, Partition, trimmed
from feed_assets.kafka.signals import Signal


def catch_up(chunking: Chunking, name: str, topic: Topic) -> list[Signal]:
    """Keep and signal the chunks of what a topic has now; the last one of each partition ends where the topic does.

    Raises KafkaUnavailable, NoTopic, FencedOff, LogTrimmed and SignalsLost.
    """
    with closing(chunking.clients.reader()) as reader, translated(f"catch up with {name}"):
        numbers = log.partitions(reader, name)
        topics.prepare(chunking.clients.admin(), name)
        opened = {each: Partition(chunking, reader, name, each, topic) for each in numbers}
        taking = _Taking(reader, name, opened)
        try:
            return taking.all()
        finally:
            for each in opened.values():
                each.drop()


class _Taking:
    """The partitions of a topic while they are read; `left` says where those end that have not come to it."""

    def __init__(self, reader: Consumer, name: str, opened: dict[int, Partition]) -> None:
        self._reader, self._name, self._opened = reader, name, opened
        ends = {each: reader.get_watermark_offsets(self._place(each), timeout=SECONDS)[1] for each in opened}
        self._left = {each: end for each, end in ends.items() if opened[each].start < end}
        self._signals = list[Signal]()
        self._heard = monotonic()

    def all(self) -> list[Signal]:
        """Read on until nothing is left; what was signalled."""
        self._reader.assign([self._place(each, self._opened[each].start) for each in self._left])
        while self._left:
            received = self._reader.poll(0.1)
            if received is not None:
                self._heard = monotonic()
                self._take(received)
            elif monotonic() > self._heard + SECONDS:
                raise KafkaUnavailable(f"cannot read {self._name}: no answer within {SECONDS:g} s. Check the broker.")
        return self._signals

    def _take(self, received: Received) -> None:
        number, error = received.partition() or 0, received.error()
        if number not in self._left:
            return
        if error is not None:
            self._heed(number, error)
        elif (received.offset() or 0) < self._left[number]:
            self._signals += self._opened[number].take(message_of(received), monotonic())
        if number in self._left and (received.offset() or 0) + 1 >= self._left[number]:
            self._end(number)

    def _heed(self, number: int, error: KafkaError) -> None:
        """An end may come before the one that was found, where a transaction has not ended."""
        if error.code() == KafkaError._PARTITION_EOF:
            self._end(number)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            found = self._reader.get_watermark_offsets(self._place(number), timeout=SECONDS)
            raise trimmed(self._name, number, self._opened[number].next_offset, *found)
        else:
            raise KafkaException(error)

    def _end(self, number: int) -> None:
        """Signal the open chunk: it ends early, and the next one where it would have, too."""
        del self._left[number]
        self._signals += self._opened[number].look(inf)
        self._reader.incremental_unassign([self._place(number)])

    def _place(self, partition: int, offset: int = 0) -> TopicPartition:
        return TopicPartition(self._name, partition, offset)
