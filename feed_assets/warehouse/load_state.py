"""State of a warehouse's tables, stored in the warehouse. It changes in the same transaction as the tables' rows.

`positions` has the offset up to which each topic partition is loaded. `tables` has each topic's schema and shape.
`lease` has the loader that may write. `refused` has the rows that the warehouse could not store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import index
from typing import NamedTuple

from feed_assets.core.errors import LeaseHeld, LoadFailed, WarehouseTaken
from feed_assets.core.limits import NAME_BYTES
from feed_assets.core.sql_text import literal, quoted, storable
from feed_assets.warehouse import loader_tables, union_topics
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.loader_tables import LoaderTable
from feed_assets.warehouse.shapes import Shape
from feed_assets.warehouse.statements import DELETED, STATE

_MOST_OF_A_PROBLEM = 16_000
"""The most characters of a problem: in UTF-8 they fit into a text column of any warehouse."""

MOST_ROWS = 10_000
"""The most topic partitions in the state tables, which a reader holds in memory."""

WHOLE_PROBLEMS, _CUT_PROBLEM = 1_000, 200
"""The number of rows whose whole problem is read, and the number of characters that are read of other problems."""

_NOBODY = ""
"""Holder of a released lease. The row is kept: loaders that start together both update it, so one must wait."""


class Position(NamedTuple):
    """The progress of loading a topic partition: the first offset that is not loaded.

    `signal_offset` is the offset from which to read the topic of signals.
    """

    next_offset: int
    signal_offset: int


@dataclass(frozen=True)
class TopicState:
    """The state of a topic in the state tables. `shape` has its table's columns. If it is None, no table exists yet."""

    schema_id: int | None = None
    shape: Shape | None = None
    positions: Mapping[int, Position] = field(default_factory=dict[int, Position])
    topic_id: str | None = None
    """The broker's id of the topic to which the positions belong."""


class TableState(NamedTuple):
    """A topic partition in the state tables. For a topic without positions, the partition is None.

    `refused` counts rows that the warehouse could not store. `problem` is the reason why the table has stopped.
    """

    topic: str
    partition: int | None
    schema_id: int | None
    next_offset: int | None
    loaded_at: datetime | None
    refused: int
    problem: str | None
    place: str | None = None
    """The partition's name: its number, or `topic-0` in a table of several topics."""


_LONGEST_SHAPE = 1 << 20
"""Greatest number of characters of a shape. A table with thousands of columns needs fewer."""

_LONGEST_HOLDER = 200

_TABLES = (
    LoaderTable(
        "tables",
        ("topic {text} PRIMARY KEY", "schema_id bigint", "shape {text}", "problem {text}", "topic_id {text}"),
    ),
    LoaderTable(
        "positions",
        (
            "topic {text}",
            "topic_partition integer",
            "next_offset bigint NOT NULL",
            "signal_offset bigint NOT NULL",
            "loaded_at timestamptz NOT NULL",
        ),
        ("PRIMARY KEY (topic, topic_partition)",),
    ),
    LoaderTable("lease", ("id integer PRIMARY KEY", "holder {text} NOT NULL", "seen_at timestamptz NOT NULL")),
    LoaderTable(
        "refused",
        (
            "topic {text}",
            "topic_partition integer",
            "topic_offset bigint",
            "reason {text} NOT NULL",
            "refused_at timestamptz NOT NULL",
        ),
        ("PRIMARY KEY (topic, topic_partition, topic_offset)",),
        later=("row_json {text}",),
    ),
)


_CHANGES = LoaderTable(
    "changes",
    (
        "topic {text} PRIMARY KEY",
        "statements {text} NOT NULL",
        "done bigint NOT NULL",
        "schema_id bigint",
        "shape {text}",
    ),
)
"""Changes of tables that were begun, for warehouses where they commit: see `table_changes`."""


def _tables(engine: Engine) -> tuple[LoaderTable, ...]:
    return (*_TABLES, _CHANGES) if engine.ddl_commits else _TABLES


def create(engine: Engine) -> tuple[str, ...]:
    """Return the statements that create the state tables."""
    schemas = [f"CREATE SCHEMA IF NOT EXISTS {each}" for each in (STATE, DELETED)]
    if engine.ddl_commits:  # Each statement may be the last one before a kill, or run beside another loader's.
        begin = "CREATE TABLE IF NOT EXISTS"
        values = ("CAST(1 AS bigint) AS id", "CAST('' AS {}) AS holder", "CAST({} AS timestamptz) AS seen_at")
        row = ", ".join(values).format(engine.text, engine.now)
        lease = f"{begin} {STATE}.lease AS SELECT {row}"
        tables = [each.create(engine, begin) for each in _tables(engine) if each.name != "lease"]
        return (*schemas, *tables, lease)
    tables, positions, lease, refused = (each.create(engine) for each in _TABLES)
    return (*schemas, tables, positions, lease, _lease_of_nobody(engine), refused)


