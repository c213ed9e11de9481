"""Signals: messages that announce a chunk, on the downstream topic, in the partition with the same number.

The signals are the state: reading continues after the last one. A signal and its chunk's dead letters are written in
one transaction, by a producer with the topic partition's transactional id. Only the producer that opened it last can
write. An unfinished transaction of a killed producer is undone.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic

from confluent_kafka import Consumer, KafkaException, TopicPartition

from feed_assets.core.errors import FeedAssetsError, InvalidEvent, NoTopic, SignalsLost
from feed_assets.core.topics import dead_letters_of, signals_of
from feed_assets.kafka import avro, signal_checks, topic_reader
from feed_assets.kafka.clients import LONGEST, SECONDS, Clients, failure, is_fenced, translated
from feed_assets.kafka.companion_topics import About
from feed_assets.kafka.messages import DeadLetter, Message

SCHEMA = {
    "type": "record",
    "name": "Signal",
    "namespace": "feed_assets",
    "doc": "A chunk is there: these offsets of a topic partition are in this file. It will never change.",
    "fields": [
        {"name": "topic", "type": "string", "doc": "the upstream topic"},
        {"name": "partition", "type": "int"},
        {"name": "first_offset", "type": "long", "doc": "the offset behind the last one of the signal before"},
        {"name": "last_offset", "type": "long", "doc": "which counts"},
        {"name": "records", "type": "long", "doc": "lines of the file, without that of the names"},
        {"name": "dead_letters", "type": "long", "doc": "messages between these offsets that are no records"},
        {"name": "dialect", "type": "string", "doc": "of CSV"},
        {"name": "path", "type": ["null", "string"], "doc": "URL of the file; null where there are no records"},
        {"name": "size", "type": "long", "doc": "bytes of the file as it lies there"},
        {"name": "sha256", "type": ["null", "string"], "doc": "of the file as it lies there, hexadecimal"},
        {"name": "schema_id", "type": ["null", "int"], "doc": "of the values; null where all records are tombstones"},
        {
            "name": "minutes",
            "type": {"type": "map", "values": "long"},
            "doc": "messages by the minute of their timestamps, such as 2026-01-31T15:59Z; dead letters, too",
        },
        {"name": "topic_id", "type": "string", "doc": "of the broker; a topic that is made anew has another one"},
    ],
}
TRANSACTION_SECONDS = 60
"""Seconds after which the broker undoes an unfinished transaction."""

_ROOM = 4096
"""Bytes of a letter beyond its message: our headers, and the broker's overhead."""

LEFT = 4096
"""Bytes kept of a dead letter's value that is too long for the broker."""

OFFSET, TIMESTAMP = "feed_assets.offset", "feed_assets.timestamp"
"""Headers of a dead letter: its message's offset and, in milliseconds since 1970, its possibly invalid time."""

CUT = "feed_assets.cut"
"""The header of a cut letter, with the full length of its value in bytes."""

_PARSED = avro.parsed(json.dumps(SCHEMA), {})


@dataclass(frozen=True)
class Signal:
    """The content of a signal, with the fields of SCHEMA."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    dead_letters: int
    dialect: str
    path: str | None
    size: int
    sha256: str | None
    schema_id: int | None
    minutes: Mapping[str, int] = field(default_factory=dict[str, int])
    topic_id: str = ""

    @property
    def next_offset(self) -> int:
        """Return the offset at which the next chunk begins."""
        return self.last_offset + 1

    @classmethod
    def of(cls, value: bytes) -> "Signal":
        """Return the signal in a message's value. Raise InvalidEvent if no connector can have written it."""
        try:
            fields, remaining = avro.decoded(value, _PARSED)
            signal = cls(**fields)
        except Exception as error:  # The library may raise anything for the bytes.
            raise InvalidEvent(
                f"{value[:60]!r} is not a signal ({type(error).__name__}: {str(error)[:200]})."
            ) from error
        if remaining:
            raise InvalidEvent(f"{value[:60]!r} is a signal followed by {remaining} bytes: expected none.")
        signal_checks.check(signal)
        return signal

    def encoded(self, schema_id: int) -> bytes:
        """Return the signal as a message's value."""
        return avro.encoded(asdict(self), _PARSED, schema_id)


