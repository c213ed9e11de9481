"""A call that makes chunks of all messages that a topic has now. It uses the connector's code, but no consumer group.

Files, signals and transactional ids are the same as those of the connector. If both run, only the process that opened a
partition last can write the partition's signals. After a kill at any point, the next call continues after the last
signal.
"""

from collections.abc import Iterable, Mapping
from contextlib import closing
from math import inf

from confluent_kafka import Consumer

from feed_assets.core.chunks import OffsetRange
from feed_assets.core.errors import ChunkDiffers, LogTrimmed, SchemaRefused, SignalRefused, SignalsLost
from feed_assets.core.topics import Topic
from feed_assets.kafka import companion_topics, spark_job, topic_reader
from feed_assets.kafka.clients import translated
from feed_assets.kafka.companion_topics import About
from feed_assets.kafka.offset_range import Chunking, PartitionOfTopic
from feed_assets.kafka.partition import PartitionReader, schema_id_of, signalling
from feed_assets.kafka.range_reader import Reached, follow
from feed_assets.kafka.registry_schemas import RegistryFails
from feed_assets.kafka.signal_message import Signal
from feed_assets.kafka.signals import Signals
from feed_assets.kafka.spark_job import Executors


def catch_up(chunking: Chunking, name: str, topic: Topic, executors: Executors | None = None) -> list[Signal]:
    """Write and signal chunks of all messages that a topic has now. Return the signals.

    Each partition's last chunk ends at the partition's present end. Raise KafkaUnavailable, NoTopic, FencedOff and
    Spark's errors. If a person must act on a partition, finish the other partitions first, and then raise LogTrimmed,
    SignalsLost, SchemaRefused or SignalRefused. The same holds if the registry fails with the schema of one message.
    """
    with closing(chunking.clients.reader()) as reader, translated(f"catch up with {name}"):
        ends = {number: end for number, (_, end) in topic_reader.bounds(reader, name).items()}
        about = companion_topics.prepare(chunking.admin, name)
        lag = _Lag(chunking, reader, name, topic=topic, ends=ends, about=about)
        opened = lag.opened()
        lag.in_this_process(lag.by_executors(executors, opened) if executors else opened)
        for error in lag.aside.values():
            raise error
        return lag.signalled


class _Lag:
    """The messages of a topic that have no signal yet, up to the end of each partition in `ends`.

    `ends` was read when the call began, so that messages that arrive meanwhile do not prolong the call.
    """

    def __init__(
        self, chunking: Chunking, reader: Consumer, name: str, topic: Topic, ends: Mapping[int, int], about: About
    ) -> None:
        self._chunking, self._reader, self._name, self._topic = chunking, reader, name, topic
        self._ends, self._about = ends, about
        self.signalled = list[Signal]()
        self.aside = dict[int, LogTrimmed | SignalsLost | SchemaRefused | SignalRefused | RegistryFails]()
        """Errors that stop a partition, and no other one."""

    def by_executors(
        self, executors: Executors, opened: Mapping[int, PartitionReader]
    ) -> Mapping[int, PartitionReader]:
        """If the lag is large, run Spark jobs until a job makes no chunks. Return the reopened partitions.

        A job makes only complete chunks. Messages after the last complete chunk of a partition remain.
        """
        before = -1
        is_much = sum(self._ends[number] - each.start for number, each in opened.items()) >= executors.least
        while is_much and len(self.signalled) > before:
            before = len(self.signalled)
            self._job(executors, opened)
            opened = self.opened()
        return opened

    def in_this_process(self, opened: Mapping[int, PartitionReader]) -> None:
        """Make the remaining chunks in this process.

        If a chunk's file exists with other content, reopen the partitions. A chunk without a signal is then made again,
        and ends where the chunk in that file ends. Raise ChunkDiffers if no chunk was signalled since the last opening.
        """
        while True:
            before = len(self.signalled)
            try:
                self._read_rest(opened)
            except ChunkDiffers:
                if len(self.signalled) == before:
                    raise
                opened = self.opened()
            else:
                return

    def _job(self, executors: Executors, opened: Mapping[int, PartitionReader]) -> None:
        """Run a Spark job that writes chunks.

        In each partition, signal these chunks, up to the first one that is missing.
        """
        task_ranges = spark_job.spans(opened, self._ends, self._topic.messages)[: spark_job.SPANS]
        after = {number: each.start for number, each in opened.items()}
        for span, kept in spark_job.cut(executors, self._name, self._topic, task_ranges) if task_ranges else ():
            if span.number not in self.aside and kept.signal.first_offset == after[span.number]:
                self._note(span.number, opened[span.number].write([kept]))
                after[span.number] = kept.signal.next_offset

    def _read_rest(self, opened: Mapping[int, PartitionReader]) -> None:
        ranges = {number: OffsetRange(each.start, self._ends[number]) for number, each in opened.items()}
        try:
            for each in follow(self._reader, self._name, ranges):
                partition = opened[each.partition]
                if each.partition not in self.aside:
                    signals = partition.look(inf) if isinstance(each, Reached) else partition.take(each.message)
                    self._note(each.partition, signals)
        finally:
            for each in opened.values():
                each.drop()

    def _note(self, number: int, signals: Iterable[Signal]) -> None:
        """Keep a partition's signals. Set the partition aside if the broker refuses one, or the topic was recreated."""
        try:
            self.signalled += signals
        except (LogTrimmed, SchemaRefused, SignalRefused, RegistryFails) as error:
            self.aside[number] = error

    def opened(self) -> dict[int, PartitionReader]:
        """Open each partition of the topic at the first offset without a signal.

        Set aside the partitions on which a person must act.
        """
        places = [PartitionOfTopic(self._name, number) for number in self._ends if number not in self.aside]
        writers = signalling(
            self._chunking, places, {self._name: self._about}, {self._name: schema_id_of(self._chunking, self._name)}
        )
        return {each.partition: partition for each in writers if (partition := self._open(each))}

    def _open(self, writer: Signals) -> PartitionReader | None:
        try:
            return PartitionReader(self._chunking, self._reader, writer, self._topic)
        except (LogTrimmed, SignalsLost) as error:
            self.aside[writer.partition] = error
        return None
