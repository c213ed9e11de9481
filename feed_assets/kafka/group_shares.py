"""Partitions that no member of the consumer group has.

A process with the `group.instance.id` of an earlier one gets the assignment of that process back. Partitions that a
topic got in between then belong to nobody until a member joins again. Source: KIP-345 (2019) and KIP-814 (2022).
"""

from collections.abc import Collection
from typing import Any

from confluent_kafka import ConsumerGroupState, KafkaException

from feed_assets.core.secrets import masked
from feed_assets.home import say
from feed_assets.kafka.clients import SECONDS
from feed_assets.kafka.offset_range import PartitionOfTopic


def without_member(admin: Any, group: str, topics: Collection[str]) -> list[PartitionOfTopic] | None:
    """Return the partitions of topics that no member of the group has. Return None while the group assigns them.

    If the broker refuses to describe the group, print a line and return none. Raise KafkaException for other failures.
    """
    try:
        described = admin.describe_consumer_groups([group], request_timeout=SECONDS)[group].result(SECONDS)
    except KafkaException as error:
        if error.args[0].retriable():
            raise
        say(
            f"connector: does not know whether each partition has a reader: {masked(error.args[0].str())}",
            level="warning",
        )
        return []
    if described.state is not ConsumerGroupState.STABLE:
        return None
    assigned = {
        (each.topic, each.partition) for member in described.members for each in member.assignment.topic_partitions
    }
    listed = admin.list_topics(timeout=SECONDS).topics
    existing = {(name, number) for name in topics if name in listed for number in listed[name].partitions}
    return [PartitionOfTopic(*each) for each in sorted(existing - assigned)]
