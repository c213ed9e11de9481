"""Ledger facts for pruning a partition's updates, and the record of their removal."""

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import runs, update_changes, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import consumed, run, update


def recorded_updates(connection: sa.Connection, partition: Partition, oldest: str) -> dict[str, tuple[str, str | None]]:
    """Return state and run of a partition's updates from `oldest` on, by id.

    Updates of a foreign producer have no run.
    """
    query = sa.select(update.c.id, update.c.state, update.c.run).where(updates.is_(partition), update.c.id >= oldest)
    return {row.id: (row.state, row.run) for row in connection.execute(query)}


def readers(connection: sa.Connection, partition: Partition) -> dict[str, str]:
    """Return the updates of a partition that are pinned by runs in progress, each with one of these runs.

    The search starts from the few runs in progress, so the pins of the history are not scanned.
    """
    claimed = (update.c.run == run.c.id) & (update.c.state == updates.CLAIMED)
    same_partition = (consumed.c.feed == update.c.feed) & (consumed.c.partition == update.c.partition)
    read = (consumed.c.input_feed == str(partition.feed)) & (consumed.c.input_partition == partition.key)
    query = sa.select(consumed.c.position, run.c.id).select_from(run).join(update, claimed)
    query = query.join(consumed, same_partition & (consumed.c.id == update.c.id)).where(
        run.c.state == runs.RUNNING, read
    )
    return {row.position: row.id for row in connection.execute(query)}


def is_ours(connection: sa.Connection, feed: Feed) -> bool:
    """Return whether one of our runs, or our intake, has ever written to a feed."""
    own_updates = sa.select(update.c.id).where(update.c.feed == str(feed), update.c.origin != updates.FOREIGN).limit(1)
    return connection.execute(own_updates).first() is not None


def give_up(ledger: Ledger, partition: Partition, going: Mapping[str, str], now: datetime) -> dict[str, str]:
    """Record valid updates as pruned, with their reasons, before their files are removed.

    Return the updates that must stay, each with the run that has pinned it in the meantime. A run that claims a pruned
    update later raises UpdateChanged.
    """
    with ledger.change() as connection:  # Take the lock before reading, so that no claim is missed.
        pinned = {each: reader for each, reader in readers(connection, partition).items() if each in going}
        for update_id, reason in going.items():
            if update_id not in pinned:
                _record(connection, partition, update_id, reason, now)
    return pinned


def _record(connection: sa.Connection, partition: Partition, update_id: str, reason: str, now: datetime) -> None:
    if updates.find(connection, partition, update_id):
        update_changes.change(connection, partition, update_id, updates.PRUNED, now, listing=None, reason=reason)
    else:
        update_changes.insert(
            connection, partition, update_id, origin=updates.FOREIGN, state=updates.PRUNED, at=now, reason=reason
        )


def removed(ledger: Ledger, partition: Partition, update_id: str) -> None:
    """Record that the files of an invalid update were removed.

    The removal is not logged, because no decision depends on it.
    """
    with ledger.write() as connection:
        row = updates.find(connection, partition, update_id)
        if row:
            values = {"reason": f"{row.reason or row.state}; its files were pruned", "listing": None}
            connection.execute(sa.update(update).where(updates.is_(partition, update_id)).values(values))