def prepare(connection: Connection, engine: Engine) -> None:
    """Create the state tables if they are missing. Another loader may create them at the same time.

    Raise LoadFailed if the tables or their schemas could run code of another role.
    """
    if engine.ddl_commits:
        if loader_tables.missing(connection, engine, _tables(engine)):
            for each in create(engine):
                connection.execute(each)
    elif not exists(connection, engine):
        loader_tables.refuse_planted(connection, engine)
        _create(connection, engine)
    loader_tables.add_later(connection, engine, _TABLES)
    loader_tables.refuse_planted(connection, engine)  # Another role may have created the tables just before us.


def _create(connection: Connection, engine: Engine) -> None:
    try:
        for statement in ("BEGIN", *create(engine), "COMMIT"):
            connection.execute(statement)
    except LoadFailed:
        connection.execute("ROLLBACK")
        if not exists(connection, engine):
            raise


def exists(connection: Connection, engine: Engine) -> bool:
    """Return whether the tables with the loader's state exist. Raise LoadFailed if they are altered or untrusted."""
    return loader_tables.exist(connection, engine, _tables(engine))


def take(connection: Connection, engine: Engine, holder: str, seconds: float) -> None:
    """Take the lease if it is free, ours, or not renewed for `seconds`. Raise LeaseHeld otherwise."""
    connection.execute(_lease_of_nobody(engine))  # Somebody may have deleted the lease's row by hand.
    connection.execute(
        f"UPDATE {STATE}.lease SET holder = {literal(holder)}, seen_at = {engine.now} "
        f"WHERE holder IN ({literal(holder)}, {literal(_NOBODY)}) "
        f"OR seen_at < {engine.now} - INTERVAL '{seconds * 1000:.0f} milliseconds'"
    )
    current_holder, seen_at = _lease(connection)
    if current_holder != holder:
        raise LeaseHeld(
            f"{current_holder[:_LONGEST_HOLDER]} loads this warehouse, and was last seen at "
            f"{seen_at:%Y-%m-%d %H:%M:%S%z}: expected only one loader. End this one, or the other; {seconds:g} s after "
            "its last sign of life the warehouse is free.",
            (current_holder, seen_at),
        )


def _lease(connection: Connection) -> tuple[str, datetime]:
    """Return the holder of the lease, and the time of its last renewal. Raise LoadFailed for an invalid lease."""
    rows = connection.execute(f"SELECT holder, CAST(seen_at AS text) FROM {STATE}.lease")
    if len(rows) != 1 or None in rows[0] or not loader_tables.is_moment(rows[0][1]):
        advice = f"Delete its rows: DELETE FROM {STATE}.lease."
        raise loader_tables.altered("lease", loader_tables.rows_text(rows), "one row with a holder and a time", advice)
    return rows[0][0], datetime.fromisoformat(rows[0][1])


def _lease_of_nobody(engine: Engine) -> str:
    """Return the statement that adds the lease's row if it is missing.

    It also runs in the transaction that creates the table, so two loaders never add two rows.
    """
    row = f"SELECT 1, {literal(_NOBODY)}, {engine.now}"
    return f"INSERT INTO {STATE}.lease {row} WHERE NOT EXISTS (SELECT 1 FROM {STATE}.lease)"


def renew(connection: Connection, engine: Engine, holder: str) -> None:
    """Renew this loader's lease on the warehouse. Raise WarehouseTaken if another loader has taken it.

    Other loaders wait until our transaction ends.
    """
    condition = f"WHERE holder = {literal(holder)}"
    connection.execute(f"UPDATE {STATE}.lease SET seen_at = {engine.now} {condition}")
    if not connection.execute(f"SELECT 1 FROM {STATE}.lease {condition}"):
        raise WarehouseTaken(
            "another loader has taken over this warehouse, because this one did not renew its lease in time. The "
            "loaded data are complete. End one of the two."
        )


def release(connection: Connection, holder: str) -> None:
    """Release the lease, so that the next loader can begin at once."""
    connection.execute(f"UPDATE {STATE}.lease SET holder = {literal(_NOBODY)} WHERE holder = {literal(holder)}")


def read(connection: Connection, topic: str) -> TopicState:
    """Return the stored state of a topic. Raise LoadFailed for a state that no load can have written."""
    schema_id, shape, topic_id = _table(connection, topic)
    return TopicState(schema_id, shape, _positions(connection, topic), topic_id)


def shape(connection: Connection, topic: str) -> Shape | None:
    """Return the stored shape of a topic's table, even if its positions are invalid. Raise LoadFailed like `read`."""
    return _table(connection, topic)[1]


