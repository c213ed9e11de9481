"""Base of an increment: the newest update of an output, which holds all updates that it was added to in turn.

Lineage (table `consumed`, not as an input) has the base of an update. `position` is the update that it adds to,
`slice_from` the first one, which was loaded whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import key_tables, updates
from feed_assets.ledger.tables import consumed, update

ADDS_TO = (
    (consumed.c.input_feed == consumed.c.feed)
    & (consumed.c.input_partition == consumed.c.partition)
    & ~consumed.c.is_input
)
"""The rows of `consumed` that name the base of an update."""


def base(connection: sa.Connection, output: Partition) -> Pin | None:
    """Return the update that an increment is added to. Return None if there is none, or an update in it is invalid."""
    newest = updates.newest(connection, [output])
    if output not in newest or lost(connection, newest):
        return None
    pin = newest[output].pin
    before = added_to(connection, [(output, pin.update_id)]).get(output)
    return replace(pin, start=before.start if before else pin.update_id)


def has_increments(connection: sa.Connection, output: Partition) -> bool:
    """Return whether an increment was ever added to an update of an output."""
    of_output = (consumed.c.feed == str(output.feed)) & (consumed.c.partition == output.key)
    return connection.execute(sa.select(sa.exists().where(of_output, ADDS_TO))).scalar_one()


def beside(connection: sa.Connection, output: Partition, update_id: str) -> str | None:
    """Return a valid increment that came after an update and was added to one before it, or None."""
    of_output = (consumed.c.feed == str(output.feed)) & (consumed.c.partition == output.key) & ADDS_TO
    passed = (consumed.c.position < update_id) & (consumed.c.id > update_id)
    same_partition = (update.c.feed == consumed.c.feed) & (update.c.partition == consumed.c.partition)
    is_valid = sa.exists().where(same_partition, update.c.id == consumed.c.id, update.c.state == updates.PUBLISHED)
    return connection.execute(sa.select(consumed.c.id).where(of_output, passed, is_valid).limit(1)).scalar()


def added_to(connection: sa.Connection, update_keys: Iterable[tuple[Partition, str]]) -> dict[Partition, Pin]:
    """Return the bases of some updates, one per partition; updates that were loaded whole have none."""
    key_table = key_tables.updates(connection, update_keys)
    rows = connection.execute(
        sa.select(consumed).join(key_table, key_tables.same_keys(consumed, key_table)).where(ADDS_TO)
    )
    return {Partition(Feed.parse(row.feed), row.partition): updates.pin_of(row) for row in rows}


def lost(connection: sa.Connection, newest: Mapping[Partition, updates.UpdateRow]) -> dict[Partition, str]:
    """Return by output why nothing can be added to its newest update: an invalid update is in it.

    Search invalid updates only, however many increments there are. One counts if a valid increment with the same first
    update was added to it. The increment may lie beside the newest one: then all is loaded once too often.
    """
    first = added_to(connection, [(output, row.id) for output, row in newest.items()])
    rows = ((str(at.feed), at.key, pin.start, newest[at].id) for at, pin in first.items())
    key_table = key_tables.rows(connection, ("feed", "partition", "first", "last"), rows)
    same_partition = (update.c.feed == key_table.c.feed) & (update.c.partition == key_table.c.partition)
    within = (
        (update.c.id >= key_table.c.first) & (update.c.id < key_table.c.last) & (update.c.state == updates.INVALIDATED)
    )
    is_broken = sa.exists().where(
        _added_to_it(), consumed.c.slice_from == key_table.c.first, consumed.c.id <= key_table.c.last
    )
    query = sa.select(update.c.feed, update.c.partition, update.c.id, update.c.reason).select_from(key_table)
    broken = connection.execute(query.join(update, same_partition & within).where(is_broken).order_by(update.c.id))
    return {Partition(Feed.parse(row.feed), row.partition): _reason(row.id, row.reason) for row in broken}


def _added_to_it() -> sa.ColumnElement[bool]:
    """Return the condition for rows of `consumed` by which a valid or pruned update adds to that of the query."""
    later = update.alias()
    edge = ADDS_TO & (consumed.c.feed == update.c.feed) & (consumed.c.partition == update.c.partition)
    edge &= (consumed.c.position == update.c.id) & (consumed.c.id > update.c.id)
    same_partition = (later.c.feed == consumed.c.feed) & (later.c.partition == consumed.c.partition)
    is_valid = (later.c.id == consumed.c.id) & later.c.state.in_([updates.PUBLISHED, updates.PRUNED])
    return edge & sa.exists().where(same_partition, is_valid)


def _reason(update_id: str, reason: str | None) -> str:
    return f"{update_id}, which is in it, is no longer valid: {reason or updates.NOT_THERE}"
