"""The connector: it reads topics, and writes and signals their chunks, until it is stopped.

A session is one membership in the consumer group, with the partitions that the group assigns to it. Any failure ends
the session. After a pause, the next session continues after the last signals, like a new process after a kill. If a
partition is revoked, its unsignalled messages are dropped, because its next owner reads them again.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Event

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received

from feed_assets.core.errors import (
    LogTrimmed,
    MessageUnreadable,
    SchemaRefused,
    ServiceUnavailable,
    SignalRefused,
    SignalsLost,
    TooManyPartitions,
)
from feed_assets.core.message_words import shortened
from feed_assets.core.topics import Topic
from feed_assets.heartbeats import Beat, Figures, no_beat
from feed_assets.home import say
from feed_assets.kafka import companion_topics, partition_limit, unreadable
from feed_assets.kafka.clients import failure, translated
from feed_assets.kafka.group_shares import without_member
from feed_assets.kafka.offset_range import Chunking, PartitionOfTopic
from feed_assets.kafka.partition import PartitionReader, schema_id_of, signalling
from feed_assets.kafka.read_notes import ReadNote
from feed_assets.kafka.read_progress import ReadProgress
from feed_assets.kafka.registry_schemas import RegistryFails
from feed_assets.kafka.signal_message import Signal
from feed_assets.kafka.signals import Signals
from feed_assets.kafka.topic_reader import message_of

POLL_SECONDS = 0.1
LOOK_SECONDS = 0.05
"""The shortest time in seconds between two checks for chunks whose time is over."""

GROUP_SECONDS = 1.0
"""Seconds between two looks at the group until its members have their partitions."""

_NAMED = 4

SAY_SECONDS = 60.0
"""Seconds between two progress lines."""

LOOKUPS, LOOKUP_SECONDS = 200, 10.0
"""The most schema ids that are requested for one topic within LOOKUP_SECONDS. A request delays all other topics."""

EXTRA_SECONDS = 2.0
"""The most seconds within LOOKUP_SECONDS for a topic's schema requests and costly messages.

Messages are costly if they alternate between two schemas: each then becomes a chunk, with a file and a transaction. A
message of some kB is costly if it becomes a very long line, or takes more than some milliseconds.
"""

EMPTY_SECONDS = 1.0
"""Seconds between two looks for topics while there is none to read."""

NewerTopics = Callable[[float], Mapping[str, Topic] | None]
"""Function that gets the clock's time, and returns all topics to read if they have changed."""

PAUSES = (1.0, 60.0)
"""Seconds to wait after the first failure, and the longest wait. Each further failure doubles the wait."""


def no_newer_topics(_: float) -> None:
    """Change no topics: all of them are declared by name."""


def run(
    chunking: Chunking,
    topics: Mapping[str, Topic],
    stopping: Event,
    pauses: tuple[float, float] = PAUSES,
    beat: Beat = no_beat,
    note: ReadNote | None = None,
    newer: NewerTopics = no_newer_topics,
) -> None:
    """Make chunks of topics until `stopping` is set. Wait for missing topics and unavailable services.

    The connector calls `beat` while it reads, but not while it waits for a service. With a `note`, the connector sets
    aside the partitions whose messages crash their reader. `newer` is called with the time in each round, and returns
    all topics to read if they have changed.

    Raise FencedOff if another process has taken over. If a person must act on a partition, raise LogTrimmed,
    SignalsLost, MessageUnreadable, SchemaRefused, SignalRefused or TooManyPartitions. Raise these errors when
    `stopping` is set, or at once if no other partition is read and none crashes its reader.
    """
    pause, progress = pauses[0], ReadProgress()
    while not stopping.is_set():
        topics = newer(chunking.clock()) or topics
        if not topics:  # No topic matches a pattern yet.
            beat(lambda: {"partitions": 0, **progress.figures})
            stopping.wait(EMPTY_SECONDS)
            continue
        session = ConnectorSession(chunking, topics, stopping, beat=beat, note=note, progress=progress, newer=newer)
        try:
            session.run()
        except ServiceUnavailable as error:
            pause = pauses[0] if session.has_signalled else pause
            say(f"connector: waits {pause:g} s, then tries again: {error}", level="warning")
            stopping.wait(pause)
            pause = min(2 * pause, pauses[1])
        topics = session.topics


_ForAPerson = LogTrimmed | SignalsLost | MessageUnreadable | SchemaRefused | SignalRefused | TooManyPartitions
"""Errors of one partition on which a person must act. The other partitions are still read."""


