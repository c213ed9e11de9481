"""The current content of partitions: the newest update, or the newest valid update of each batch.

Compaction joins batches of our own appendable datasets into a range. Batches that a range replaces are left out
(`core.batch_names`).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from feed_assets.core.batch_names import in_effect
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import batch_partitions, key_tables, updates
from feed_assets.ledger.tables import batch, update
from feed_assets.ledger.tables import consumed as table


def pins_of(connection: sa.Connection, parents: Sequence[Partition]) -> dict[Partition, tuple[Pin, ...]]:
    """Return the pins with which a reader reads appendable partitions: the newest valid update of every batch."""
    rows = _rows_of(connection, parents)
    return {parent: tuple(rows[parent][each].pin for each in sorted(rows[parent])) for parent in parents}


def of_others(connection: sa.Connection, parent: Partition) -> list[Partition]:
    """Return the current batches of a partition whose newest update was written by others, such as by hand."""
    return [each for each, row in _rows_of(connection, [parent])[parent].items() if row.is_foreign]


def _rows_of(
    connection: sa.Connection, parents: Sequence[Partition]
) -> dict[Partition, dict[Partition, updates.UpdateRow]]:
    batched = batch_partitions.recorded_batches(connection, parents)
    newest = updates.newest(connection, [member for members in batched.values() for member in members])
    return {
        parent: {each: newest[each] for each in in_effect(members, newest) if each in newest}
        for parent, members in batched.items()
    }


def newest(connection: sa.Connection, outputs: Iterable[Partition]) -> dict[Partition, updates.UpdateRow]:
    """Return the newest update of each output that has one.

    For an output with batches, return the newest update of all its batches.
    """
    outputs = {*outputs}
    newest_rows = updates.newest(connection, outputs)
    rows = _rows_of(connection, sorted(outputs - newest_rows.keys()))
    return newest_rows | {
        parent: max(batches.values(), key=lambda row: row.id) for parent, batches in rows.items() if batches
    }


def consumed(
    connection: sa.Connection, newest_rows: Mapping[Partition, updates.UpdateRow]
) -> dict[Partition, tuple[Pin, ...]]:
    """Return the pins from which the updates in `newest_rows` were built.

    For an output with batches, return only the latest pin of each input.
    """
    of_batches = _rows_of(connection, sorted(at for at, row in newest_rows.items() if row.partition != at))
    single = {at: row.id for at, row in newest_rows.items() if row.partition == at}
    batched = {each: row.id for rows in of_batches.values() for each, row in rows.items()}
    pins = consumed_of(connection, single | batched)
    last = {parent: _last(pin for each in rows for pin in pins.get(each, ())) for parent, rows in of_batches.items()}
    return {at: pins[at] for at in single if at in pins} | {parent: each for parent, each in last.items() if each}


def read_by_batch(connection: sa.Connection, parent: Partition) -> dict[Partition, tuple[Pin, ...]]:
    """Return the pins of each current batch of a partition."""
    rows = _rows_of(connection, [parent])[parent]
    pins = consumed_of(connection, {each: row.id for each, row in rows.items()})
    return {each: pins.get(each, ()) for each in rows}


def last_id(connection: sa.Connection, parent: Partition) -> str | None:
    """Return the greatest update id in any batch of a partition, valid or not. The next id must be greater."""
    held = sa.select(batch.c.key).where(batch.c.feed == str(parent.feed), batch.c.partition == parent.key)
    of_batches = (update.c.feed == str(parent.feed)) & update.c.partition.in_(held)
    return connection.execute(sa.select(sa.func.max(update.c.id)).where(of_batches)).scalar()


def _last(pins: Iterable[Pin]) -> tuple[Pin, ...]:
    """Return for each partition the pin with the newest update."""
    pin_by_partition: dict[Partition, Pin] = {}
    for pin in pins:
        previous = pin_by_partition.get(pin.partition)
        pin_by_partition[pin.partition] = (
            pin if previous is None else max(previous, pin, key=lambda each: each.update_id)
        )
    return tuple(sorted(pin_by_partition.values()))


def consumed_of(connection: sa.Connection, published: Mapping[Partition, str]) -> dict[Partition, tuple[Pin, ...]]:
    """Return the pins from which updates were built, by partition."""
    pins_by_output: dict[Partition, list[Pin]] = {}
    query = _consumed_of(connection.dialect.name)
    ids = key_tables.row_parameter((str(at.feed), at.key, update_id) for at, update_id in published.items())
    for row in connection.execute(query, ids):
        pins_by_output.setdefault(Partition(Feed.parse(row.feed), row.partition), []).append(updates.pin_of(row))
    return {output: tuple(sorted(pins)) for output, pins in pins_by_output.items()}


@cache
def _consumed_of(dialect: str) -> sa.Select[Any]:
    return key_tables.all_of(dialect, table, (*key_tables.PARTITION, "id")).where(table.c.is_input)
