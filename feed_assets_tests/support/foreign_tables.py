"""Event tables as other teams keep them, each with the source that reads it."""

import csv
import io
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa
from confluent_kafka.cimpl import NewPartitions, NewTopic

from feed_assets.core.events import WriteEvent
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.kafka.clients import Clients
from feed_assets.sources.event_files import FileEvents
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.sql import SqlEvents
from feed_assets.sources.topic_events import TopicEvents
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.transactions import commit

START = datetime(2010, 12, 1, 6, tzinfo=UTC)
NAMES = ("table_name", "marker", "event_marker", "correlation_id", "write_operation", "partition_key", "context")


def row(number: int, markers: str, **other: Any) -> dict[str, Any]:
    """Return a row of another team, with its context as JSON text.

    Its marker is number `number`: an instant or an integer.
    """
    marker = number if markers == "integer" else START + timedelta(seconds=number, microseconds=number)
    made = {"table_name": "retail/purchases/v1.0", "marker": marker, "event_marker": marker}
    made |= {"correlation_id": f"c-{number}", "write_operation": "UPSERT", "partition_key": f"p-{number % 3}"}
    return {**made, "context": json.dumps({"records": number}), **other}


def event(number: int, markers: str) -> WriteEvent:
    """Return the event that such a row becomes."""
    found = Columns().read(row(number, markers))
    assert isinstance(found, WriteEvent)
    return found


@dataclass
class Sql:
    """A table in a database, written as its owner writes it."""

    url: str
    markers: str
    order_by: str = "id"
    names: tuple[str, ...] = NAMES
    engine: sa.Engine = field(init=False)

    def __post_init__(self):
        self.engine = sa.create_engine(self.url)
        moment = sa.DateTime(timezone=True) if self.engine.dialect.name == "postgresql" else sa.Text()
        kinds = {name: sa.Text() for name in self.names}
        kinds["marker"] = kinds["event_marker"] = sa.BigInteger() if self.markers == "integer" else moment
        number = sa.Column("id", sa.Integer, primary_key=True, autoincrement=True)
        self.table = sa.Table("events", sa.MetaData(), number, *(sa.Column(*each) for each in kinds.items()))
        self.table.create(self.engine)

    def add(self, rows):
        """Insert the rows in one transaction; in SQLite moments are texts."""
        texts = self.engine.dialect.name == "sqlite"
        rows = [{key: str(v) if texts and isinstance(v, datetime) else v for key, v in each.items()} for each in rows]
        with self.engine.begin() as connection:
            connection.execute(sa.insert(self.table), rows)

    def source(self, columns: Columns | None = None, **options):
        return SqlEvents(self.url, "events", columns or Columns(), order_by=self.order_by, **options)

    def close(self):
        self.engine.dispose()


@dataclass
class Files:
    """A folder of event files: every third addition begins a new file, and each one does if the format cannot grow."""

    board: Blackboard
    format: str
    markers: str
    files: list[list[dict[str, Any]]] = field(default_factory=list)
    times: int = 0

    def add(self, rows):
        if self.times % 3 == 0 or self.format == "parquet":
            self.files.append([])
        self.times += 1
        self.files[-1].extend(rows)
        self.put(len(self.files), encoded(self.format, self.files[-1]))

    def put(self, number: int, data: bytes):
        self.board.put(f"their/events/{number:04d}.{self.format}", data)

    def source(self, columns: Columns | None = None):
        return FileEvents(self.board, "their/events", self.format, columns or Columns())

    def close(self):
        pass


@dataclass
class Topics:
    """A topic of one partition, whose producer writes in transactions and aborts some of them."""

    servers: str
    markers: str
    topic: str = field(default_factory=lambda: f"their-events-{uuid4().hex}")
    times: int = 0

    def __post_init__(self):
        self.clients = Clients({"bootstrap.servers": self.servers})
        self.admin = self.clients.admin()
        self.create()

    def create(self):
        topic = NewTopic(self.topic, 1, config={"max.message.bytes": str(4 << 20)})
        self.admin.create_topics([topic])[self.topic].result(120)
        self.begin()

    def recreate(self):
        """Delete the topic, and create it under the same name."""
        self.admin.delete_topics([self.topic])[self.topic].result(120)
        wait_until(lambda: self.topic not in self.admin.list_topics().topics, "the topic is gone")
        self.create()

    def begin(self):
        self.producer = self.clients.producer(self.topic, 60)
        self.producer.init_transactions(30)

    def grow(self, partitions):
        """Add partitions, and produce to them from now on."""
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(120)
        wait_until(lambda: len(self.admin.list_topics(self.topic).topics[self.topic].partitions) == partitions, "them")
        self.begin()

    def add(self, rows):
        """Send the rows in one transaction. Before every third one, abort another transaction."""
        self.times += 1
        if self.times % 3 == 0:
            self.send([row(99, self.markers)])
            self.producer.abort_transaction(30)
        self.send(rows)
        commit(self.producer, self.admin, self.topic)

    def send(self, rows):
        self.producer.begin_transaction()
        for each in rows:
            self.producer.produce(self.topic, json.dumps(each, default=str).encode())
        assert self.producer.flush(30) == 0

    def source(self, columns: Columns | None = None):
        return TopicEvents(self.clients, self.topic, "json", columns or Columns())

    def close(self):
        pass


def encoded(kind: str, rows: list[dict[str, Any]]) -> bytes:
    """Return the bytes of a file with these rows."""
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), written := io.BytesIO(), row_group_size=2)
        return written.getvalue()
    if kind == "jsonl":
        return "".join(json.dumps(each, default=str) + "\n" for each in rows).encode()
    writer = csv.DictWriter(text := io.StringIO(), list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def read_all(source, after=None, limit=10):
    """Read every batch after a position. Return events and rejected rows in order, and the last position."""
    events, rejected = [], []
    while True:
        batch = _read(source, after, limit)
        assert len(batch.events) + len(batch.rejected) <= limit
        events += batch.events
        rejected += batch.rejected
        after = batch.position
        if batch.is_complete:
            return events, rejected, after


def _read(source, after, limit):
    """Return the next batch, which waits for no transaction: a broker ends one after its commit was answered."""
    batches = []

    def has_no_open_transaction():
        batches.append(source.read(after, limit))
        return "a transaction in" not in (batches[-1].waits or "")

    wait_until(has_no_open_transaction, "ends of transactions")
    return batches[-1]
