"""Readers of a topic from a position on: committed messages, in the order of each partition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from time import monotonic
from typing import NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import AdminClient

from feed_assets.core.errors import KafkaUnavailable, LogTrimmed, NoTopic
from feed_assets.kafka import unreadable
from feed_assets.kafka.clients import SECONDS, Clients, translated
from feed_assets.kafka.messages import Headers, Message
from feed_assets.kafka.read_notes import ReadNote, noted

_POLL_SECONDS = 0.1
_FEW = 2
"""Number of last offsets that usually include the last message: one for the message, one for its transaction's end."""


class Placed(NamedTuple):
    """A message, and the partition that it is in."""

    partition: int
    message: Message


@dataclass
class ReadMessages:
    """Messages after a position, up to a limit.

    `after` has each partition's next offset. `held` has the partitions with an open transaction: the transaction's
    messages, and all later messages, cannot be read yet. `is_complete` is True if there were no more messages.
    """

    after: dict[int, int]
    messages: list[Placed] = field(default_factory=list[Placed])
    held: list[int] = field(default_factory=list[int])
    is_complete: bool = False


def unchanged(message: Message) -> Message:
    """Return a message as it is."""
    return message


def without_headers(message: Message) -> Message:
    """Return a message without its key and headers."""
    return message._replace(key=None, headers=())


def without_content(message: Message) -> Message:
    """Return a message with only its offset and timestamp."""
    return message._replace(key=None, value=None, headers=())


def read(
    clients: Clients,
    topic: str,
    after: Mapping[int, int],
    limit: int,
    size: int,
    seconds: float,
    kept: Callable[[Message], Message] = without_headers,
) -> ReadMessages:
    """Read up to `limit` messages, and stop after `size` bytes. A partition not in `after` is read from its beginning.

    Keys and headers count as bytes, too. Memory holds only the result of `kept` for each message.

    The broker does not store the position. Raise LogTrimmed if it has removed the next messages. Raise KafkaUnavailable
    if Kafka fails, if nothing arrives within `seconds`, or if the next messages are known to crash their reader.
    """
    consumer, until = clients.page_reader(), monotonic() + seconds
    try:
        with noted(f"read {topic}") as note, translated(f"read {topic}"):
            begins = {each: after.get(each, OFFSET_BEGINNING) for each in partitions(consumer, topic, seconds)}
            _refuse_crashing(note, clients, consumer, topic, begins)
            reading = _Reading(consumer, topic, begins, ReadMessages({**after}), kept=kept)
            while reading.unfinished and len(reading.result.messages) < limit and reading.size < size:
                if (received := consumer.poll(_POLL_SECONDS)) is not None:
                    reading.take(received)
                elif monotonic() > until and reading.result.messages:
                    break
                elif monotonic() > until:
                    raise KafkaUnavailable(f"cannot read {topic}: no answer within {seconds:g} s. Check the broker.")
    finally:
        consumer.close()
    reading.result.is_complete = not reading.unfinished
    return reading.result


def _refuse_crashing(
    note: ReadNote | None, clients: Clients, reader: Consumer, topic: str, begins: Mapping[int, int]
) -> None:
    """Raise KafkaUnavailable if a partition has messages that crash their reader."""
    starts = {(topic, number): offset for number, offset in begins.items()}
    if note is not None and (crashing := note.crashing(clients, reader, starts)):
        raise unreadable.refused(topic, crashing)


def _any(_: Message) -> bool:
    return True


def tail(
    reader: Consumer,
    topic: str,
    partition: int,
    is_enough: Callable[[Sequence[Message]], bool],
    is_kept: Callable[[Message], bool] = _any,
) -> list[Message]:
    """Return a partition's last messages that satisfy `is_kept`. Raise KafkaUnavailable.

    Begin near the end, and then further and further back, until `is_enough` accepts the messages or all are read. One
    step may not suffice, because any number of transaction ends and aborted messages may follow the last message.
    """
    back = _FEW
    with translated(f"read {topic}/{partition}"):
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS)
        messages = list[Message]()
        while low < high and not is_enough(messages):
            begin, back = max(low, high - back), back * 10
            messages = _to_end(reader, TopicPartition(topic, partition, begin), is_kept)
            if begin == low:
                break
    return messages


def first(reader: Consumer, topic: str, partition: int, offset: int) -> Message | None:
    """Return the first message at or after an offset; None without such a message. Raise KafkaUnavailable."""
    with translated(f"read {topic}/{partition}"):
        return next(iter(_to_end(reader, TopicPartition(topic, partition, offset), _any, limit=1)), None)


