"""A sink that is a Kafka topic: each of our events is one message, there once, in the order of its table."""

import json
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from feed_assets.core.errors import FencedOff, KafkaUnavailable, SinkUnavailable
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.exclusive_writer import Appender
from feed_assets.kafka.messages import Message
from feed_assets.sources.sinks import Numbered, line_of
from feed_assets.sources.topic_events import clients_for


@dataclass(frozen=True)
class TopicSink:
    """A topic, which must exist. Messages are JSON objects as in files; the key is the table's name.

    A batch is one transaction of a producer that fences off every other one of ours. Then the end of the topic shows
    what is published already: after a kill, and beside another process, each event is there once. After a position that
    moved back, as with a ledger from a backup, this holds for equal events.
    """

    clients: Clients = field(repr=False)
    topic: str

    def publish(self, events: Sequence[Numbered]) -> tuple[str, ...]:
        """Publish the events that are not in the topic yet. Raise SinkUnavailable if Kafka fails or fences us off."""
        if not events:
            return ()
        with _translated():
            appender = Appender(self.clients, self.topic, "feed_assets-events")
            own_messages = appender.tail(lambda message: _reaches(message, events[0][0]), _is_ours)
            published = {message.value for message in own_messages}
            texts = [(event.table_name.encode(), line_of(number, event)) for number, event in events]
            if unpublished := [each for each in texts if each[1] not in published]:
                appender.write(unpublished)
        return ()

    def strangers(self, _after: int, _own: Callable[[], Collection[int]], /) -> tuple[str, ...]:
        """Return (): a message of others has an offset of its own, and takes no place that ours would need."""
        return ()


def topic_sink(topic: str) -> TopicSink:
    """Return the sink of a topic at the broker of the settings. Raise InvalidSetting if that is not set."""
    return TopicSink(clients_for(topic), topic)


def _reaches(messages: Sequence[Message], first: int) -> bool:
    """Return whether there is an event of ours from before `first`."""
    return any(number is not None and number < first for number in map(_number, messages))


def _is_ours(message: Message) -> bool:
    """Return whether we wrote a message: those of others, in any number, are not kept."""
    return _number(message) is not None


def _number(message: Message) -> int | None:
    """Return the sequence number of an event of ours; None for what somebody else has written."""
    try:
        sequence = json.loads(message.value or b"")["sequence"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return sequence if isinstance(sequence, int) else None


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except (KafkaUnavailable, FencedOff) as error:
        raise SinkUnavailable(str(error)) from error
