"""Recovery of a lost ledger's rows about our own feeds. Existing rows are not changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.events import joined_correlation
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.pins import Pin
from feed_assets.ledger import claims, update_changes, updates
from feed_assets.ledger.announce import correlations
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import consumed, update


@dataclass(frozen=True)
class RecoveredUpdate:
    """A valid update of one of our own feeds. `records` and `version` are None if the update's rows were not read."""

    update: Update
    records: int | None = None
    version: str | None = None


def known_ids(connection: sa.Connection, partition: Partition) -> set[str]:
    """Return the update ids of a partition in the ledger, in any state."""
    return {*connection.execute(sa.select(update.c.id).where(updates.is_(partition))).scalars()}


def record(ledger: Ledger, recovered: Sequence[RecoveredUpdate], pins: Sequence[Pin], now: datetime) -> None:
    """Record the updates of one partition, oldest first. The last update was built from `pins`.

    All rows are written in one transaction. Otherwise another process could see the last update without its lineage,
    and start a run.
    """
    with ledger.change() as connection:
        for each in recovered[:-1]:
            _record(connection, each, None, now)
        if recovered:
            incoming = correlations(connection, "", pins)
            _record(connection, recovered[-1], joined_correlation(incoming)[0] if incoming else None, now)
            _assume(connection, recovered[-1].update.partition, recovered[-1].update.id, pins)


def assume(ledger: Ledger, partition: Partition, update_id: str, pins: Sequence[Pin]) -> None:
    """Record the pins that an update was probably built from. Do nothing if it has recorded pins."""
    with ledger.write() as connection:
        _assume(connection, partition, update_id, pins)


def without_lineage(connection: sa.Connection, feed: str) -> tuple[updates.UpdateRow, ...]:
    """Return the newest published update of each partition of a feed, if it has no recorded inputs."""
    is_published = (update.c.feed == feed) & (update.c.state == updates.PUBLISHED)
    newest = sa.select(update.c.partition, sa.func.max(update.c.id).label("id")).where(is_published)
    newest = newest.group_by(update.c.partition).subquery()
    same_update = (
        (consumed.c.feed == feed) & (consumed.c.partition == update.c.partition) & (consumed.c.id == update.c.id)
    )
    has_input = sa.select(consumed.c.id).where(same_update, consumed.c.is_input).exists()
    is_newest = (update.c.partition == newest.c.partition) & (update.c.id == newest.c.id)
    query = (
        sa.select(*updates.COLUMNS).join(newest, is_newest).where(is_published, ~has_input).order_by(update.c.partition)
    )
    return tuple(updates.row_of(row) for row in connection.execute(query).mappings())


def _record(connection: sa.Connection, recovered: RecoveredUpdate, correlation: str | None, now: datetime) -> None:
    valid_update = recovered.update
    if updates.find(connection, valid_update.partition, valid_update.id):
        return
    values = {
        "version": recovered.version or valid_update.files_digest,
        "size": valid_update.size,
        "files": len(valid_update.files),
    }
    values |= {"files_digest": valid_update.files_digest, "records": recovered.records}
    values["correlation"] = correlation
    update_changes.insert(
        connection,
        valid_update.partition,
        valid_update.id,
        origin=updates.REBUILT,
        state=updates.PUBLISHED,
        at=now,
        **values,
    )


def _assume(connection: sa.Connection, partition: Partition, update_id: str, pins: Sequence[Pin]) -> None:
    if updates.consumed_by(connection, partition, update_id):
        return
    for pin in pins:
        claims.consume(connection, (partition, update_id), pin, is_input=True)
