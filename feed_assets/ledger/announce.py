"""The write event of each published update of a feed, in the transaction that makes it published."""

import json
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from feed_assets.core.events import (
    NO_NEW_DATA,
    PARENTS,
    UPDATE_ID,
    WriteEvent,
    decode,
    foreign_correlation,
    joined_correlation,
)
from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.positions import Pin
from feed_assets.ledger import events, inbox
from feed_assets.ledger.tables import event, update

if TYPE_CHECKING:
    from feed_assets.ledger.updates import Row


def announce(connection: sa.Connection, row: "Row", now: datetime) -> None:
    """Record that an update was written; its marker is its id. Repeatable.

    An older update than the last one that was announced (an invalidated one that is valid again) is flagged.
    """
    events.record(connection, events.OURS, [_event(connection, row, now)], now, refuse_out_of_order=False)


def correlations(connection: sa.Connection, run_id: str, pins: Iterable[Pin]) -> set[str]:
    """The correlation ids of what is read: of what a run claimed those of its events, of others their last event's.

    An update that a later one went through carries that one's id: it is as new as that.
    """
    found = inbox.correlations(connection, run_id)
    for pin in pins:
        told = events.correlation(connection, pin.partition, pin.update_id)
        found |= {told} if told else set()
    return found


def untold(connection: sa.Connection, output: Partition, incoming: set[str]) -> WriteEvent | None:
    """The event that is to be told of a dataset whose inputs carry other ids by now and left it as it is, if any."""
    query = sa.select(update.c.id, update.c.correlation).where(_is_published(output))
    newest = connection.execute(query.order_by(update.c.id.desc()).limit(1)).first()
    if newest is None or not incoming:
        return None
    correlation, parents = joined_correlation(incoming)
    if newest.correlation in (correlation, None) or events.has(connection, output, correlation):
        return None
    context: dict[str, Any] = {UPDATE_ID: newest.id, NO_NEW_DATA: True, **({PARENTS: [*parents]} if parents else {})}
    marker = decode(newest.id)
    return WriteEvent(str(output.feed), marker, marker, correlation, partition_key=output.key, context=context)


def pass_on(connection: sa.Connection, told: WriteEvent | None, now: datetime) -> None:
    """Record that an update of the inputs went through a dataset and left it as it is. Repeatable."""
    new = [replace(told, event_marker=now)] if told else []
    events.record(connection, events.OURS, new, now, refuse_out_of_order=False)


def heal(connection: sa.Connection, feeds: Collection[Feed], now: datetime) -> tuple[tuple[Partition, str], ...]:
    """Announce every published update of some feeds whose event is not there; which these were. Repeatable."""
    from feed_assets.ledger import updates

    mine = update.c.feed.in_(sorted(map(str, feeds))) & (update.c.state == "published")
    same = (event.c.feed == update.c.feed) & (event.c.partition == update.c.partition) & (event.c.marker == update.c.id)
    has_event = sa.select(event.c.sequence).where(same, event.c.source == events.OURS).exists()
    rows = connection.execute(sa.select(*updates.COLUMNS).where(mine, ~has_event).order_by(update.c.id)).mappings()
    found = [updates.row_of(row) for row in rows.all()]
    for row in found:
        announce(connection, row, now)
    return tuple((row.partition, row.id) for row in found)


def _is_published(output: Partition) -> sa.ColumnElement[bool]:
    mine = (update.c.feed == str(output.feed)) & (update.c.partition == output.key)
    return mine & (update.c.state == "published")


def _event(connection: sa.Connection, row: "Row", now: datetime) -> WriteEvent:
    correlation = row.correlation or foreign_correlation(row.partition, row.id)
    context: dict[str, Any] = {UPDATE_ID: row.id, "bytes": row.size, "files": row.files, "records": row.records}
    context |= {"code_version": row.code_version, "run": row.run}
    if row.parents:
        context[PARENTS] = json.loads(row.parents)
    if row.run and row.version is not None and row.version == _version_before(connection, row):
        context[NO_NEW_DATA] = True
    told = {name: value for name, value in context.items() if value is not None}
    key = row.partition.key
    return WriteEvent(str(row.partition.feed), _marker(row), now, correlation, partition_key=key, context=told)


def _marker(row: "Row") -> datetime:
    moment = parse_update_id(row.id)
    if moment is None:  # Every way into the ledger has parsed it.
        raise ValueError(f"{row.partition} {row.id!r} is no update id.")
    return moment


def _version_before(connection: sa.Connection, row: "Row") -> str | None:
    mine = _is_published(row.partition) & (update.c.id < row.id)
    return connection.execute(sa.select(update.c.version).where(mine).order_by(update.c.id.desc()).limit(1)).scalar()
