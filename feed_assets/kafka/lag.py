"""Lag of a topic's signals behind its end, from the broker's present offsets."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Consumer

from feed_assets.core.errors import NoTopic
from feed_assets.core.topics import signals_of
from feed_assets.kafka import peeks, signals, topic_reader
from feed_assets.kafka.clients import Clients, translated
from feed_assets.kafka.message_counts import moment_of
from feed_assets.kafka.messages import Message
from feed_assets.kafka.offset_range import PartitionOfTopic
from feed_assets.kafka.partition import refuse_another
from feed_assets.kafka.topic_identity import id_of


@dataclass(frozen=True)
class Lag:
    """The lag of a topic partition: its end, the offset up to which it is signalled, and the offsets between them.

    `behind` is the number of offsets from the first message without a signal to the end. `since` is the time of that
    message (UTC). If signals cover all messages, `behind` is 0 and `since` is None. There may be fewer messages than
    `behind`, because ends of transactions take offsets, too.
    """

    partition: int
    end: int
    signalled: int
    behind: int
    since: datetime | None


def ends(clients: Clients, topic: str) -> dict[int, int]:
    """Return the end offset of each partition. Raise KafkaUnavailable and NoTopic."""
    with closing(clients.peeker()) as reader, translated(f"find where {topic} ends"):
        return {each: high for each, (_, high) in topic_reader.bounds(reader, topic).items()}


def why_unsignalled(clients: Clients, topic: str) -> str:
    """Return why a topic has no signal (announcement of a chunk), and what to do. Return '' if it has one.

    Raise KafkaUnavailable.
    """
    try:
        ends(clients, topic)
    except NoTopic as error:
        return str(error)
    try:
        is_signalled = any(ends(clients, signals_of(topic)).values())
    except NoTopic:
        is_signalled = False
    return "" if is_signalled else f"{topic} has no signals yet. Check that `feed-assets connector run` is running."


def lag(clients: Clients, topic: str) -> list[Lag]:
    """Return each partition's lag.

    Raise KafkaUnavailable, NoTopic and SignalsLost. Raise LogTrimmed for a recreated topic.
    Raise KafkaUnavailable, too, if the next messages of a partition crash their reader.
    """
    with closing(clients.peeker()) as reader, translated(f"find how far {topic} is signalled"):
        bounds, topic_id = topic_reader.bounds(reader, topic), id_of(clients.admin(), topic)
        signalled = _signalled(reader, topic, bounds, topic_id)
        begins = {each: max(low, signalled.get(each, 0)) for each, (low, _) in bounds.items()}
        behind = {each: begin for each, begin in begins.items() if begin < bounds[each][1]}
        first = peeks.first(clients, reader, topic, behind)
    return [_lag(each, bounds[each][1], begins[each], first.get(each)) for each in sorted(bounds)]


def _signalled(reader: Consumer, topic: str, bounds: Mapping[int, tuple[int, int]], topic_id: str) -> dict[int, int]:
    """Return the offset after the last signalled chunk of each partition that has a signal."""
    numbers = {*_partitions_of_signals(reader, topic)} & {*bounds}
    last = {each: signal for each in numbers if (signal := signals.last(reader, topic, each))}
    for each, signal in last.items():
        refuse_another(PartitionOfTopic(topic, each), signal, topic_id, bounds[each][1])
    return {each: found.next_offset for each, found in last.items()}


def _partitions_of_signals(reader: Consumer, topic: str) -> list[int]:
    try:
        return topic_reader.partitions(reader, signals_of(topic))
    except NoTopic:  # The topic was never signalled.
        return []


def _lag(partition: int, end: int, signalled: int, first: Message | None) -> Lag:
    if first is None:
        return Lag(partition, end, signalled, 0, None)
    return Lag(partition, end, signalled, end - first.offset, moment_of(first))
