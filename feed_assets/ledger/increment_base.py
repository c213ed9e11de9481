"""Bases of increments: an increment is added to a base, which contains all increments before it.

In the table `consumed`, the base of an update is a row with `is_input` false. Its `position` is the base's id. Its
`slice_from` is the first update of the chain, which was a full load.
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
"""Condition for the rows of `consumed` that record a base."""


def base(connection: sa.Connection, output: Partition) -> Pin | None:
    """Return the base for the next increment.

    Return None if there is no base, or if its chain has an invalid update.
    """
    newest = updates.newest(connection, [output])
    if output not in newest or lost(connection, newest):
        return None
    pin = newest[output].pin
    before = added_to(connection, [(output, pin.update_id)]).get(output)
    return replace(pin, start=before.start if before else pin.update_id)


def has_increments(connection: sa.Connection, output: Partition) -> bool:
    """Return whether an output ever had an update with a base: an increment, or a compaction."""
    of_output = (consumed.c.feed == str(output.feed)) & (consumed.c.partition == output.key)
    return connection.execute(sa.select(sa.exists().where(of_output, ADDS_TO))).scalar_one()


def beside(connection: sa.Connection, output: Partition, update_id: str) -> str | None:
    """Return a valid increment that is newer than the given update but extends an older update.

    Return None if there is none.
    """
    of_output = (consumed.c.feed == str(output.feed)) & (consumed.c.partition == output.key) & ADDS_TO
    passed = (consumed.c.position < update_id) & (consumed.c.id > update_id)
    same_partition = (update.c.feed == consumed.c.feed) & (update.c.partition == consumed.c.partition)
    is_valid = sa.exists().where(same_partition, update.c.id == consumed.c.id, update.c.state == updates.PUBLISHED)
    return connection.execute(sa.select(consumed.c.id).where(of_output, passed, is_valid).limit(1)).scalar()


def added_to(connection: sa.Connection, update_keys: Iterable[tuple[Partition, str]]) -> dict[Partition, Pin]:
    """Return the bases of updates, one for each partition. Full loads have no base."""
    key_table = key_tables.updates(connection, update_keys)
    rows = connection.execute(
        sa.select(consumed).join(key_table, key_tables.same_keys(consumed, key_table)).where(ADDS_TO)
    )
    return {Partition(Feed.parse(row.feed), row.partition): updates.pin_of(row) for row in rows}


def lost(connection: sa.Connection, newest: Mapping[Partition, updates.UpdateRow]) -> dict[Partition, str]:
    """Return the outputs whose newest update was built by increments on an invalid update, each with the reason.

    Only invalid updates are searched, not all increments. An invalid update counts if a valid or pruned increment of
    the same chain extends it. That increment and the newest update may be in different branches of the chain. Then a
    full load is unnecessary but harmless.
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
    """Return the SQL condition that a later, valid or pruned increment extends the update of the outer query."""
    later = update.alias()
    edge = ADDS_TO & (consumed.c.feed == update.c.feed) & (consumed.c.partition == update.c.partition)
    edge &= (consumed.c.position == update.c.id) & (consumed.c.id > update.c.id)
    same_partition = (later.c.feed == consumed.c.feed) & (later.c.partition == consumed.c.partition)
    is_valid = (later.c.id == consumed.c.id) & later.c.state.in_([updates.PUBLISHED, updates.PRUNED])
    return edge & sa.exists().where(same_partition, is_valid)


def _reason(update_id: str, reason: str | None) -> str:
    return f"{update_id}, which it contains, is no longer valid: {reason or updates.NOT_THERE}"
