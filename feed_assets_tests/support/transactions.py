"""Transactions in a topic that readers see as soon as a test goes on.

A broker answers a commit before it has written the transaction's end to the partitions. Until then a reader gets
nothing of it.
"""

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from feed_assets_tests.support.servers import wait_until


def commit(producer: Producer, admin: AdminClient, topic: str) -> None:
    """Commit a producer's transaction, and return when it can be read."""
    producer.commit_transaction(30)
    wait_until_readable(admin, topic)


def wait_until_readable(admin: AdminClient, topic: str) -> None:
    """Return when no transaction in a topic is open."""
    numbers = admin.list_topics(topic, 30).topics[topic].partitions
    wait_until(
        lambda: (
            _ends(admin, topic, numbers, IsolationLevel.READ_COMMITTED)
            == _ends(admin, topic, numbers, IsolationLevel.READ_UNCOMMITTED)
        ),
        f"the ends of the transactions in {topic}",
    )


def _ends(admin: AdminClient, topic: str, numbers: dict, level: IsolationLevel) -> list[int]:
    places = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}
    return [each.result(30).offset for each in admin.list_offsets(places, isolation_level=level).values()]