def minute_of(minutes: int) -> str:
    """Return a minute since 1970 in the form of signals."""
    return f"{datetime.fromtimestamp(60 * minutes, UTC):%Y-%m-%dT%H:%MZ}"


def last(reader: Consumer, topic: str, partition: int) -> Signal | None:
    """Return the last committed signal of a topic partition; None if there never was one.

    Raise SignalsLost if the broker has deleted it, or if somebody else has written after it; and KafkaUnavailable.
    """
    name = signals_of(topic)
    if messages := topic_reader.tail(reader, name, partition, bool):
        return _signal_of(topic, partition, messages[-1])
    with translated(f"read {name}/{partition}"):
        low, _ = reader.get_watermark_offsets(TopicPartition(name, partition), timeout=SECONDS)
    if low > 0:
        raise SignalsLost(
            f"{name}/{partition} has no signal, but had some: the broker has deleted those before offset {low}. Set "
            f"its retention.ms to -1, and delete the topic: then {topic}/{partition} is read again from its first "
            "offset. If that is no longer 0, declare it as another table, as other chunks would repeat messages."
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
            "its first offset. If that is no longer 0, declare it as another table."
        ) from error


def newest(clients: Clients, topic: str, limit: int) -> list[Signal]:
    """Return the last signals of each partition, newest first; none if there never were any. Raise KafkaUnavailable."""
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


def shortened(letter: DeadLetter) -> DeadLetter:
    """Return the beginning of a letter that is too long for a broker. Its headers name the full message's place."""
    value = letter.message.value or b""
    message = letter.message._replace(key=None, value=value[:LEFT], headers=[(CUT, str(len(value)).encode())])
    return DeadLetter(message, letter.reason)


def _size(message: Message) -> int:
    """Return the bytes of a message before compression."""
    headers = sum(len(name) + len(value or b"") for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers


class Signals:
    """Writer of one topic partition's signals. Once it exists, earlier writers can no longer write."""

    def __init__(self, clients: Clients, topic: str, partition: int, schema_id: int, about: About) -> None:
        self.topic, self.partition, self.topic_id, self._schema_id = topic, partition, about.topic_id, schema_id
        self._longest = min(about.longest, LONGEST) - _ROOM
        self._producer = clients.producer(f"{signals_of(topic)}/{partition}", TRANSACTION_SECONDS)
        with translated(f"begin to signal {topic}/{partition}", self._producer):
            self._producer.init_transactions(SECONDS)

    def write(self, signal: Signal, dead: Iterable[DeadLetter]) -> None:
        """Write a signal and its chunk's dead letters, all or none.

        Raise FencedOff; or KafkaUnavailable, after which both are possible: `last` shows which, after a new writer is
        made.
        """
        began = monotonic()
        try:
            self._producer.begin_transaction()
            for each in dead:
                self._bury(shortened(each) if _size(each.message) > self._longest else each)
            stamped = replace(signal, topic_id=self.topic_id)
            self._producer.produce(signals_of(self.topic), stamped.encoded(self._schema_id), partition=self.partition)
            self._producer.commit_transaction(SECONDS)
        except KafkaException as error:
            raise self._failed(error, monotonic() - began) from error

    def _bury(self, letter: DeadLetter) -> None:
        """Produce the message unchanged, with its headers and ours: the reason, and its place."""
        message = letter.message
        values = {"feed_assets.topic": self.topic, "feed_assets.partition": self.partition, OFFSET: message.offset}
        values |= {TIMESTAMP: max(0, message.timestamp), "feed_assets.reason": letter.reason}
        headers = [(name, str(value).encode(errors="replace")) for name, value in values.items()]

        self._producer.produce(
            dead_letters_of(self.topic),
            message.value,
            message.key,
            self.partition,
            headers=[*message.headers, *headers],
        )

    def _failed(self, error: KafkaException, seconds: float) -> FeedAssetsError:
        """Return our error. After a long outage the broker has undone the transaction, and answers as if fenced off."""
        action = f"signal {self.topic}/{self.partition}"
        return failure(action, error, may_be_fenced=not (is_fenced(error) and seconds > TRANSACTION_SECONDS))
