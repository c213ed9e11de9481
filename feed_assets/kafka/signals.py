"""Signals: messages that announce a chunk, on the downstream topic, in the partition with the same number.

The signals are the connector's only state: reading continues after the last signal. A signal and its chunk's dead
letters are written in one transaction, by a producer with the topic partition's transactional id. Only the last
producer with that id can write. If a producer is killed, its unfinished transaction is aborted.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from time import monotonic
from typing import NoReturn

from confluent_kafka import Consumer, KafkaException, TopicPartition

from feed_assets.core.errors import FeedAssetsError, FencedOff, InvalidEvent, NoTopic, SignalRefused, SignalsLost
from feed_assets.core.secrets import masked
from feed_assets.core.topics import dead_letters_of, signals_of
from feed_assets.kafka import topic_reader
from feed_assets.kafka.clients import LONGEST, SECONDS, Clients, failure, is_fenced, is_of_content, translated
from feed_assets.kafka.companion_topics import LEAST, About
from feed_assets.kafka.messages import DeadLetter, Message
from feed_assets.kafka.signal_message import Signal

TRANSACTION_SECONDS = 60
"""Seconds after which the broker aborts an unfinished transaction."""

_ROOM = 4096
"""Number of bytes of a letter that do not come from its message: our headers, and the broker's overhead."""

_SURE_BYTES = 16 << 10
"""If the broker refuses a chunk's letters, the second attempt cuts each letter that has more bytes than this."""

LEFT = 4096
"""Number of bytes that remain of a dead letter's value if the letter is too long for the broker."""

OFFSET, TIMESTAMP = "feed_assets.offset", "feed_assets.timestamp"
"""Headers of a dead letter: offset and timestamp of its message.

The timestamp (milliseconds since 1970) may be invalid.
"""

CUT = "feed_assets.cut"
"""The header of a cut letter, with the full length of its value in bytes."""

OWN = "feed_assets.own"
"""The last header of a dead letter: the number of its message's own headers, which come before ours."""


def last(reader: Consumer, topic: str, partition: int) -> Signal | None:
    """Return the last committed signal of a topic partition; None if there never was one. Raise KafkaUnavailable.

    Raise SignalsLost if the broker has deleted the last signal, or if somebody else has written a message after it.
    """
    name = signals_of(topic)
    if messages := topic_reader.tail(reader, name, partition, bool):
        return _signal_of(topic, partition, messages[-1])
    with translated(f"read {name}/{partition}"):
        low, _ = reader.get_watermark_offsets(TopicPartition(name, partition), timeout=SECONDS)
    if low > 0:
        raise SignalsLost(
            f"{name}/{partition} has lost its signals: the broker has deleted all messages before offset {low}. Set "
            f"its retention.ms to -1, and delete the topic: then {topic}/{partition} is read again from its first "
            "offset. If this offset is no longer 0, declare the topic as another table: new chunks would repeat "
            "messages of the old ones."
        )
    return None


def _signal_of(topic: str, partition: int, message: Message) -> Signal:
    try:
        return Signal.of(message.value or b"")
    except InvalidEvent as error:
        name = signals_of(topic)
        raise SignalsLost(
            f"the last message of {name}/{partition}, at offset {message.offset}, is not the connector's: {error} "
            f"Let nobody else write there, and delete the topic {name}: then {topic}/{partition} is read again from "
            "its first offset. If this offset is no longer 0, declare the topic as another table: new chunks would "
            "repeat messages of the old ones."
        ) from error


def newest(clients: Clients, topic: str, limit: int) -> list[Signal]:
    """Return up to `limit` last signals (announcements of chunks) of each partition, newest first.

    Raise KafkaUnavailable.
    """
    name = signals_of(topic)
    with closing(clients.reader()) as reader:
        try:
            numbers = sorted(topic_reader.partitions(reader, name))
        except NoTopic:
            return []
        messages_by_partition = {
            each: topic_reader.tail(reader, name, each, lambda messages: len(messages) >= limit) for each in numbers
        }
    return [
        Signal.of(message.value or b"")
        for each in numbers
        for message in reversed(messages_by_partition[each][-limit:])
    ]


def shortened(message: Message) -> Message:
    """Return a message without its key and headers, and with only the beginning of its value."""
    return message._replace(key=None, value=(message.value or b"")[:LEFT], headers=())


