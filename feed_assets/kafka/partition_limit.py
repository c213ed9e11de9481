"""The most partitions that one connector reads: each has a producer, and one process cannot have a thousand of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from confluent_kafka import TopicPartition

from feed_assets.core.errors import TooManyPartitions
from feed_assets.kafka.offset_range import PartitionOfTopic

MOST_PARTITIONS = 500
"""A producer takes one of the 1,024 keys for the data of threads that a process has on Linux, and several threads."""


def small_topics_first(places: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return assigned partitions in the order in which they are read: a large topic must not displace others."""
    places = [*places]
    counts = Counter(each.topic for each in places)
    return sorted(places, key=lambda each: (counts[each.topic], each.topic, each.partition))


def too_many(unread: Sequence[TopicPartition]) -> Iterator[tuple[list[PartitionOfTopic], TooManyPartitions]]:
    """Yield the partitions of each topic that are not read, in the order of `small_topics_first`, with the reason."""
    for topic, group in groupby(unread, key=lambda each: each.topic):
        places = [PartitionOfTopic(topic, each.partition) for each in group]
        yield (
            places,
            TooManyPartitions(
                f"this connector reads {MOST_PARTITIONS} partitions, and leaves {len(places)} of {topic}. Start "
                "further connectors with the same settings: they share the partitions."
            ),
        )
