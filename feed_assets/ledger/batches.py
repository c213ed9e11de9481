"""Which partitions are batches: those that were found in an appendable feed, and no others."""

from collections.abc import Sequence

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import wanted
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import batch


def has_joined(connection: sa.Connection, partition: Partition) -> bool:
    """Whether a batch is known as one of its parent partition's; what has no parent need not be."""
    if partition.parent is None:
        return True
    mine = (batch.c.feed == str(partition.feed)) & (batch.c.partition == partition.parent.key)
    return connection.execute(sa.select(sa.exists().where(mine, batch.c.key == partition.key))).scalar_one()


def known(connection: sa.Connection, parents: Sequence[Partition]) -> dict[Partition, tuple[Partition, ...]]:
    """The batches of partitions of appendable feeds, valid or not, sorted; () of one that the ledger knows none of."""
    found: dict[Partition, list[Partition]] = {parent: [] for parent in parents}
    if parents:
        for row in wanted.matching(connection, batch, wanted.keys(parents)):
            feed = Feed.parse(row.feed)
            found[Partition(feed, row.partition)].append(Partition(feed, row.key))
    return {parent: tuple(sorted(each)) for parent, each in found.items()}


def join(connection: sa.Connection, partition: Partition) -> bool:
    """Make a batch known as one of its parent partition's; False, and nothing is done, if it is."""
    if partition.parent is None or has_joined(connection, partition):
        return False
    row = {"feed": str(partition.feed), "partition": partition.parent.key, "key": partition.key}
    insert_missing(connection, batch, [row])
    return True
