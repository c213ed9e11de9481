"""A topic to chunks and signals, over a real broker, against a bare loop that decodes the same messages to CSV."""

import csv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import process_time, sleep
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from fastavro import schemaless_reader

from benchmarks import Benchmark, Goal, Pair
from feed_assets.core.topics import ChunkFormat, Topic, dead_letters_of, signals_of
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka import avro, service
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.offset_range import Chunking
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets_tests.support.kafka_servers import kafka_server, registry_server

NAME, PARTITIONS, IN_CHUNK = "bench.clicks", 4, 50_000
SCHEMA = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "user", "type": "long"},
        {"name": "price", "type": ["null", "double"]},
        {"name": "page", "type": "string"},
        {"name": "agent", "type": ["null", "string"]},
    ],
}
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "string"}]}
PAGE, AGENT = f"/shop/{'x' * 60}", f'Mozilla/5.0, "{"y" * 60}"'


class Clicks:
    """Producer of messages of about 200 bytes, of which 5 % are deletes and 30 % updates."""

    def __init__(self, servers: str, schemas: Schemas) -> None:
        self._ids = [schemas.register(f"{NAME}-{what}", each) for what, each in (("value", SCHEMA), ("key", KEY))]
        self._schemas = [schemas.get(each) for each in self._ids]
        self._producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
        self._dice = Random(1)  # noqa: S311

    def send(self, count: int) -> None:
        """Produce `count` messages; return when the broker has them."""
        for number in range(count):
            name = {"id": f"click-{number % 200_000:012}"}
            click = {**name, "at": 1_767_225_600_000_000 + number, "user": number % 9973, "price": number / 7}
            click |= {"page": PAGE, "agent": AGENT if number % 3 else None}
            value, key = (avro.encoded(*each) for each in zip((click, name), self._schemas, self._ids, strict=True))
            (operation,) = self._dice.choices((b"create", b"update", b"delete"), (65, 30, 5))
            self._producer.produce(NAME, value, key, number % PARTITIONS, headers=[("op", operation)])
            self._producer.poll(0)
        self._producer.flush()


class _Enough(Event):
    """Stop event that is set once `chunks` chunks are signalled."""

    def __init__(self, chunks: int) -> None:
        super().__init__()
        self._left = chunks

    def step(self, what: str) -> None:
        self._left -= what == "signalled"
        if not self._left:
            self.set()