def _to_end(
    reader: Consumer, begin: TopicPartition, is_kept: Callable[[Message], bool], limit: int | None = None
) -> list[Message]:
    """Return up to `limit` messages from `begin` to the partition's end. Raise KafkaUnavailable."""
    messages, until = list[Message](), monotonic() + SECONDS
    reader.assign([begin])
    while monotonic() < until:
        received = reader.poll(_POLL_SECONDS)
        error = received.error() if received is not None else None
        if len(messages) == limit or (error is not None and error.code() == KafkaError._PARTITION_EOF):
            reader.unassign()
            return messages
        if error is not None:
            raise KafkaException(error)
        if received is not None:
            until = monotonic() + SECONDS
            if is_kept(message := message_of(received)):
                messages.append(message)
    raise KafkaUnavailable(f"cannot read {begin.topic}/{begin.partition}: no answer within {SECONDS:g} s.")


def partitions(client: Consumer | AdminClient, topic: str, seconds: float = SECONDS) -> list[int]:
    """Return the partitions of a topic. Raise KafkaUnavailable, and NoTopic if there is no such topic."""
    with translated(f"read {topic}", client):
        numbers = listed(client, topic, seconds)
    if not numbers:
        raise no_topic(topic)
    return numbers


def no_topic(topic: str) -> NoTopic:
    """Return the error for a topic that does not exist."""
    return NoTopic(f"there is no topic {topic}: expected it at the broker. Create it, or correct the name.")


def listed(client: Consumer | AdminClient, topic: str, seconds: float = SECONDS) -> list[int]:
    """Return the partitions of a topic; [] if there is no such topic. Raise KafkaException."""
    metadata = client.list_topics(topic, seconds).topics[topic]
    if metadata.error is not None and metadata.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
        raise KafkaException(metadata.error)
    return [*(metadata.partitions or ())]


def bounds(reader: Consumer, topic: str) -> dict[int, tuple[int, int]]:
    """Return the first offset of each partition, and the offset after its last. Raise NoTopic and KafkaException."""
    numbers = partitions(reader, topic)
    return {each: reader.get_watermark_offsets(TopicPartition(topic, each), timeout=SECONDS) for each in numbers}


class _Reading:
    """Partitions of a topic that are being read. `unfinished` has the partitions whose end is not reached yet."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        begins: Mapping[int, int],
        result: ReadMessages,
        *,
        kept: Callable[[Message], Message],
    ) -> None:
        self._kept = kept
        self._consumer, self._topic, self._begins, self.result = consumer, topic, begins, result
        self.unfinished, self.size = {*begins}, 0
        consumer.assign([self._place(*each) for each in begins.items()])

    def take(self, received: Received) -> None:
        """Take a message, or record a partition's end."""
        partition, error = received.partition() or 0, received.error()
        if error is None:
            message = message_of(received)
            self.result.messages.append(Placed(partition, self._kept(message)))
            self.result.after[partition] = (received.offset() or 0) + 1
            self.size += message.size
        elif error.code() == KafkaError._PARTITION_EOF:
            self._end(partition, received.offset() or 0)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise self._trimmed(partition)
        else:
            raise KafkaException(error)

    def _end(self, partition: int, end: int) -> None:
        """Record that a partition is read to its end, including ends of transactions after the last message.

        The broker may remove these ends of transactions. A position before them could then become invalid.
        """
        self.unfinished.discard(partition)
        if end:
            self.result.after[partition] = end
        _, high = self._consumer.get_watermark_offsets(self._place(partition), cached=True)
        if high > end:
            self.result.held.append(partition)

    def _trimmed(self, partition: int) -> LogTrimmed:
        low, high = self._consumer.get_watermark_offsets(self._place(partition), timeout=SECONDS)
        return LogTrimmed(
            f"{self._topic}/{partition} was read up to offset {self._begins[partition]}: expected it within {low} to "
            f"{high}, which the broker has. Messages were removed before they were read, or the topic was recreated. "
            "`feed-assets reconcile` reads the remaining ones from the beginning, and continues from there."
        )

    def _place(self, partition: int, offset: int = OFFSET_BEGINNING) -> TopicPartition:
        return TopicPartition(self._topic, partition, offset)


_headers_of = methodcaller("headers")
"""Return the headers of a message, by the client's method `headers`.

If the method fails, the client sets an error, but returns a value. `methodcaller` notices this in each call, and raises
SystemError. A direct call does not notice it once Python has specialized the call: a later call then raises the error.
"""


def message_of(received: Received) -> Message:
    """Return a message in our form."""
    try:
        headers = cast(Headers, _headers_of(received) or ())
    except SystemError:  # If a header's name is not UTF-8, the client returns no headers at all.
        headers = ()
    return Message(received.offset() or 0, received.key(), received.value(), headers, received.timestamp()[1])
