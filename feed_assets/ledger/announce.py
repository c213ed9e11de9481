"""Recording of write events: each update gets its event in the transaction that publishes the update."""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.batch_names import numbers_in, told_last
from feed_assets.core.events import (
    ADDED_TO,
    BATCH,
    NO_NEW_DATA,
    PARENTS,
    SLICES,
    UPDATE_ID,
    Operation,
    WriteEvent,
    decode,
    foreign_correlation,
    joined_correlation,
)
from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.pins import Pin
from feed_assets.ledger import event_store, inbox, increment_base, reached_tables, updates
from feed_assets.ledger.tables import event, forgotten, run, update
from feed_assets.ledger.updates import UpdateRow


def announce(connection: sa.Connection, row: UpdateRow, now: datetime) -> None:
    """Record the write event of an update. A repeated call changes nothing.

    The event's marker is the update id. The event is flagged if its update is older than the last announced update.
    Such an update was invalidated, and is valid again.
    """
    event_store.record(connection, event_store.OURS, [event_of(connection, row, now)], now, refuse_out_of_order=False)


def correlations(connection: sa.Connection, run_id: str, pins: Iterable[Pin]) -> set[str]:
    """Return the correlation ids of a run: those of the events that it claimed, and of the updates that it pinned.

    If a later propagation passed through an update without changing it, use the id of that propagation.
    """
    carried = reached_tables.carried(connection, {_at(pin) for pin in told_last(pins)})
    return inbox.correlations(connection, run_id) | {*carried.values()}


def to_pass_on(
    connection: sa.Connection, unchanged: Mapping[UpdateRow, Collection[Pin]], now: datetime
) -> list[WriteEvent]:
    """Return events for datasets whose inputs carry new correlation ids although the datasets need no new update.

    `unchanged` maps the newest update of each dataset to the pins from which the next update would be built. Skip a
    dataset that reads another dataset of the result: a later call returns its event, with the correlation ids of all
    its inputs. After the events are recorded, a repeated call returns nothing.
    """
    read = {row: told_last(pins) for row, pins in unchanged.items()}
    carried = reached_tables.carried(connection, {_at(pin) for pins in read.values() for pin in pins})
    added = increment_base.added_to(connection, [(row.partition, row.id) for row in unchanged])
    incoming = {row: {carried[_at(pin)] for pin in pins if _at(pin) in carried} for row, pins in read.items()}
    at = updates.outputs_of(connection, unchanged)
    adds = {row for row in unchanged if at[row] != row.partition or _is_increment(row, added.get(row.partition))}
    event_by_row = {
        row: _without_new_data(row, at[row], ids, now, Operation.UPSERT if row in adds else Operation.OVERWRITE)
        for row, ids in incoming.items()
        if ids and row.correlation
    }
    reached = reached_tables.reached(
        connection, [(each.partition, each.correlation_id) for each in event_by_row.values()]
    )
    reached |= {(at[row], row.correlation) for row in event_by_row if row.correlation}
    new = {row: each for row, each in event_by_row.items() if (each.partition, each.correlation_id) not in reached}
    moving = {at[row] for row in new}
    return [each for row, each in new.items() if moving.isdisjoint(pin.partition for pin in unchanged[row])]


def _is_increment(row: UpdateRow, base: Pin | None) -> bool:
    """Return whether an update has an increment's rows. A full load that was compacted also has a base: itself."""
    return base is not None and (row.origin != updates.COMPACTED or base.start != base.update_id)


def _at(pin: Pin) -> reached_tables.At:
    return pin.partition, pin.update_id


def _without_new_data(
    row: UpdateRow, at: Partition, incoming: set[str], now: datetime, operation: Operation
) -> WriteEvent:
    correlation, parents = joined_correlation(incoming)
    context: dict[str, Any] = {UPDATE_ID: row.id, NO_NEW_DATA: True, **({PARENTS: [*parents]} if parents else {})}
    feed, key = str(at.feed), at.key
    return WriteEvent(feed, decode(row.id), now, correlation, operation, partition_key=key, context=context)


