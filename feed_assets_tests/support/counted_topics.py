"""A topic whose messages are counted by their timestamps."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from feed_assets.kafka.clients import Clients
from feed_assets_tests.support.transactions import commit

START = datetime(2026, 1, 1, 15, tzinfo=UTC)


class CountedTopic:
    """A topic of two partitions from which the broker removes nothing, however old its timestamps are."""

    def __init__(self, broker, **config):
        self.servers = broker.servers
        self.clients, self.topic = Clients({"bootstrap.servers": broker.servers}), f"counted-{uuid4().hex}"
        self.admin = self.clients.admin()
        made = NewTopic(self.topic, 2, config={"retention.ms": "-1", **config})
        self.admin.create_topics([made])[self.topic].result(120)
        self.producer = self.clients.producer(self.topic, 60)
        self.producer.init_transactions(30)

    def send(self, messages):
        """Send messages, each as (partition, moment), in one transaction."""
        self.producer.begin_transaction()
        for partition, moment in messages:
            stamp = int(moment.timestamp() * 1000)
            self.producer.produce(self.topic, b"{}", partition=partition, timestamp=stamp)
        commit(self.producer, self.admin, self.topic)

    def produce(self, messages):
        """Send the messages without a transaction."""
        producer = Producer({"bootstrap.servers": self.servers})
        for partition, moment in messages:
            producer.produce(self.topic, b"{}", partition=partition, timestamp=int(moment.timestamp() * 1000))
        assert producer.flush(30) == 0

    def remove(self, partition, offset):
        place = TopicPartition(self.topic, partition, offset)
        self.admin.delete_records([place])[place].result(120)


def minutes(*numbers):
    return [START + timedelta(minutes=number) for number in numbers]


def start_of(moment):
    return moment.replace(minute=moment.minute // 5 * 5, second=0, microsecond=0)
