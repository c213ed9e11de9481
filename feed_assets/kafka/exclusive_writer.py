"""A writer to a topic. Of several writers with the same name, only the newest can write."""

from collections.abc import Callable, Sequence

from feed_assets.kafka import topic_reader
from feed_assets.kafka.clients import SECONDS, Clients, translated
from feed_assets.kafka.messages import Message

_TRANSACTION_SECONDS = 60


class Appender:
    """A writer to a topic. Once it exists, earlier writers with the same name can no longer write to the topic."""

    def __init__(self, clients: Clients, topic: str, name: str) -> None:
        self._clients, self._topic = clients, topic
        self._producer = clients.producer(f"{name}/{topic}", _TRANSACTION_SECONDS)
        with translated(f"write to {topic}", self._producer):
            self._producer.init_transactions(SECONDS)

    def tail(self, is_enough: Callable[[Sequence[Message]], bool], is_kept: Callable[[Message], bool]) -> list[Message]:
        """Return the last messages of each partition that satisfy `is_kept`. Raise KafkaUnavailable if Kafka fails.

        Read further and further back from the end, until `is_enough` accepts the messages or all are read.
        """
        reader = self._clients.reader()
        try:
            numbers = topic_reader.partitions(reader, self._topic)
            return [
                each
                for number in numbers
                for each in topic_reader.tail(reader, self._topic, number, is_enough, is_kept)
            ]
        finally:
            reader.close()

    def write(self, messages: Sequence[tuple[bytes, bytes]]) -> None:
        """Write keys and values, all or none. Raise FencedOff if a later writer exists.

        After KafkaUnavailable, it is unknown whether all or none were written.
        """
        with translated(f"write to {self._topic}"):
            self._producer.begin_transaction()
            for key, value in messages:
                self._producer.produce(self._topic, value, key)
            self._producer.commit_transaction(SECONDS)
