"""Queries and claims for the compaction of batches into ranges."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.batch_names import covers, held_by, overlap
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import batch_partitions, batch_sets, claims, key_tables, update_changes, updates
from feed_assets.ledger.tables import batch, consumed, update


def partitions(connection: sa.Connection, feed: Feed) -> list[Partition]:
    """Return the partitions of a feed with batches that our runs wrote."""
    is_of_batch = (batch.c.feed == str(feed)) & (update.c.feed == batch.c.feed) & (update.c.partition == batch.c.key)
    is_ours = update.c.origin.in_([updates.RUN, updates.COMPACTED, updates.REBUILT])
    query = sa.select(batch.c.partition).join(update, is_of_batch).where(is_ours).distinct().order_by(batch.c.partition)
    return [Partition(feed, key) for key in connection.execute(query).scalars()]


def with_new_batches(connection: sa.Connection, feed: Feed, least: int) -> list[Partition]:
    """Return the partitions of a feed with at least `least` valid batches of our runs that are in no valid range.

    Cost: one statement, and an index lookup for each batch.
    """
    is_of_batch = (batch.c.feed == str(feed)) & (update.c.feed == batch.c.feed) & (update.c.partition == batch.c.key)
    of_runs = update.c.origin.in_([updates.RUN, updates.REBUILT]) & (update.c.state == updates.PUBLISHED)
    larger = update.alias()
    is_larger = (larger.c.feed == consumed.c.feed) & (larger.c.partition == consumed.c.partition)
    is_larger &= (larger.c.id == consumed.c.id) & (larger.c.origin == updates.COMPACTED)
    read = (consumed.c.input_feed == update.c.feed) & (consumed.c.input_partition == update.c.partition)
    read &= (consumed.c.position == update.c.id) & ~consumed.c.is_input
    is_in_range = sa.exists().where(read, is_larger, larger.c.state == updates.PUBLISHED)
    query = sa.select(batch.c.partition).join(update, is_of_batch).where(of_runs, ~is_in_range)
    query = query.group_by(batch.c.partition).having(sa.func.count() >= least).order_by(batch.c.partition)
    return [Partition(feed, key) for key in connection.execute(query).scalars()]


def may_return(connection: sa.Connection, parent: Partition) -> list[Partition]:
    """Return the invalid batches of a partition that may become valid again. Compaction must wait for them.

    Skip a batch whose input another batch has read again, because `feed-assets feed revalidate` refuses such a batch.
    """
    batches = batch_partitions.recorded_batches(connection, [parent])[parent]
    valid = updates.newest(connection, batches)
    key_table = key_tables.partitions(connection, [each for each in batches if each not in valid])
    is_invalid = (
        key_tables.same_keys(update, key_table)
        & (update.c.state == updates.INVALIDATED)
        & (update.c.origin != updates.COMPACTED)
    )
    query = sa.select(update.c.feed, update.c.partition, update.c.id).join(key_table, is_invalid).order_by(update.c.id)
    gone = {Partition(Feed.parse(row.feed), row.partition): row.id for row in connection.execute(query)}
    had = batch_sets.consumed_of(connection, gone)
    read = [*batch_sets.read_by_batch(connection, parent).values()]
    return [at for at in gone if not any(overlap(had.get(at, ()), pins) for pins in read)]


def lost(connection: sa.Connection, newest: Mapping[Partition, updates.UpdateRow]) -> dict[Partition, str]:
    """Return the outputs that must be loaded again because a batch is lost, each with the reason as a text.

    A lost batch has no valid update, and no valid range (a batch made of several) has its rows. Its last update was
    pruned, and no other batch has read all of the same input.
    """
    parents = sorted(at for at, row in newest.items() if row.partition != at)
    if not parents:
        return {}
    batches_by_parent = batch_partitions.recorded_batches(connection, parents)
    valid = updates.newest(connection, [each for batches in batches_by_parent.values() for each in batches])
    gone = {
        each: at
        for at, batches in batches_by_parent.items()
        for each in batches
        if each not in valid and not held_by(each, valid)
    }
    pruned = updates.edge(connection, gone, sa.func.max, updates.PRUNED) if gone else {}
    had = batch_sets.consumed_of(connection, pruned) if pruned else {}
    read = batch_sets.consumed_of(connection, {at: row.id for at, row in valid.items()}) if had else {}
    pins_by_parent = {
        at: [pin for each in batches for pin in read.get(each, ())] for at, batches in batches_by_parent.items()
    }
    return {
        gone[batch]: f"no batch contains the input of {batch.name} any more: its last update was pruned"
        for batch, pins in had.items()
        if not covers(pins_by_parent[gone[batch]], pins)
    }


def records(connection: sa.Connection, pins: Collection[Pin]) -> int | None:
    """Return the number of rows of several updates. Return None if the number of one update is unknown."""
    key_table = key_tables.updates(connection, ((pin.partition, pin.update_id) for pin in pins))
    counts = [
        *connection.execute(
            sa.select(update.c.records).join(key_table, key_tables.same_keys(update, key_table))
        ).scalars()
    ]
    return None if None in counts or len(counts) != len(pins) else sum(counts)


def claim(
    connection: sa.Connection, into: Partition, update_id: str, run_id: str, pins: Collection[Pin], now: datetime
) -> None:
    """Record a claimed update that will hold the rows of several batches, whose updates are pinned.

    The inputs of the claimed update are the slices that the pinned updates read. Slices of the same partition of an
    input table are merged into one slice.
    """
    batch_partitions.join(connection, into)
    last = max(pins, key=lambda pin: pin.update_id)
    # The new update carries the correlation ids of the last pinned update.
    row = updates.find(connection, last.partition, last.update_id)
    carried = {"correlation": row.correlation, "parents": row.parents} if row else {}
    update_changes.insert(
        connection, into, update_id, origin=updates.COMPACTED, state=updates.CLAIMED, at=now, run=run_id, **carried
    )
    read = batch_sets.consumed_of(connection, {pin.partition: pin.update_id for pin in pins})
    for each in _spans(pin for pins_of_one in read.values() for pin in pins_of_one):
        claims.consume(connection, (into, update_id), each, is_input=True)
    for pin in pins:
        claims.consume(connection, (into, update_id), pin, is_input=False)


def was_compaction(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a run claimed an update for a compaction."""
    claimed = (update.c.run == run_id) & (update.c.origin == updates.COMPACTED)
    return connection.execute(sa.select(sa.exists().where(claimed))).scalar_one()


def replaced(connection: sa.Connection, row: updates.UpdateRow) -> list[Pin]:
    """Return the pins of the updates whose rows a compacted update has. Return [] for an update of a build."""
    if row.origin != updates.COMPACTED:
        return []
    of_update = (consumed.c.feed == str(row.partition.feed)) & (consumed.c.partition == row.partition.key)
    rows = connection.execute(sa.select(consumed).where(of_update, consumed.c.id == row.id, ~consumed.c.is_input))
    return [*map(updates.pin_of, rows)]


def _spans(pins: Iterable[Pin]) -> list[Pin]:
    """Return one pin for each partition of an event table, with a slice that covers all its pins.

    The slice reaches from the first marker of the partition's pins to the last.
    """
    pins_by_partition: dict[Partition, list[Pin]] = {}
    for pin in pins:
        pins_by_partition.setdefault(pin.partition, []).append(pin)
    return [_span(pins_of_one) for pins_of_one in pins_by_partition.values()]


def _span(pins: Collection[Pin]) -> Pin:
    starts, end = [pin.start for pin in pins], max(pin.update_id for pin in pins)
    start = None if None in starts else min(filter(None, starts))
    return Pin(next(iter(pins)).partition, end, f"{start or ''}..{end}", start=start)
