"""Unions: several Kafka topics that are loaded into one warehouse table, and their partitions' numbers in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from feed_assets.core.topics import Topic, TopicHistory

TOPIC = "_topic"
"""The column of a union's table with the topic of a row."""

MOST_TOPICS = 200
"""The most topics that one table has had."""

_PARTITIONS = 1_000_000
"""The distance between the numbers of two topics' partitions 0. No topic has as many partitions."""


@dataclass(frozen=True)
class TopicUnion:
    """Topics that are loaded into one table, as a loader gets it: their rules by name, in the declared order."""

    topics: Mapping[str, Topic]
    topic_in_key: bool = False
    """True if the topic is part of the key, so that equal keys of two topics are two rows."""
    is_history: bool = False

    def source_of(self, topic: str) -> Topic | TopicHistory:
        """Return one of the topics as a loader gets it for a table of its own."""
        return TopicHistory(topic, self.topics[topic]) if self.is_history else self.topics[topic]


@dataclass(frozen=True)
class UnionPart:
    """One topic of a union. `topics` are all topics that the table has had, in the order of their numbers."""

    topics: tuple[str, ...]
    number: int
    topic_in_key: bool = False

    @property
    def topic(self) -> str:
        """Return the name of the topic."""
        return self.topics[self.number]

    @property
    def partitions(self) -> range:
        """Return the numbers that the topic's partitions may have in the table, from that of partition 0 on."""
        return range(self.number * _PARTITIONS, (self.number + 1) * _PARTITIONS)


def partition_name(topics: Sequence[str], number: int) -> str | None:
    """Return the name of a partition by its number in a union's table, such as `shop.orders-0`.

    Kafka's tools write it like this, too. Return None for a number that no load can have written.
    """
    topic, partition = divmod(number, _PARTITIONS)
    return named(topics[topic], partition) if 0 <= topic < len(topics) else None


def named(topic: str, partition: int | str) -> str:
    """Return the name of a partition of a topic in a union."""
    return f"{topic}-{partition}"
