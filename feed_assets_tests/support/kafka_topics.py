"""A topic, its producer, and clients of the test's own that read what was made of it."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pyarrow.parquet as parquet
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic

from feed_assets.core.chunks import PARQUET, ending_of
from feed_assets.core.topics import Topic, dead_letters_of, signals_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import avro, companion_topics, dialect
from feed_assets.kafka.chunk_files import FOLDER
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.offset_range import Chunking
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.kafka.signal_message import SCHEMA, Signal
from feed_assets_tests.support.connector_thread import Connector
from feed_assets_tests.support.kafka_servers import Broker, Registry
from feed_assets_tests.support.servers import wait_until

FIELDS = [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]
MORE = [*FIELDS, {"name": "note", "type": ["null", "string"], "default": None}]
KEYS = [{"name": "id", "type": "string"}]
POISON = b"no Avro at all"
_SIGNAL = avro.parsed(json.dumps(SCHEMA), {})


@dataclass(frozen=True)
class Place:
    """Addresses of broker, registry and blackboard, in a form that can be passed to another process."""

    servers: str
    registry: str
    board: str
    endpoint: str | None = None
    group: str = field(default_factory=lambda: f"group-{uuid4().hex}")
    conf: Mapping[str, str] = field(default_factory=dict)
    mask_key: bytes = b""

    def chunking(self, member: str = "", **changes: Any) -> Chunking:
        conf = {"bootstrap.servers": self.servers, "group.id": self.group, **QUICK, **self.conf}
        conf |= {"group.instance.id": member} if member else {}
        changes = {"mask_key": self.mask_key, **changes}
        board = Blackboard.open(self.board, endpoint=self.endpoint, **_keys(self.board))
        return Chunking(Clients(conf), Schemas(self.registry), board, **changes)


QUICK = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
    "topic.metadata.refresh.interval.ms": "300",
    "fetch.wait.max.ms": "50",
    "reconnect.backoff.max.ms": "500",
}


def _keys(url: str) -> dict[str, Any]:
    """Return the credentials of the environment directly: boto3 needs a tenth of a second to find them."""
    if not url.startswith("s3:"):
        return {}
    names = {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"}
    found = {key: os.environ[name] for key, name in names.items()}
    return {"credentials": lambda: {**found, "token": None, "expires_at": None}}


class World:
    """One topic with its schemas; `settings` define its chunks."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.name = f"clicks.{uuid4().hex}"
        self.settings = Topic(key=("id",), messages=10, seconds=0.5, operation="header:op")
        self._conf = {"bootstrap.servers": place.servers, "log_level": 0}
        self.admin = AdminClient(self._conf)
        self.board = Blackboard.open(place.board, endpoint=place.endpoint, **_keys(place.board))
        self._number = 0

    @classmethod
    @contextmanager
    def of(cls, broker: Broker, registry: Registry, board: str, endpoint: str | None = None) -> "Iterator[World]":
        made = cls(Place(broker.servers, registry.url, board, endpoint))
        with closing(made.schemas):
            yield made

    @cached_property
    def schemas(self) -> Schemas:
        return Schemas(self.place.registry)

    @cached_property
    def key_id(self) -> int:
        return self.schema_id(KEYS, "key")

    @cached_property
    def producer(self) -> Producer:
        return Producer({**self._conf, "linger.ms": 0})

    def change(self, **settings: Any) -> None:
        """Change settings of the topic."""
        self.settings = self.settings.model_copy(update=settings)

    def create(self, partitions: int = 1, **config: str) -> None:
        self.admin.create_topics([NewTopic(self.name, partitions, 1, config=config)])[self.name].result(120)
        wait_until(lambda: companion_topics.partitions(self.admin, self.name) == partitions, "the topic")

    def configure(self, **config: str) -> None:
        """Set entries of the topic's configuration."""
        set_ = AlterConfigOpType.SET
        entries = [ConfigEntry(name, value, incremental_operation=set_) for name, value in config.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.name, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(120)

    def grow(self, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(120)
        wait_until(lambda: companion_topics.partitions(self.admin, self.name) == partitions, "the partitions")
        self.__dict__.pop("producer")  # Its metadata have the old number.

    def delete(self, name: str) -> None:
        """Delete a topic, and return once it is gone."""
        self.admin.delete_topics([name])[name].result(120)
        wait_until(lambda: not companion_topics.partitions(self.admin, name), "the topic to be gone")
        self.__dict__.pop("producer", None)  # Its metadata have the old topic.

    def schema_id(self, fields: Sequence[Any] = FIELDS, what: str = "value") -> int:
        schema = {"type": "record", "name": what, "fields": [*fields]}
        return self.schemas.register(f"{self.name}-{what}", schema)

    def value(self, number: int, fields: Sequence[Any] = FIELDS) -> bytes:
        schema_id = self.schema_id(fields)
        datum = {"id": f"k{number % 7}", "n": number, **({"note": f"é, {number}"} if fields is MORE else {})}
        return avro.encoded(datum, self.schemas.get(schema_id), schema_id)

    def key(self, number: int) -> bytes:
        return avro.encoded({"id": f"k{number % 7}"}, self.schemas.get(self.key_id), self.key_id)

    def produce(self, count: int = 1, partition: int = 0, fields: Sequence[Any] = FIELDS) -> None:
        """Produce so many messages, each with a new number. Return once the broker has them."""
        for number in range(self._number, self._number + count):
            self._send(self.value(number, fields), number, partition)
        self._number += count
        assert self.producer.flush(30) == 0

    def send(self, value: bytes | None, number: int = 0, partition: int = 0, op: str = "update") -> None:
        """Send one message with any content. Return once the broker has it."""
        self._send(value, number, partition, op)
        assert self.producer.flush(30) == 0

    def _send(self, value: bytes | None, number: int, partition: int, op: str = "update") -> None:
        headers = [("op", op.encode())]
        self.producer.produce(self.name, value, self.key(number), partition, headers=headers)
        self.producer.poll(0)

    def messages(self, topic: str | None = None) -> list[Any]:
        """Return the committed messages of all partitions of a topic, in order."""
        name = topic or self.name
        found = self.admin.list_topics(name, timeout=30).topics[name]
        if found.error is not None:
            return []
        conf = {
            **self._conf,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
        reader = Consumer({**conf, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
        reader.assign([TopicPartition(name, number, 0) for number in found.partitions])
        try:
            return sorted(
                _until_ends(reader, len(found.partitions)), key=lambda each: (each.partition(), each.offset())
            )
        finally:
            reader.close()

    def signals(self, partition: int = 0) -> list[Signal]:
        found = [each for each in self.messages(signals_of(self.name)) if each.partition() == partition]
        return [Signal(**avro.decoded(each.value(), _SIGNAL)[0]) for each in found]

    def dead_letters(self) -> list[Any]:
        return self.messages(dead_letters_of(self.name))

    def file(self, signal: Signal) -> bytes:
        content = self.board.get((signal.path or "").removeprefix(f"{self.board.url}/"))
        assert content is not None, f"{signal.path} is not there"
        return content

    def rows(self, signal: Signal) -> list[dict[str, str | None]]:
        if ending_of(signal.path or "") == PARQUET:
            rows = parquet.read_table(BytesIO(self.file(signal))).to_pylist()
            return [{name: None if each is None else str(each) for name, each in row.items()} for row in rows]
        names, *lines = dialect.read(self.unpacked(signal))
        return [dict(zip(names, line, strict=True)) for line in lines]

    def files(self) -> set[str]:
        return {file.key for file in self.board.files(FOLDER)}

    def end(self, partition: int = 0) -> int:
        """Return the offset behind the last message."""
        found = [each.offset() for each in self.messages() if each.partition() == partition]
        return max(found, default=-1) + 1

    def is_done(self, partitions: int = 1) -> bool:
        """Return True if every produced message is signalled."""
        return all(self.reached(number) >= self.end(number) for number in range(partitions))

    def reached(self, partition: int = 0) -> int:
        return max((each.next_offset for each in self.signals(partition)), default=0)

    def committed(self, found: list[Signal]) -> list[Signal]:
        """Return the signals once readers see them: the broker writes the end of a transaction after its answer."""
        for number, signal in {each.partition: each for each in found}.items():
            wait_until(lambda at=number, end=signal.next_offset: self.reached(at) >= end, "a signal to be committed")
        return found

    def check(self, partitions: int = 1, first: int = 0) -> None:
        """Assert that every produced message is once in a signalled chunk or dead letter, and files match signals."""
        produced = Counter((each.partition(), each.offset()) for each in self.messages())
        told = self.told(partitions, first)
        assert told == produced, f"lost or twice: {(produced - told) or (told - produced)}"

    def told(self, partitions: int = 1, first: int = 0) -> Counter[tuple[int, int]]:
        """Return how often each offset is in a signalled chunk or a dead letter. Assert that signals have no holes."""
        told = Counter((each.partition(), int(header(each, "offset"))) for each in self.dead_letters())
        for number in range(partitions):
            signals = self.signals(number)
            assert [each.first_offset for each in signals[:1]] in ([], [first]), "a hole at the beginning"
            assert all(one.next_offset == other.first_offset for one, other in pairwise(signals)), "a hole, or twice"
            for signal in signals:
                told.update((number, offset) for offset in self.offsets(signal))
        return told

    def unpacked(self, signal: Signal) -> bytes:
        content = self.file(signal)
        return gzip.decompress(content) if self.settings.gzip else content

    def offsets(self, signal: Signal) -> list[int]:
        """Return the offsets of a chunk's rows. Assert that the chunk is as its signal says."""
        if signal.path is None:
            assert (signal.records, signal.size, signal.sha256) == (0, 0, None)
            return []
        content = self.file(signal)
        assert (signal.size, signal.sha256) == (len(content), sha256(content).hexdigest()), f"{signal.path} was changed"
        found = [int(row["_offset"] or "") for row in self.rows(signal)]
        assert len(found) == signal.records
        assert all(signal.first_offset <= offset <= signal.last_offset for offset in found)
        return found

    def connector(
        self, member: str = "one", place: Place | None = None, **changes: Any
    ) -> "AbstractContextManager[Connector]":
        """Run a connector in a thread until the block ends. Raise the error if one ended it."""
        return Connector((place or self.place).chunking(member, **changes), {self.name: self.settings}).running()

    def run_until_it_fails(self, **changes: Any) -> None:
        """Run a connector until it fails, and raise its error."""
        with self.connector(**changes) as running:
            running.wait(lambda: False, "an error")

    def run_until_done(self, partitions: int = 1, **changes: Any) -> None:
        """Run a connector until all that was produced before is signalled."""
        ends = [self.end(number) for number in range(partitions)]  # Once: each look reads the whole topic.
        with self.connector(**changes) as running:
            running.wait(
                lambda: all(self.reached(number) >= end for number, end in enumerate(ends)), "all to be signalled"
            )


def header(message: Any, name: str) -> str:
    return dict(message.headers())[f"feed_assets.{name}"].decode()


def _until_ends(reader: Consumer, partitions: int) -> Iterator[Any]:
    left = partitions
    while left:
        message = reader.poll(30)
        assert message is not None, "the broker does not answer"
        if message.error() is None:
            yield message
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            left -= 1
