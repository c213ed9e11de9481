"""State of the tables of datasets in a warehouse. It changes in the same transactions as their rows.

`updates` has each partition's loaded update, and `marks` has each dataset's position in the ledger's log. `marks` only
saves time: without a mark, the whole log is read, and partitions that already have their update are skipped.
"""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from feed_assets.core.sql_text import literal
from feed_assets.warehouse import loader_tables
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.loader_tables import LoaderTable
from feed_assets.warehouse.statements import STATE

_TABLES = (
    LoaderTable(
        "updates",
        (
            "dataset text",
            "partition_key text",
            "update_id text",
            "data_version text",
            "records bigint NOT NULL",
            "loaded_at timestamptz NOT NULL",
        ),
        ("PRIMARY KEY (dataset, partition_key)",),
    ),
    LoaderTable("marks", ("dataset text PRIMARY KEY", "sequence bigint NOT NULL", "moment text")),
)
_INDEX = f"CREATE INDEX IF NOT EXISTS updates_by_moment ON {STATE}.updates (loaded_at)"
"""Index for the query in `loads`. Without it, PostgreSQL would scan the rows of all partitions. DuckDB needs none."""


class Mark(NamedTuple):
    """A position in the ledger's log: the number and time (UTC) of a change.

    The log of another ledger has no change with both this number and this time, so such a mark is recognised.
    """

    sequence: int = 0
    at: str | None = None


class LoadedUpdate(NamedTuple):
    """The loaded update of a partition. Its id is None, and the partition has no rows, if no update is valid any more.

    A load that commits later has a greater `loaded_at` (UTC), even if the clocks of loaders differ.
    """

    dataset: str
    partition: str
    update_id: str | None
    version: str | None
    records: int
    loaded_at: datetime


def prepare(connection: Connection, engine: Engine) -> None:
    """Create the tables with the state of datasets if they are missing.

    If a role with more rights has created them, the loader's role needs no right to create tables.
    """
    if not exists(connection, engine):
        creates = [each.create(engine, "CREATE TABLE IF NOT EXISTS") for each in _TABLES]
        for statement in ("BEGIN", *creates, *([_INDEX] if engine.has_keys else []), "COMMIT"):
            connection.execute(statement)


def exists(connection: Connection, engine: Engine) -> bool:
    """Return whether the tables with the state of datasets exist. Raise LoadFailed if they are altered or untrusted."""
    return loader_tables.exist(connection, engine, _TABLES)


def held(connection: Connection, dataset: str, keys: Collection[str]) -> dict[str, str]:
    """Return the ids of the loaded updates of some partitions, by partition key.

    If no shape is stored, the table does not exist. Then only updates without rows count as loaded.
    """
    if not keys:
        return {}
    is_there = f"SELECT 1 FROM {STATE}.tables WHERE topic = {literal(dataset)} AND shape IS NOT NULL"
    rows = connection.execute(
        f"SELECT partition_key, update_id FROM {STATE}.updates WHERE dataset = {literal(dataset)} "
        f"AND update_id IS NOT NULL AND partition_key IN ({', '.join(map(literal, keys))}) "
        f"AND (records = 0 OR EXISTS ({is_there}))"
    )
    return dict(rows)


def forget(connection: Connection, dataset: str) -> None:
    """Delete a dataset's mark and its records of updates with rows, in the transaction that makes the table anew."""
    where = f"WHERE dataset = {literal(dataset)}"
    connection.execute(f"DELETE FROM {STATE}.updates {where} AND records > 0")
    connection.execute(f"DELETE FROM {STATE}.marks {where}")


def keep(
    connection: Connection,
    engine: Engine,
    dataset: str,
    key: str,
    update_id: str | None,
    version: str | None,
    rows: int,
) -> None:
    """Store the update from which a table's rows of one partition come: its id, data version and number of rows."""
    named = [f"{literal(each)}" if each is not None else "NULL" for each in (update_id, version)]
    connection.execute(
        f"INSERT INTO {STATE}.updates SELECT {literal(dataset)}, {literal(key)}, {', '.join(named)}, {rows}, "
        f"greatest({engine.now}, max(loaded_at) + INTERVAL '1 microsecond') FROM {STATE}.updates "
        f"WHERE {_is_possible()} "
        "ON CONFLICT (dataset, partition_key) DO UPDATE SET update_id = excluded.update_id, "
        "data_version = excluded.data_version, records = excluded.records, loaded_at = excluded.loaded_at"
    )


def mark(connection: Connection, engine: Engine, dataset: str) -> Mark:
    """Return a dataset's mark: the place in the ledger's log up to which its updates were loaded.

    Raise LoadFailed if the stored mark, or the stored time of a load, has a value that no load can have written.
    """
    if not exists(connection, engine):
        return Mark()
    _refuse_impossible(connection, dataset)
    rows = connection.execute(f"SELECT sequence, moment FROM {STATE}.marks WHERE dataset = {literal(dataset)}")
    if not rows:
        return Mark()
    [(sequence, moment), *duplicates] = rows
    if duplicates or not loader_tables.is_number(sequence) or not (moment is None or loader_tables.is_moment(moment)):
        expected = f"one row of {dataset} with a number of 0 or more and its time"
        raise loader_tables.altered(
            "marks", loader_tables.rows_text(rows), expected, loader_tables.reset_advice(dataset)
        )
    return Mark(sequence, moment)


def _refuse_impossible(connection: Connection, dataset: str) -> None:
    """Raise LoadFailed if the stored time of a load is impossible (see `is_possible`). `loads` skips such rows."""
    where = f"WHERE dataset = {literal(dataset)} AND NOT ({_is_possible()})"
    columns = "partition_key, CAST(loaded_at AS text)"  # Select a text, because a driver cannot read every time.
    if rows := connection.execute(f"SELECT {columns} FROM {STATE}.updates {where} LIMIT 1"):
        expected = "a time of a load from 1970 on that is not in the future"
        advice = loader_tables.reset_advice(dataset)
        raise loader_tables.altered("updates", loader_tables.rows_text(rows), expected, advice)


def _is_possible() -> str:
    return loader_tables.is_possible("loaded_at")


def move(connection: Connection, dataset: str, to: Mark) -> None:
    """Store a dataset's mark: the place in the ledger's log from which the next session reads."""
    at = "NULL" if to.at is None else literal(to.at)
    connection.execute(
        f"INSERT INTO {STATE}.marks VALUES ({literal(dataset)}, {to.sequence}, {at}) "
        "ON CONFLICT (dataset) DO UPDATE SET sequence = excluded.sequence, moment = excluded.moment"
    )


def loads(
    connection: Connection, engine: Engine, after: datetime | None = None, limit: int | None = None
) -> list[LoadedUpdate]:
    """Return the partitions loaded after a time, in the order of their loads.

    Leave out altered rows: with a time that no load can have written, or without a dataset or partition. The loader
    stops loading the tables of such rows.
    """
    if not exists(connection, engine):
        return []
    later = f" AND loaded_at > CAST({literal(after.isoformat())} AS timestamptz)" if after else ""
    rows = connection.execute(
        f"SELECT dataset, partition_key, update_id, data_version, records, loaded_at FROM {STATE}.updates "
        f"WHERE {_is_possible()}{later} AND dataset IS NOT NULL AND partition_key IS NOT NULL "
        f"ORDER BY loaded_at{'' if limit is None else f' LIMIT {limit}'}"
    )
    return [LoadedUpdate(*each) for each in rows]
