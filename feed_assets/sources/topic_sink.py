"""A sink that is a Kafka topic. Each event is exactly one message, and the events of a table keep their order."""

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
    """A topic, which must exist. A message is a JSON object, as in a file of FileSink. Its key is the table's name.

    A new producer first fences off our other producers. Then it reads the end of the topic, and writes only the events
    that are not there yet, in one transaction. So each event appears once, even after a kill or beside another process.
    If a restored ledger has an older position, events with equal content are not repeated, either.
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
        """Return (): messages of other producers never hide ours from readers, because each has its own offset."""
        return ()


def topic_sink(topic: str) -> TopicSink:
    """Return the sink of a topic at the settings' broker. Raise InvalidSetting if no broker is set."""
    return TopicSink(clients_for(topic), topic)


def _reaches(messages: Sequence[Message], first: int) -> bool:
    """Return whether the messages that were read reach back to an event of ours before number `first`."""
    return any(number is not None and number < first for number in map(_number, messages))


def _is_ours(message: Message) -> bool:
    """Return whether feed_assets wrote a message. `publish` does not keep other messages in memory."""
    return _number(message) is not None


def _number(message: Message) -> int | None:
    """Return the sequence number of our event; None for another producer's message."""
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
