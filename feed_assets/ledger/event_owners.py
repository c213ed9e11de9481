"""Event sources of tables: only the source that a code location declares for a table may report its events.

A table that no code location has declared yet has no owner. Every source may report its events.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.events import Operation, Rejected, WriteEvent, decode
from feed_assets.ledger import event_rejects, key_tables
from feed_assets.ledger.database import Ledger, put_cursors
from feed_assets.ledger.subscriptions import ALL
from feed_assets.ledger.tables import cursor, event, forgotten, inbox, subscription, taken_event, update

OURS = ""
"""The source of our own events. It owns the feeds that have updates, or that a dataset of ours builds."""

_NAME = "event source of "


def register(ledger: Ledger, source: str, tables: Collection[str], now: datetime) -> None:
    """Store that a source owns its declared tables. The last declaration wins. Write only if an owner changes.

    If a table had no owner, and its source has reported no event of it, move the events of other sources to the
    rejects.
    """
    with ledger.read() as connection:
        new = [table for table, owner in _registered(connection, tables).items() if owner != source]
    if not new:
        return
    # One transaction of `change` does all, so a kill leaves nothing half done, and no other process records an event
    # of these tables meanwhile.
    with ledger.change() as connection:
        without_owner = [table for table, owner in _registered(connection, new).items() if owner is None]
        put_cursors(connection, {f"{_NAME}{table}": source for table in new})
        _reject_others(connection, source, without_owner, now)


def refusals(connection: sa.Connection, source: str, tables: Collection[str]) -> dict[str, str]:
    """Return for each table of another owner why the source may not report its events. Cost: one statement."""
    key_table = _names_of(connection, tables)
    has_updates = sa.exists().where(update.c.feed == key_table.c.feed)
    is_built = sa.exists().where(subscription.c.subscriber == key_table.c.feed, subscription.c.feed != ALL)
    owner = sa.case((cursor.c.value.is_not(None), cursor.c.value), (has_updates | is_built, OURS))
    owners = _owners(connection, key_table, owner)
    return {
        table: _why(table, owner, source) for table, owner in owners.items() if owner is not None and owner != source
    }


def _registered(connection: sa.Connection, tables: Collection[str]) -> dict[str, str | None]:
    return _owners(connection, _names_of(connection, tables), cursor.c.value)


def _owners(connection: sa.Connection, key_table: sa.CTE, owner: sa.ColumnElement[Any]) -> dict[str, str | None]:
    query = sa.select(key_table.c.feed, owner.label("owner"))
    rows = connection.execute(query.select_from(key_table.outerjoin(cursor, cursor.c.name == key_table.c.name)))
    return {row.feed: row.owner for row in rows}


def _names_of(connection: sa.Connection, tables: Collection[str]) -> sa.CTE:
    return key_tables.rows(connection, ("feed", "name"), [[each, f"{_NAME}{each}"] for each in sorted(tables)])


def _why(table: str, owner: str, source: str) -> str:
    if owner == OURS:
        return (
            f"{table} is a feed whose events feed_assets records itself, and this event is of the event source "
            f"{source}: expected an event of a table of {source}. Remove the event from {source}."
        )
    return (
        f"{table} is declared as a table of the event source {owner}, and this event is of the event source {source}: "
        f"expected an event of {owner}. Remove it from {source}, or declare {table} with the source {source}."
    )


def _reject_others(connection: sa.Connection, source: str, tables: Collection[str], now: datetime) -> None:
    """Move the events of other sources to the rejects, unless the source or feed_assets has an event of the table.

    If it has, the table was used before owners were registered, maybe under an earlier name of its source. Its history
    stays.
    """
    key_table = _names_of(connection, tables)
    is_own = sa.exists().where(event.c.feed == key_table.c.feed, event.c.source.in_([source, OURS]))
    its_tables = [*connection.execute(sa.select(key_table.c.feed).where(~is_own.correlate(key_table))).scalars()]
    is_of_others = event.c.feed.in_(its_tables)
    query = sa.select(event).where(is_of_others).order_by(event.c.sequence.desc())
    rejects: dict[str, list[Rejected]] = {}
    for row in connection.execute(query.limit(event_rejects.REJECTS_KEPT)).mappings():
        reason = _why(row["feed"], source, row["source"])
        rejects.setdefault(row["source"], []).append(Rejected(event_rejects.in_json(_event_of(row)), reason))
    for writer, rejected in rejects.items():
        event_rejects.reject(connection, writer, rejected, now)
    for table in (inbox, taken_event):
        numbers = sa.select(event.c.sequence).where(is_of_others)
        connection.execute(sa.delete(table).where(table.c.sequence.in_(numbers)))
    for table in (event, forgotten):
        connection.execute(sa.delete(table).where(table.c.feed.in_(its_tables)))


def _event_of(row: Mapping[Any, Any]) -> WriteEvent:
    marker, event_marker = decode(row["marker"]), decode(row["event_marker"])
    operation, key = Operation(row["operation"]), row["partition"]
    return WriteEvent(row["feed"], marker, event_marker, row["correlation"], operation, partition_key=key)
