"""What a warehouse knows of its tables, in the warehouse itself: it changes in the transaction of their rows.

`positions` says of each topic partition up to where its table has it, `tables` of each topic its schema and shape,
`lease` who loads; `refused` has the places of rows that the warehouse could not hold.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from feed_assets.core.errors import WarehouseTaken
from feed_assets.warehouse.engines import Connection, Engine, literal
from feed_assets.warehouse.shapes import Shape
from feed_assets.warehouse.statements import DELETED, STATE

_TABLES = (
    f"CREATE SCHEMA IF NOT EXISTS {STATE}",
    f"CREATE SCHEMA IF NOT EXISTS {DELETED}",
    f"CREATE TABLE {STATE}.tables (topic text PRIMARY KEY, schema_id bigint, shape text, problem text, topic_id text)",
    f"CREATE TABLE {STATE}.positions (topic text, topic_partition integer, next_offset bigint NOT NULL, "
    "signal_offset bigint NOT NULL, loaded_at timestamptz NOT NULL, PRIMARY KEY (topic, topic_partition))",
    f"CREATE TABLE {STATE}.lease (id integer PRIMARY KEY, holder text NOT NULL, seen_at timestamptz NOT NULL)",
    f"CREATE TABLE {STATE}.refused (topic text, topic_partition integer, topic_offset bigint, "
    "reason text NOT NULL, refused_at timestamptz NOT NULL, PRIMARY KEY (topic, topic_partition, topic_offset))",
)


class Position(NamedTuple):
    """Where to go on in a topic partition: the first offset that is not loaded, and where its signal is looked for."""

    next_offset: int
    signal_offset: int


@dataclass(frozen=True)
class Known:
    """What the state tables have of a topic; its table is not there yet if it has no shape."""

    schema_id: int | None = None
    shape: Shape | None = None
    positions: Mapping[int, Position] = field(default_factory=dict[int, Position])
    topic_id: str | None = None
    """The broker's id of the topic that its positions are of."""


class TableState(NamedTuple):
    """A topic partition as the state tables have it; of a topic without any, the topic alone.

    `refused` are rows that the warehouse could not hold, `problem` why the table has stopped.
    """

    topic: str
    partition: int | None
    schema_id: int | None
    next_offset: int | None
    loaded_at: datetime | None
    refused: int
    problem: str | None


def prepare(connection: Connection) -> None:
    """Make the state tables, unless they are there: who made them may have had more rights."""
    if not exists(connection):
        for statement in ("BEGIN", *_TABLES, "COMMIT"):
            connection.execute(statement)


def exists(connection: Connection) -> bool:
    """Whether the state tables are there."""
    schema = f"SELECT 1 FROM information_schema.tables WHERE table_schema = {literal(STATE)} AND table_name = 'lease'"
    return bool(connection.execute(schema))


def take(connection: Connection, engine: Engine, holder: str, seconds: float) -> None:
    """Have the lease: it is free, ours, or nobody has renewed it for so many seconds. Raises WarehouseTaken."""
    connection.execute(
        f"INSERT INTO {STATE}.lease VALUES (1, {literal(holder)}, {engine.now}) ON CONFLICT (id) DO UPDATE SET "
        f"holder = excluded.holder, seen_at = excluded.seen_at WHERE lease.holder = excluded.holder "
        f"OR lease.seen_at < excluded.seen_at - INTERVAL '{seconds:f} seconds'"
    )
    [(found, seen_at)] = connection.execute(f"SELECT holder, seen_at FROM {STATE}.lease")
    if found != holder:
        raise WarehouseTaken(
            f"{found} loads this warehouse, and was seen at {seen_at:%Y-%m-%d %H:%M:%S%z}. One loader is all that it "
            f"needs: end this one, or the other; {seconds:g} s after its last sign of life the warehouse is free."
        )


def renew(connection: Connection, engine: Engine, holder: str) -> None:
    """Say that we are there; who waits for this row goes on when our transaction ends. Raises WarehouseTaken."""
    rows = f"UPDATE {STATE}.lease SET seen_at = {engine.now} WHERE holder = {literal(holder)} RETURNING holder"
    if not connection.execute(rows):
        raise WarehouseTaken(
            "another loader has taken this warehouse over, as it had not heard of this one for too long. What it has "
            "loaded is whole. End one of the two."
        )


def release(connection: Connection, holder: str) -> None:
    """Let the next loader begin at once."""
    connection.execute(f"DELETE FROM {STATE}.lease WHERE holder = {literal(holder)}")


def read(connection: Connection, topic: str) -> Known:
    """What is known of a topic."""
    where = f"WHERE topic = {literal(topic)}"
    tables = connection.execute(f"SELECT schema_id, shape, topic_id FROM {STATE}.tables {where}")
    rows = connection.execute(f"SELECT topic_partition, next_offset, signal_offset FROM {STATE}.positions {where}")
    schema_id, shape, topic_id = tables[0] if tables else (None, None, None)
    positions = {partition: Position(*offsets) for partition, *offsets in rows}
    return Known(schema_id, Shape.model_validate_json(shape) if shape else None, positions, topic_id)


def write(connection: Connection, engine: Engine, topic: str, known: Known) -> None:
    """Keep what is known of a topic now; it has no problem any more."""
    schema_id = "NULL" if known.schema_id is None else known.schema_id
    shape = "NULL" if known.shape is None else literal(known.shape.model_dump_json())
    topic_id = "NULL" if known.topic_id is None else literal(known.topic_id)
    connection.execute(
        f"INSERT INTO {STATE}.tables VALUES ({literal(topic)}, {schema_id}, {shape}, NULL, {topic_id}) ON CONFLICT "
        "(topic) DO UPDATE SET schema_id = excluded.schema_id, shape = excluded.shape, problem = NULL, "
        "topic_id = excluded.topic_id"
    )
    for partition, (next_offset, signal_offset) in known.positions.items():
        connection.execute(
            f"INSERT INTO {STATE}.positions VALUES ({literal(topic)}, {partition}, {next_offset}, {signal_offset}, "
            f"{engine.now}) ON CONFLICT (topic, topic_partition) DO UPDATE SET next_offset = excluded.next_offset, "
            "signal_offset = excluded.signal_offset, loaded_at = excluded.loaded_at"
        )


def note(connection: Connection, topic: str, problem: str) -> None:
    """Keep why a table has stopped."""
    connection.execute(
        f"INSERT INTO {STATE}.tables VALUES ({literal(topic)}, NULL, NULL, {literal(problem)}, NULL) "
        "ON CONFLICT (topic) DO UPDATE SET problem = excluded.problem"
    )


def tables(connection: Connection) -> list[TableState]:
    """Every topic partition that is known, by name and number."""
    refused = (
        f"SELECT count(*) FROM {STATE}.refused r WHERE r.topic = t.topic AND r.topic_partition = p.topic_partition"
    )
    rows = connection.execute(
        f"SELECT t.topic, p.topic_partition, schema_id, next_offset, loaded_at, ({refused}), problem "
        f"FROM {STATE}.tables t LEFT JOIN {STATE}.positions p ON p.topic = t.topic ORDER BY t.topic, p.topic_partition"
    )
    return [TableState(*each) for each in rows]