def heal(connection: sa.Connection, feeds: Collection[Feed], now: datetime) -> tuple[tuple[Partition, str], ...]:
    """Record the missing write events of published updates of some feeds. Return the updates that had no event.

    If old events were removed, skip the updates up to the last removed event, because these updates had events. A
    repeated call changes nothing.
    """
    condition = update.c.feed.in_(sorted(map(str, feeds))) & (update.c.state == "published")
    condition &= update.c.origin != updates.COMPACTED
    built = sa.select(run.c.partition).where(run.c.id == update.c.run).correlate(update).scalar_subquery()
    is_in_partition = (event.c.partition == update.c.partition) | (event.c.partition == built)
    is_of_update = (event.c.feed == update.c.feed) & is_in_partition & (event.c.marker == update.c.id)
    has_event = sa.select(event.c.sequence).where(is_of_update, event.c.source == event_store.OURS).exists()
    its = (forgotten.c.feed == update.c.feed) & (forgotten.c.marker >= update.c.id)
    is_old = sa.exists().where(its, (forgotten.c.partition == update.c.partition) | (forgotten.c.partition == built))
    query = sa.select(*updates.COLUMNS).where(condition, ~has_event, ~is_old).order_by(update.c.id)
    rows = connection.execute(query).mappings()
    unannounced = [updates.row_of(row) for row in rows.all()]
    for row in unannounced:
        announce(connection, row, now)
    return tuple((row.partition, row.id) for row in unannounced)


def _is_published(output: Partition) -> sa.ColumnElement[bool]:
    of_output = (update.c.feed == str(output.feed)) & (update.c.partition == output.key)
    return of_output & (update.c.state == "published")


def event_of(connection: sa.Connection, row: UpdateRow, now: datetime) -> WriteEvent:
    """Return the write event of an update, which is not recorded yet."""
    correlation = row.correlation or foreign_correlation(row.partition, row.id)
    context: dict[str, Any] = {UPDATE_ID: row.id, "bytes": row.size, "files": row.files, "records": row.records}
    context |= {"code_version": row.code_version, "run": row.run}
    if row.parents:
        context[PARENTS] = json.loads(row.parents)
    before = _version_before(connection, row)
    if not row.is_foreign and row.version is not None and row.version == before:
        context[NO_NEW_DATA] = True
    at = updates.output_of(connection, row)
    operation, details = _written_as(connection, row, is_batch=at != row.partition, is_first=before is None)
    known_context = {name: value for name, value in (context | details).items() if value is not None}
    return WriteEvent(
        str(at.feed), _marker(row), now, correlation, operation, partition_key=at.key, context=known_context
    )


def _written_as(
    connection: sa.Connection, row: UpdateRow, *, is_batch: bool, is_first: bool
) -> tuple[Operation, dict[str, Any]]:
    """Return how an update was written: the operation and the context for its write event.

    For an increment, the context names the base update or the batch, and the slices that were read.
    """
    if is_batch:
        numbers = numbers_in(row.partition.name)
        is_added = is_first and numbers is not None and not numbers.is_range
        details = {BATCH: row.partition.name, SLICES: _slices(connection, row)}
        return (Operation.INSERT if is_added else Operation.OVERWRITE), details
    if base := increment_base.added_to(connection, [(row.partition, row.id)]).get(row.partition):
        return Operation.UPSERT, {ADDED_TO: base.update_id, SLICES: _slices(connection, row, base)}
    return Operation.OVERWRITE, {}


def _slices(connection: sa.Connection, row: UpdateRow, base: Pin | None = None) -> dict[str, list[str | None]]:
    """Return the start and end markers of an increment's slices, by partition of an event table."""
    base_pins = updates.consumed_by(connection, base.partition, base.update_id) if base else ()
    own_pins = {*updates.consumed_by(connection, row.partition, row.id)}
    pins = own_pins - {*base_pins} or own_pins  # The run may have read only slices of its base again.
    return {pin.partition.path: [pin.start, pin.update_id] for pin in sorted(pins) if pin.is_slice}


def _marker(row: UpdateRow) -> datetime:
    moment = parse_update_id(row.id)
    if moment is None:  # This cannot happen: an update id is parsed when it is recorded.
        raise ValueError(f"{row.partition} {row.id!r} is not an update id.")
    return moment


def _version_before(connection: sa.Connection, row: UpdateRow) -> str | None:
    is_earlier = _is_published(row.partition) & (update.c.id < row.id)
    return connection.execute(
        sa.select(update.c.version).where(is_earlier).order_by(update.c.id.desc()).limit(1)
    ).scalar()
