"""Histories of events, made in bulk: 200 tables in turn, each five of them one pipeline with one id for each update.

Event number n is written n seconds after the start; its table's event before it is 200 earlier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.schema import CreateIndex, DropIndex

from feed_assets.core.events import Operation, WriteEvent
from feed_assets.ledger.database import CHANGES
from feed_assets.ledger.log import EVENT
from feed_assets.ledger.tables import change, event

TABLES = [f"team/t{number:03d}" for number in range(200)]
STEPS = 5
"""Number of tables of a pipeline, and so of events with one correlation id."""
PIPELINES = {f"p{at // STEPS}": TABLES[at : at + STEPS] for at in range(0, len(TABLES), STEPS)}
NEW = 1000
START = datetime(2024, 1, 1, tzinfo=UTC)
_CONTEXT = f"'{{\"run\": \"run ' || (n / {STEPS}) || '\"}}'"


@dataclass(frozen=True)
class _Dialect:
    """Expressions that differ between databases."""

    digits: str
    hexadecimal: str
    update_id: str
    iso: str


_DIALECTS = {
    "sqlite": _Dialect(
        "printf('%03d', {0})",
        "printf('%08x', {0})",
        "strftime('%Y%m%d.%H%M%S', {0}, 'unixepoch')",
        "strftime('%Y-%m-%dT%H:%M:%S.000000Z', {0}, 'unixepoch')",
    ),
    "postgresql": _Dialect(
        "lpad(({0})::text, 3, '0')",
        "lpad(to_hex({0}), 8, '0')",
        "to_char(to_timestamp({0}) AT TIME ZONE 'UTC', 'YYYYMMDD.HH24MISS')",
        "to_char(to_timestamp({0}) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.\"000000Z\"')",
    ),
}


def moment(number: int) -> datetime:
    """Return the time when an event was written."""
    return START + timedelta(seconds=number)


def correlation(update: int) -> str:
    """Return the id of an update; it spreads over the index as a random id would."""
    return f"{update * 2654435761 % 2**32:08x}-0000-4000-8000-{update:08x}"


def written(known: int, tables: Sequence[str]) -> list[WriteEvent]:
    """Return the 1,000 events after the known ones, of some tables in turn; the last two updates are incomplete."""
    numbers = range(known, known + NEW)
    updates = [each // STEPS + (each == numbers[-1]) for each in numbers]
    return [_event(tables[n % len(tables)], n, update) for n, update in zip(numbers, updates, strict=True)]


def _event(table: str, number: int, update: int) -> WriteEvent:
    at, event_time = moment(number), moment(number) + timedelta(milliseconds=1250)
    return WriteEvent(table, at, event_time, correlation(update), Operation.UPSERT, context={"run": f"run {update}"})


def fill_events(engine: sa.Engine, known: int) -> None:
    """Fill the ledger's history; create indexes at the end, which is much faster."""
    said = _DIALECTS[engine.dialect.name]
    second, before = _seconds("n"), _seconds(f"n - {len(TABLES)}")
    values = {
        "sequence": "n + 1",
        "source": "'team'",
        "feed": _table(said),
        "partition": "''",
        "marker": said.update_id.format(second),
        "previous": f"CASE WHEN n >= {len(TABLES)} THEN {said.update_id.format(before)} END",
        "event_marker": said.update_id.format(second),
        "correlation": _correlation(said),
        "operation": "'UPSERT'",
        "context": _CONTEXT,
        "at": "'2024-01-01 00:00:00.000000'",
    }
    of_log = {name: values[name] for name in ("sequence", "feed", "partition", "at")}
    of_log |= {"kind": f"'{EVENT}'", "subject": values["marker"], "who": "'team'"}
    indexes = sorted([*event.indexes, *change.indexes], key=lambda each: str(each.name))
    with engine.connect().execution_options(write=CHANGES) as connection, connection.begin():
        for index in indexes:
            connection.execute(DropIndex(index))
        connection.execute(_insert(event, values, 0, known))
        connection.execute(_insert(change, of_log, 0, known))
        for index in indexes:
            connection.execute(CreateIndex(index))
    _settle(engine, event.c.sequence)


def fill_team(engine: sa.Engine, first: int, last: int) -> None:
    """Insert the events `[first, last)` into the table of their owner, a sink."""
    said = _DIALECTS[engine.dialect.name]
    values = {
        "id": "n + 1",
        "table_name": _table(said),
        "partition_key": "''",
        "marker": said.iso.format(_seconds("n")),
        "event_marker": said.iso.format(_seconds("n")),
        "correlation_id": _correlation(said),
        "write_operation": "'UPSERT'",
        "context": _CONTEXT,
    }
    team = sa.table("events", *(sa.column(name) for name in values))
    with engine.begin() as connection:
        connection.execute(_insert(team, values, first, last))
    _settle(engine, team.c.id)


def _insert(table: sa.TableClause, values: dict[str, str], first: int, last: int) -> sa.Insert:
    """Return an insert of one row for each n in `[first, last)`."""
    numbers = sa.select(sa.literal_column(f"CAST({first} AS BIGINT)").label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(sa.select(numbers.c.n + 1).where(numbers.c.n < last - 1))
    picked = sa.select(*map(sa.literal_column, values.values())).select_from(numbers)
    return sa.insert(table).from_select([*values], picked)


def _table(said: _Dialect) -> str:
    return f"'team/t' || {said.digits.format(f'n % {len(TABLES)}')}"


def _seconds(number: str) -> str:
    return f"{int(START.timestamp())} + {number}"


def _correlation(said: _Dialect) -> str:
    update = f"(n / {STEPS})"
    scattered = said.hexadecimal.format(f"{update} * 2654435761 % 4294967296")
    return f"{scattered} || '-0000-4000-8000-' || {said.hexadecimal.format(update)}"


def _settle(engine: sa.Engine, key: sa.ColumnClause[int]) -> None:
    """Bring the table to its long-term state: on PostgreSQL set the sequence after the last number, and analyze."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            last = sa.select(sa.func.max(key)).scalar_subquery()
            connection.execute(
                sa.select(sa.func.setval(sa.func.pg_get_serial_sequence(key.table.name, key.name), last))
            )
            connection.exec_driver_sql(f"VACUUM ANALYZE {key.table.name}")
