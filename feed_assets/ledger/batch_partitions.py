"""Recorded batches of appendable feeds, under their parent partitions."""

from collections.abc import Sequence

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import batch

JOINS = "it is a batch of "
"""Beginning of the reason of a log change that repeats an update's state.

Such a change is logged when the update becomes known as a batch of a partition.
"""


def has_joined(connection: sa.Connection, partition: Partition) -> bool:
    """Return whether a batch is recorded under its parent partition. Return True if the partition is not a batch."""
    if partition.parent is None:
        return True
    of_parent = (batch.c.feed == str(partition.feed)) & (batch.c.partition == partition.parent.key)
    return connection.execute(sa.select(sa.exists().where(of_parent, batch.c.key == partition.key))).scalar_one()


def recorded_batches(connection: sa.Connection, parents: Sequence[Partition]) -> dict[Partition, tuple[Partition, ...]]:
    """Return the sorted batches of each parent partition, both valid and invalid. A parent without batches has ()."""
    batches_by_parent: dict[Partition, list[Partition]] = {parent: [] for parent in parents}
    if parents:
        for row in key_tables.matching(connection, batch, key_tables.keys(parents)):
            feed = Feed.parse(row.feed)
            batches_by_parent[Partition(feed, row.partition)].append(Partition(feed, row.key))
    return {parent: tuple(sorted(each)) for parent, each in batches_by_parent.items()}


def join(connection: sa.Connection, partition: Partition) -> bool:
    """Record a batch under its parent partition. Return False if it has no parent, or was recorded before."""
    if partition.parent is None or has_joined(connection, partition):
        return False
    row = {"feed": str(partition.feed), "partition": partition.parent.key, "key": partition.key}
    insert_missing(connection, batch, [row])
    return True
