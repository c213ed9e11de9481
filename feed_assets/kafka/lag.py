"""How far the signals of a topic are behind its end, as the broker has it now."""

from contextlib import closing
from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Consumer

from feed_assets.core.errors import NoTopic
from feed_assets.core.topics import signals_of
from feed_assets.kafka import log, signals
from feed_assets.kafka.clients import Clients, translated
from feed_assets.kafka.counts import moment_of
from feed_assets.kafka.messages import Message


@dataclass(frozen=True)
class Lag:
    """A topic partition: up to where it is signalled, where it ends, and how many offsets are between the two.

    `behind` counts from the first message without a signal on, whose time (UTC) `since` is; 0 and None if there is
    none, as behind the last message there may be ends of transactions. It is an upper bound of messages.
    """

    partition: int
    end: int
    signalled: int
    behind: int
    since: datetime | None


def ends(clients: Clients, topic: str) -> dict[int, int]:
    """Where each partition ends. Raises KafkaUnavailable and NoTopic."""
    with closing(clients.peeker()) as reader, translated(f"look where {topic} ends"):
        return {each: high for each, (_, high) in log.bounds(reader, topic).items()}


def lag(clients: Clients, topic: str) -> list[Lag]:
    """The lag of each partition. Raises KafkaUnavailable, NoTopic and SignalsLost."""
    with closing(clients.peeker()) as reader, translated(f"look how far {topic} is signalled"):
        bounds, with_signals = log.bounds(reader, topic), {*_partitions_of_signals(reader, topic)}
        last = {each: signals.last(reader, topic, each) if each in with_signals else None for each in bounds}
        begins = {
            each: max(low, found.next_offset if (found := last[each]) else 0) for each, (low, _) in bounds.items()
        }
        behind = {each: begin for each, begin in begins.items() if begin < bounds[each][1]}
        first = {each: log.first(reader, topic, each, begin) for each, begin in behind.items()}
    return [_lag(each, bounds[each][1], begins[each], first.get(each)) for each in sorted(bounds)]


def _partitions_of_signals(reader: Consumer, topic: str) -> list[int]:
    try:
        return log.partitions(reader, signals_of(topic))
    except NoTopic:  # Nothing of it was ever signalled.
        return []


def _lag(partition: int, end: int, signalled: int, first: Message | None) -> Lag:
    if first is None:
        return Lag(partition, end, signalled, 0, None)
    return Lag(partition, end, signalled, end - first.offset, moment_of(first))
