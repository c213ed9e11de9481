"""The write event of each published update of a feed, in the transaction that makes it published."""

import json
from collections.abc import Collection, Iterable, Mapping
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
from feed_assets.ledger import events, inbox, propagation
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
    carried = propagation.carried(connection, {(pin.partition, pin.update_id) for pin in pins})
    return inbox.correlations(connection, run_id) | {*carried.values()}


def to_pass_on(
    connection: sa.Connection, unchanged: Mapping["Row", Collection[Pin]], now: datetime
) -> list[WriteEvent]:
    """The events to record of datasets whose inputs carry other ids by now, and left their newest updates as they are.

    `unchanged` has what the next update would be built from. Once they are recorded there are none any more. What
    reads one of these datasets comes later: their events wake it, and it is to carry their ids as well.
    """
    carried = propagation.carried(connection, {_at(pin) for pins in unchanged.values() for pin in pins})
    incoming = {row: {carried[_at(pin)] for pin in pins if _at(pin) in carried} for row, pins in unchanged.items()}
    found = {row: _without_new_data(row, ids, now) for row, ids in incoming.items() if ids and row.correlation}
    reached = propagation.reached(connection, [(each.partition, each.correlation_id) for each in found.values()])
    reached |= {(row.partition, row.correlation) for row in found if row.correlation}
    new = {row: each for row, each in found.items() if (each.partition, each.correlation_id) not in reached}
    moving = {row.partition for row in new}
    return [each for row, each in new.items() if moving.isdisjoint(pin.partition for pin in unchanged[row])]


def _at(pin: Pin) -> propagation.At:
    return pin.partition, pin.update_id


def _without_new_data(row: "Row", incoming: set[str], now: datetime) -> WriteEvent:
    correlation, parents = joined_correlation(incoming)
    context: dict[str, Any] = {UPDATE_ID: row.id, NO_NEW_DATA: True, **({PARENTS: [*parents]} if parents else {})}
    feed, key = str(row.partition.feed), row.partition.key
    return WriteEvent(feed, decode(row.id), now, correlation, partition_key=key, context=context)


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
    if not row.is_foreign and row.version is not None and row.version == _version_before(connection, row):
        context[NO_NEW_DATA] = True
    known = {name: value for name, value in context.items() if value is not None}
    key = row.partition.key
    return WriteEvent(str(row.partition.feed), _marker(row), now, correlation, partition_key=key, context=known)


def _marker(row: "Row") -> datetime:
    moment = parse_update_id(row.id)
    if moment is None:  # Every way into the ledger has parsed it.
        raise ValueError(f"{row.partition} {row.id!r} is no update id.")
    return moment


def _version_before(connection: sa.Connection, row: "Row") -> str | None:
    mine = _is_published(row.partition) & (update.c.id < row.id)
    return connection.execute(sa.select(update.c.version).where(mine).order_by(update.c.id.desc()).limit(1)).scalar()
