"""A sink that is a Kafka topic: each of our events is one message, there once, in the order of its table."""

import json
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Producer

from feed_assets.core.errors import FencedOff, KafkaUnavailable, SinkUnavailable
from feed_assets.core.events import WriteEvent
from feed_assets.kafka import log
from feed_assets.kafka.clients import SECONDS, Clients, failure
from feed_assets.kafka.messages import Message
from feed_assets.sources.sinks import Numbered, line_of
from feed_assets.sources.topics import clients_for

_TRANSACTION_SECONDS = 60


@dataclass(frozen=True)
class TopicSink:
    """A topic, which must be there. Messages are JSON objects as in files; the key is the table's name.

    A batch is one transaction of a producer that puts every other one of ours out; then the end of the topic says what
    is published already: after a kill, and beside another process, each event is there once. After a position that went
    back, as that of a ledger from a backup does, so are those that are equal.
    """

    clients: Clients = field(repr=False)
    topic: str

    def publish(self, events: Sequence[Numbered]) -> tuple[str, ...]:
        """Publish the events that are not in the topic yet. Raises SinkUnavailable."""
        if not events:
            return ()
        with _translated():
            producer = self.clients.producer(f"feed_assets-events/{self.topic}", _TRANSACTION_SECONDS)
            producer.init_transactions(SECONDS)  # First: then nothing of ours comes behind the end that is read.
            there = self._published(events[0][0])
            left = [(event, text) for number, event in events if (text := line_of(number, event)) not in there]
            if left:
                self._write(producer, left)
        return ()

    def strangers(self, _after: int, _own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """None: a message of others' has an offset of its own, and takes no place that ours would need."""
        return ()

    def _published(self, first: int) -> set[bytes]:
        """What the topic has from an event on: read from the end of each partition back to one before it."""
        reader = self.clients.reader()
        try:
            found = [self._last(reader, partition, first) for partition in log.partitions(reader, self.topic)]
        finally:
            reader.close()
        return {message.value or b"" for messages in found for message in messages}

    def _last(self, reader: Consumer, partition: int, first: int) -> list[Message]:
        def is_before(messages: Sequence[Message]) -> bool:
            return any(number is not None and number < first for number in map(_number, messages))

        return log.tail(reader, self.topic, partition, is_before)

    def _write(self, producer: Producer, left: Sequence[tuple[WriteEvent, bytes]]) -> None:
        producer.begin_transaction()
        for event, text in left:
            producer.produce(self.topic, text, event.table_name.encode())
        producer.commit_transaction(SECONDS)


def topic_sink(topic: str) -> TopicSink:
    """The sink of a topic at the broker of the settings. Raises InvalidSetting where that is not set."""
    return TopicSink(clients_for(topic), topic)


def _number(message: Message) -> int | None:
    """The sequence number of an event of ours; None of what somebody else has written."""
    try:
        found = json.loads(message.value or b"")["sequence"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, int) else None


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except (KafkaUnavailable, FencedOff) as error:
        raise SinkUnavailable(str(error)) from error
    except KafkaException as error:
        raise SinkUnavailable(str(failure("publish events", error))) from error