class ConnectorSession:
    """A member of the consumer group, from start to end."""

    def __init__(
        self,
        chunking: Chunking,
        topics: Mapping[str, Topic],
        stopping: Event,
        beat: Beat = no_beat,
        note: ReadNote | None = None,
        progress: ReadProgress | None = None,
        newer: NewerTopics = no_newer_topics,
    ) -> None:
        self._progress = progress or ReadProgress()
        self._chunking, self.topics, self._stopping, self._newer = chunking, topics, stopping, newer
        self._beat, self._crash_note = beat, note
        self._open: dict[PartitionOfTopic, PartitionReader] = {}
        self._aside: dict[PartitionOfTopic, _ForAPerson] = {}
        self._missing = set[str]()
        self._said, self._looked = chunking.clock(), 0.0
        self._said_counts = replace(self._progress.totals)
        """The totals at the last progress line."""
        self.has_signalled = False
        self._lookups, self._lookups_since = Counter[str](), chunking.clock()
        self._extra_seconds = defaultdict[str, float](float)
        self._paused = set[PartitionOfTopic]()
        self._has_other_topics = False
        self._next_group_look = 0.0 if chunking.clients.instance_id else float("inf")
        self._reached = dict[PartitionOfTopic, int]()
        """The next offset of each partition at the last progress line."""

    def run(self) -> None:
        """Take messages until `stopping` is set. Raise the error that ends the session earlier."""
        self._reader, consumer = self._chunking.clients.reader(), self._chunking.clients.consumer()
        try:
            with translated(f"read {', '.join(self.topics)}"):
                self._subscribe(consumer)
                while not self._stopping.is_set():
                    self._step(consumer)
                self._raise_aside()
        finally:
            consumer.close()
            self._drop()
            self._reader.close()

    def _subscribe(self, consumer: Consumer) -> None:
        consumer.subscribe([*self.topics], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def _step(self, consumer: Consumer) -> None:
        received = consumer.poll(POLL_SECONDS)
        if self._has_other_topics:
            self._join_again(consumer)
        if received is not None:
            self._take(consumer, received)
        now = self._chunking.clock()
        if now >= self._looked + LOOK_SECONDS:
            self._looked = now
            self._resume(consumer, now)
            self._take_newer(consumer, now)
            self._look_at_group(consumer, now)
            for each in [*self._open.values()]:
                self._note(consumer, each, each.look(now))
            self._say(consumer, now)
            self._beat(partial(self._figures, consumer))

    def _take_newer(self, consumer: Consumer, now: float) -> None:
        """Subscribe again if there are other topics to read. The group then assigns all partitions anew."""
        if topics := self._newer(now):
            self.topics = topics
            self._subscribe(consumer)

    def _figures(self, consumer: Consumer) -> Figures:
        """Return the numbers for the connector's heartbeat. A time of 0 means that nothing is signalled yet."""
        return {
            "partitions": len(self._open),
            "partitions_set_aside": len(self._aside),
            "messages_behind": sum(self._behind(consumer).values()),
            **self._progress.figures,
        }

    def _look_at_group(self, consumer: Consumer, now: float) -> None:
        """Once in a session of a process with a `group.instance.id`, join again if partitions have no reader."""
        if now < self._next_group_look or not self._open:
            return
        self._next_group_look = now + GROUP_SECONDS
        unread = without_member(self._chunking.admin, self._chunking.clients.group, self.topics)
        if unread is None:
            return
        self._next_group_look = float("inf")
        if unread:
            self._join_again(consumer, f"no process reads {shortened([*map(str, unread)], _NAMED)}")

    def _join_again(self, consumer: Consumer, reason: str = "the broker assigned topics of an earlier start") -> None:
        """Give up the assignment of an earlier process. Join again with the present topics and partitions."""
        say(f"connector: joins the group again: {reason}")
        self._has_other_topics = False
        consumer.unsubscribe()
        self._subscribe(consumer)

    def _take(self, consumer: Consumer, received: Received) -> None:
        partition = self._open.get(PartitionOfTopic(received.topic() or "", received.partition() or 0))
        error = received.error()
        if error and error.code() == KafkaError._PARTITION_EOF:  # pyright: ignore[reportPrivateUsage]
            if partition is not None:
                partition.reach(received.offset() or 0)
        elif error:  # If the broker has removed unread messages, the next session reports this.
            if error.code() not in unreadable.CODES:
                self._heed(error, received.topic() or "")
            elif partition is not None:  # Ignore errors of a partition that is no longer read.
                self._leave(consumer, partition, unreadable.not_unpacked(partition.next_offset, error))
        elif partition is not None:
            lookups, costly, began = self._chunking.schemas.lookups, partition.costly, self._chunking.clock()
            self._progress.take(partition.place, message := message_of(received))
            self._note(consumer, partition, partition.take(message))
            lookups = self._chunking.schemas.lookups - lookups
            if lookups or partition.costly > costly:
                self._count_extra(consumer, partition.place, lookups, self._chunking.clock() - began)

    def _count_extra(self, consumer: Consumer, place: PartitionOfTopic, lookups: int, seconds: float) -> None:
        """Count the requests for schemas and the time of a costly message.

        If the topic needs too many requests or too much time, pause this partition, so that other topics are read.
        """
        self._lookups[place.topic] += lookups
        self._extra_seconds[place.topic] += seconds
        lookups, seconds = self._lookups[place.topic], self._extra_seconds[place.topic]
        if (lookups >= LOOKUPS or seconds >= EXTRA_SECONDS) and place in self._open:
            consumer.pause([TopicPartition(*place)])
            self._paused.add(place)
            say(
                f"connector: pauses {place}: within {LOOKUP_SECONDS:g} s its topic had {lookups} schema ids looked up, "
                f"and took {seconds:.1f} s for these, for chunks that another schema ended, and for slow messages"
            )

    def _resume(self, consumer: Consumer, now: float) -> None:
        """Continue with the paused partitions once LOOKUP_SECONDS are over."""
        if now < self._lookups_since + LOOKUP_SECONDS:
            return
        self._lookups_since = now
        self._lookups.clear()
        self._extra_seconds.clear()
        consumer.resume([TopicPartition(*each) for each in self._paused if each in self._open])
        self._paused.clear()

    def _leave(self, consumer: Consumer, partition: PartitionReader, error: _ForAPerson) -> None:
        """Stop reading a partition whose next messages cannot be unpacked or signalled.

        If no other partition is read, the connector may end.
        """
        place = partition.place
        self._set_aside(place, error)
        self._open.pop(place).drop()
        self._progress.drop(place)
        consumer.pause([TopicPartition(*place)])
        self._end_without_work()

    def _heed(self, error: KafkaError, name: str) -> None:
        """Wait for a missing topic: the group assigns its partitions once it exists. Raise other errors.

        A topic that may not be read does not stop others. The client continues once it may.
        """
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED and {*self.topics} - {name}:
            say(f"connector: does not read {name}: {error.str()}. Grant its right to read.", level="error")
            return
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or name in {each for each, _ in self._open}:
            raise failure(f"read {', '.join(self.topics)}", KafkaException(error))
        if name not in self._missing:
            self._missing.add(name)
            self._say_missing([name])

    def _note(self, consumer: Consumer, partition: PartitionReader, signals: Iterable[Signal]) -> None:
        """Count a partition's signals. Leave the partition if the broker refuses one, or if its topic was recreated.

        If the registry fails with the schema of its next message, only this partition waits.
        """
        try:
            for each in signals:
                self.has_signalled = True
                self._progress.add(partition.place, each)
        except (LogTrimmed, SchemaRefused, SignalRefused) as error:
            self._leave(consumer, partition, error)
        except RegistryFails as error:
            say(f"connector: pauses {partition.place} for up to {LOOKUP_SECONDS:g} s: {error}", level="warning")
            consumer.seek(TopicPartition(*partition.place, partition.next_offset))
            consumer.pause([TopicPartition(*partition.place)])
            self._paused.add(partition.place)

    def _assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Open the assigned partitions before any of their messages is read.

        If this process has the `group.instance.id` of an earlier process, the broker may assign the topics of that
        process. Leave these out. `_step` then joins the group again.
        """
        self._has_other_topics = any(each.topic not in self.topics for each in places)
        places = self._within_limit(each for each in places if each.topic in self.topics)
        about = {name: companion_topics.prepare(self._chunking.admin, name) for name in {each.topic for each in places}}
        ids = self._signal_schemas(places)
        named = [PartitionOfTopic(each.topic, each.partition) for each in places if each.topic in ids]
        writers = signalling(self._chunking, named, about, ids)
        opened = [partition for each in writers if (partition := self._opened(each))]
        self._open = {each.place: each for each in opened}
        self._set_crashing_aside(consumer)
        opened = [*self._open.values()]
        consumer.assign([TopicPartition(*each.place, each.start) for each in opened])
        begins = ", ".join(f"{each.place} from {each.start}" for each in opened)
        say(f"connector: has {begins or 'no partition'}")
        self._end_without_work()

    def _within_limit(self, places: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions to read, and set the others aside, so that a large topic does not stop this process."""
        ordered = partition_limit.small_topics_first(places)
        for unread, error in partition_limit.too_many(ordered[partition_limit.MOST_PARTITIONS :]):
            self._aside.update(dict.fromkeys(unread, error))
            self._say_aside(error)
        return ordered[: partition_limit.MOST_PARTITIONS]

    def _signal_schemas(self, places: Sequence[TopicPartition]) -> dict[str, int]:
        """Return the schema ids of signals by topic. Set aside the partitions of a topic whose schema is refused."""
        ids = dict[str, int]()
        for name in sorted({each.topic for each in places}):
            try:
                ids[name] = schema_id_of(self._chunking, name)
            except SchemaRefused as error:
                for each in places:
                    if each.topic == name:
                        self._set_aside(PartitionOfTopic(name, each.partition), error)
        return ids

    def _opened(self, writer: Signals) -> PartitionReader | None:
        """Open a topic partition and return its reader.

        If a person must act first, set the partition aside and return None.
        """
        try:
            return PartitionReader(self._chunking, self._reader, writer, self.topics[writer.topic])
        except (LogTrimmed, SignalsLost) as error:
            self._set_aside(PartitionOfTopic(writer.topic, writer.partition), error)
        return None

    def _set_crashing_aside(self, consumer: Consumer) -> None:
        """Set aside the partitions whose next messages crash their reader. Send heartbeats during the search."""
        if self._crash_note is None:
            return
        starts = {(each.place.topic, each.place.number): each.start for each in self._open.values()}
        on_wait = partial(self._beat, partial(self._figures, consumer))
        for place, offset in self._crash_note.crashing(self._chunking.clients, self._reader, starts, on_wait).items():
            partition = self._open.pop(PartitionOfTopic(*place))
            partition.drop()
            self._set_aside(partition.place, unreadable.crashing(offset))

    def _set_aside(self, place: PartitionOfTopic, error: _ForAPerson) -> None:
        """Remember and print why a partition is not read. A person has to act."""
        self._aside[place] = error
        self._say_aside(error)

    def _say_aside(self, error: _ForAPerson) -> None:
        places = [str(place) for place, each in self._aside.items() if each is error]
        say(f"connector: does not read {shortened(places, _NAMED)}: {error}", level="error")

    def _revoke(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        """Drop all open chunks. The next owners of the partitions read again from the last signals on."""
        self._drop()
        consumer.unassign()

    def _end_without_work(self) -> None:
        """Raise the error of the partition that was set aside first, if no other partition is read.

        Never give up a partition that crashes its reader: the group would assign it to another process.
        """
        if not self._open and not any(isinstance(each, unreadable.CrashesReader) for each in self._aside.values()):
            self._raise_aside()

    def _raise_aside(self) -> None:
        for error in self._aside.values():
            raise error

    def _drop(self) -> None:
        self._aside.clear()
        for place, each in self._open.items():
            each.drop()
            self._progress.drop(place)
        self._open.clear()

    def _say(self, consumer: Consumer, now: float) -> None:
        if now < self._said + SAY_SECONDS:
            return
        seconds, totals, behind = now - self._said, self._progress.totals, self._behind(consumer)
        counts = totals.since(self._said_counts)
        self._said, self._said_counts = now, replace(totals)
        say(
            f"connector: {len(self._open)} partitions, in {seconds:.0f} s {counts.messages:,} messages, "
            f"{counts.chunks:,} chunks, {counts.dead_letters:,} dead letters; {sum(behind.values()):,} messages behind"
        )
        self._say_standing(behind)
        for error in dict.fromkeys(self._aside.values()):
            self._say_aside(error)
        self._missing = {each for each in self._missing if not companion_topics.partitions(self._chunking.admin, each)}
        self._say_missing(sorted(self._missing))

    def _say_missing(self, names: Iterable[str]) -> None:
        for each in names:
            say(f"connector: does not read {each}: {companion_topics.NO_TOPIC.format(each)}")

    def _say_standing(self, behind: Mapping[PartitionOfTopic, int]) -> None:
        """Print which partitions have had no message since the last progress line, although their topic has more."""
        for place, each in self._open.items():
            if behind[place] and self._reached.get(place) == each.unread_from and place not in self._paused:
                say(
                    f"connector: {place} stands at offset {each.unread_from}, with {behind[place]:,} offsets behind: "
                    "either a producer has not ended its transaction, or a batch cannot be read. End the transaction "
                    "(`kafka-transactions.sh`), or look at the batch at this offset.",
                    level="warning",
                )
        self._reached = {place: each.unread_from for place, each in self._open.items()}

    def _behind(self, consumer: Consumer) -> dict[PartitionOfTopic, int]:
        """Return the number of unread offsets of each partition, as far as the broker has reported them."""
        ends = {each: consumer.get_watermark_offsets(TopicPartition(*each), cached=True)[1] for each in self._open}
        return {place: max(0, ends[place] - each.unread_from) for place, each in self._open.items()}