class Signals:
    """Writer of one topic partition's signals. Once it exists, earlier writers can no longer write."""

    def __init__(self, clients: Clients, topic: str, partition: int, schema_id: int, about: About) -> None:
        self.topic, self.partition, self.topic_id, self._schema_id = topic, partition, about.topic_id, schema_id
        self._longest = min(about.longest, LONGEST) - _ROOM
        self._clients = clients
        self._begin()

    def _begin(self) -> None:
        self._producer = self._clients.producer(f"{signals_of(self.topic)}/{self.partition}", TRANSACTION_SECONDS)
        with translated(f"begin to signal {self.topic}/{self.partition}", self._producer):
            self._producer.init_transactions(SECONDS)

    def _begin_again(self, signal: Signal) -> None:
        """Create another producer, because the old one cannot write after the broker has refused its message.

        Raise FencedOff if another process has signalled meanwhile.
        """
        self._begin()
        with closing(self._clients.reader()) as reader:
            committed = last(reader, self.topic, self.partition)
        if committed is not None and committed.next_offset != signal.first_offset:
            raise FencedOff(
                f"cannot signal {self.topic}/{self.partition} from offset {signal.first_offset} on: another process "
                f"has signalled it up to {committed.next_offset}. Nothing is lost or duplicated. Start the connector "
                "again."
            )

    def write(self, signal: Signal, dead: Sequence[DeadLetter]) -> None:
        """Write a signal and its chunk's dead letters, all or none. Cut letters that are too long for the broker.

        Raise SignalRefused if the broker refuses the cut letters, too. Raise FencedOff if a later writer exists. After
        KafkaUnavailable, it is unknown whether all or none were written. Then create a new writer, which ends any open
        transaction. After that, `last` returns this signal if it was written.
        """
        began = monotonic()
        try:
            # The broker's limit may have changed since this writer was created, so only the broker's answer counts.
            if self._refusal(signal, dead, self._longest):
                self._begin_again(signal)
                if error := self._refusal(signal, dead, _SURE_BYTES):
                    self._refuse(signal, error)
        except KafkaException as error:
            raise self._failed(error, monotonic() - began) from error

    def _refusal(self, signal: Signal, dead: Sequence[DeadLetter], longest: int) -> KafkaException | None:
        """Write signal and letters in one transaction. If the broker refuses their content, return its error.

        Then the transaction is aborted, so nothing is written. Cut letters of more than `longest` bytes.
        """
        self._producer.begin_transaction()
        try:
            for each in dead:
                self._bury(each, is_cut=each.message.size > longest)
            stamped = replace(signal, topic_id=self.topic_id)
            self._producer.produce(signals_of(self.topic), stamped.encoded(self._schema_id), partition=self.partition)
            self._producer.commit_transaction(SECONDS)
        except KafkaException as error:
            if not is_of_content(error):
                raise
            self._producer.abort_transaction(SECONDS)
            return error
        return None

    def _refuse(self, signal: Signal, error: KafkaException) -> NoReturn:
        names = f"{signals_of(self.topic)} and {dead_letters_of(self.topic)}"
        raise SignalRefused(
            f"the broker refuses the signal or the dead letters of its offsets {signal.first_offset} to "
            f"{signal.last_offset}: {masked(str(error.args[0]))}. Expected that {names} take "
            f"messages of {LEAST} bytes: set their max.message.bytes, then start the connector again."
        ) from error

    def _bury(self, letter: DeadLetter, *, is_cut: bool) -> None:
        """Produce a dead letter: the message with its own headers, and our headers with the reason and the offset."""
        message = shortened(letter.message) if is_cut else letter.message
        values = {"feed_assets.topic": self.topic, "feed_assets.partition": self.partition, OFFSET: message.offset}
        values |= {TIMESTAMP: max(0, message.timestamp), "feed_assets.reason": letter.reason}
        values |= {CUT: len(letter.message.value or b"")} if is_cut else {}
        values |= {OWN: len(message.headers)}
        headers = [*letter.seal, *((name, str(value).encode(errors="replace")) for name, value in values.items())]

        self._producer.produce(
            dead_letters_of(self.topic),
            message.value,
            message.key,
            self.partition,
            headers=[*message.headers, *headers],
        )

    def _failed(self, error: KafkaException, seconds: float) -> FeedAssetsError:
        """Return our error for an error of Kafka.

        After a long outage, the broker has aborted the transaction and answers as if another producer existed. That
        answer then counts as KafkaUnavailable, not as FencedOff.
        """
        action = f"signal {self.topic}/{self.partition}"
        return failure(action, error, may_be_fenced=not (is_fenced(error) and seconds > TRANSACTION_SECONDS))