def _table(connection: Connection, topic: str) -> tuple[int | None, Shape | None, str | None]:
    where = f"WHERE topic = {literal(topic)}"
    shape_text = f"left(shape, {_LONGEST_SHAPE})"  # A cut shape is invalid JSON, so only this table stops.
    rows = connection.execute(f"SELECT schema_id, {shape_text}, topic_id FROM {STATE}.tables {where}")
    if not rows:
        return None, None, None
    try:
        [(schema_id, shape, topic_id)] = rows
        number = None if schema_id is None else index(schema_id)  # Statements contain the id, so it must be a number.
        return number, Shape.model_validate_json(shape) if shape else None, topic_id
    except (TypeError, ValueError) as error:
        dropped = " and ".join((quoted(topic), f"{DELETED}.{quoted(topic)}"))
        deleted = " and ".join(f"DELETE FROM {STATE}.{each} {where}" for each in ("tables", "positions"))
        advice = f"Drop the tables {dropped}, then run {deleted}: all signalled messages are loaded again."
        expected = f"one row of {topic} with the shape that a load has written"
        raise loader_tables.altered("tables", loader_tables.rows_text(rows), expected, advice) from error


def _positions(connection: Connection, topic: str) -> dict[int, Position]:
    where = f"WHERE topic = {literal(topic)}"
    rows = connection.execute(f"SELECT topic_partition, next_offset, signal_offset FROM {STATE}.positions {where}")
    positions = {partition: Position(*offsets) for partition, *offsets in rows}
    wrong = [row for row in rows if not all(map(loader_tables.is_number, row))]
    if wrong or len(positions) < len(rows):
        expected = f"one row for each partition of {topic} with offsets of 0 or more"
        raise loader_tables.altered(
            "positions", loader_tables.rows_text(wrong or rows), expected, loader_tables.reset_advice(topic)
        )
    return positions


def write(connection: Connection, engine: Engine, topic: str, before: TopicState, state: TopicState) -> None:
    """Store the new state of a topic, with only the positions that differ from `before`. Clear its problem."""
    schema_id = "NULL" if state.schema_id is None else state.schema_id
    shape = "NULL" if state.shape is None else literal(state.shape.model_dump_json())
    topic_id = "NULL" if state.topic_id is None else literal(state.topic_id)
    connection.execute(f"DELETE FROM {STATE}.tables WHERE topic = {literal(topic)}")
    connection.execute(f"INSERT INTO {STATE}.tables VALUES ({literal(topic)}, {schema_id}, {shape}, NULL, {topic_id})")
    moved = {number: each for number, each in state.positions.items() if each != before.positions.get(number)}
    if moved:
        where = f"topic = {literal(topic)} AND topic_partition IN ({', '.join(map(str, moved))})"
        rows = [
            f"({literal(topic)}, {number}, {', '.join(map(str, each))}, {engine.now})" for number, each in moved.items()
        ]
        connection.execute(f"DELETE FROM {STATE}.positions WHERE {where}")
        connection.execute(f"INSERT INTO {STATE}.positions VALUES {', '.join(rows)}")


def note(connection: Connection, topic: str, problem: str) -> None:
    """Store why a table has stopped. Cut the text if it is too long, and remove characters that cannot be stored."""
    text = storable(problem[:_MOST_OF_A_PROBLEM])
    where = f"WHERE topic = {literal(topic)}"
    connection.execute(
        f"INSERT INTO {STATE}.tables (topic) SELECT {literal(topic)} "
        f"WHERE NOT EXISTS (SELECT 1 FROM {STATE}.tables {where})"
    )
    connection.execute(f"UPDATE {STATE}.tables SET problem = {literal(text)} {where}")


def tables(connection: Connection) -> list[TableState]:
    """Return every topic partition in the state tables, sorted by topic and partition number.

    `loaded_at` is None if no load can have written it. Rows whose name is too long for a topic or dataset are left out,
    and long problems are cut. Raise LoadFailed for more than `MOST_ROWS` rows.
    """
    moment = f"CASE WHEN {loader_tables.is_possible('loaded_at')} THEN loaded_at END"
    refused = f"SELECT topic, topic_partition, count(*) AS refused FROM {STATE}.refused GROUP BY topic, topic_partition"
    order = "ORDER BY t.topic, p.topic_partition"
    is_whole = f"row_number() OVER ({order}) <= {WHOLE_PROBLEMS}"
    problem = f"left(problem, CASE WHEN {is_whole} THEN {_MOST_OF_A_PROBLEM} ELSE {_CUT_PROBLEM} END)"
    rows = connection.execute(
        f"SELECT t.topic, p.topic_partition, schema_id, next_offset, {moment}, COALESCE(r.refused, 0), {problem} "
        f"FROM {STATE}.tables t LEFT JOIN {STATE}.positions p ON p.topic = t.topic "
        f"LEFT JOIN ({refused}) r ON r.topic = p.topic AND r.topic_partition = p.topic_partition "
        f"WHERE length(t.topic) <= {NAME_BYTES} {order} LIMIT {MOST_ROWS + 1}"
    )
    if len(rows) > MOST_ROWS:
        advice = f"Delete the rows of {STATE}.tables and {STATE}.positions that no load has written."
        raise loader_tables.altered("tables", f"more than {MOST_ROWS:,} rows", "one for each partition", advice)
    topics = union_topics.topics_of(connection)
    states = [TableState(*each) for each in rows]
    return [each._replace(place=union_topics.name_of(topics.get(each.topic), each.partition)) for each in states]