def _chunked(servers: str, schemas: Schemas, folder: Path, count: int, form: ChunkFormat = "csv") -> None:
    """Run the connector until all messages are signalled."""
    enough = _Enough(count // IN_CHUNK)
    board = Blackboard.open(folder.as_uri())
    chunking = Chunking(Clients({"bootstrap.servers": servers}), schemas, board, enough.step)
    topic = Topic(key=("id",), messages=IN_CHUNK, seconds=600, operation="header:op", format=form)
    service.run(chunking, {NAME: topic}, enough)


def _bare(servers: str, schemas: Schemas, folder: Path, count: int) -> None:
    """Consume, decode and write in one loop."""
    schema = schemas.get(schemas.register(f"{NAME}-value", SCHEMA)).declared
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", "enable.auto.commit": False})
    consumer.assign([TopicPartition(NAME, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
    with (folder / "bare.csv").open("w", newline="") as file:
        writer, left = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC), count
        while left:
            for message in consumer.consume(1000, 1):
                stream = BytesIO(message.value())
                stream.seek(5)
                found = cast(dict[str, Any], schemaless_reader(stream, cast(Any, schema), None))
                writer.writerow([dict(message.headers())["op"].decode(), message.offset(), *found.values()])
                left -= 1
    consumer.close()


def _forget(servers: str, folder: Path) -> None:
    """Delete all output topics and chunks of the topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    names = [name for name in (signals_of(NAME), dead_letters_of(NAME)) if name in admin.list_topics().topics]
    for each in (admin.delete_topics(names) if names else {}).values():
        each.result()
    while {*names} & {*admin.list_topics().topics}:
        sleep(0.05)
    for file in [*folder.rglob("*.csv"), *folder.rglob("*.parquet")]:
        file.unlink()


@contextmanager
def served(count: int) -> Iterator[tuple[str, Schemas, Path]]:
    """Start a broker with `count` messages, a registry with their schemas, and a folder for chunks."""
    with ExitStack() as stack:
        root = stack.enter_context(TemporaryDirectory())
        broker = stack.enter_context(kafka_server(_made(root, "kafka")))
        registry = stack.enter_context(registry_server(_made(root, "registry")))
        admin, folder = AdminClient({"bootstrap.servers": broker.servers}), _made(root, "board")
        admin.create_topics([NewTopic(NAME, PARTITIONS)])[NAME].result()
        with closing(Schemas(registry.url)) as schemas:
            Clicks(broker.servers, schemas).send(count)
            yield broker.servers, schemas, folder


def _made(root: str, name: str) -> Path:
    (folder := Path(root, name)).mkdir()
    return folder


@contextmanager
def against_a_bare_loop(count: int) -> Iterator[Pair]:
    """Compare both on a topic with `count` messages; each round makes all chunks anew."""
    with served(count) as (servers, schemas, folder):
        ours, theirs = (partial(each, servers, schemas, folder, count) for each in (_chunked, _bare))
        yield Pair(ours, theirs, partial(_forget, servers, folder))


@contextmanager
def in_parquet(count: int) -> Iterator[Pair]:
    """Compare chunks in Parquet with the same chunks in CSV."""
    with served(count) as (servers, schemas, folder):
        forget = partial(_forget, servers, folder)

        def in_csv() -> None:
            forget()
            _chunked(servers, schemas, folder, count)

        yield Pair(partial(_chunked, servers, schemas, folder, count, "parquet"), in_csv, forget)


@contextmanager
def connector(chunking: Chunking) -> Iterator[None]:
    """Run the service with a time limit of one second; wait until earlier messages are signalled."""
    with stopped(partial(service.run, chunking, {NAME: Topic(key=("id",), seconds=1, operation="header:op")})):
        sleep(3)
        yield


@contextmanager
def stopped(work: Callable[[Event], None]) -> Iterator[None]:
    """Run `work` in a thread beside the block; stop it when the block ends."""
    stopping = Event()
    thread = Thread(target=work, args=(stopping,))
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@contextmanager
def to_a_signal() -> Iterator[Pair]:
    """Produce a message and wait for its signal."""
    with served(PARTITIONS) as (servers, schemas, folder):
        signalled, clicks = Event(), Clicks(servers, schemas)
        chunking = Chunking(
            Clients({"bootstrap.servers": servers}),
            schemas,
            Blackboard.open(folder.as_uri()),
            lambda what: signalled.set() if what == "signalled" else None,
        )

        def one() -> None:
            signalled.clear()
            clicks.send(1)
            signalled.wait()

        with connector(chunking):
            yield Pair(one, lambda: sleep(1))


def _benchmark(name: str, count: int, *, large: bool) -> Benchmark:
    return Benchmark(
        name,
        f"{count:,} messages of a topic (4 partitions, Avro, 200 bytes) to chunks and signals",
        "one bare loop: confluent-kafka, fastavro, csv",
        Goal(1.43),
        5,
        2,
        partial(against_a_bare_loop, count),
        large=large,
    )


BENCHMARKS = [
    _benchmark("chunks-200k", 200_000, large=False),
    _benchmark("chunks", 2_000_000, large=True),
    Benchmark(
        "chunks-parquet-200k",
        "CPU: 200,000 messages of a topic to chunks in Parquet",
        "the same to CSV",
        Goal(1.43),
        5,
        2,
        partial(in_parquet, 200_000),
        clock=process_time,
    ),
    Benchmark(
        "chunk-latency",
        "a message produced to its signal, with a time limit of 1 s",
        "the second",
        Goal(1.5),
        100,
        10,
        to_a_signal,
        tail=99,
    ),
]
