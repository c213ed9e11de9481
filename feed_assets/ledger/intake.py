"""Updates that intake published: recorded at once, as nobody searches the blackboard for them."""

from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.events import foreign_correlation
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.reports import text_of
from feed_assets.core.write_result import Counts
from feed_assets.ledger import batch_partitions, update_counts, updates
from feed_assets.ledger.tables import update


def newest(connection: sa.Connection, batch: Partition) -> Update | None:
    """Return the last update of a batch that intake recorded, in whatever state, with its files, or None."""
    mine = updates.is_(batch) & (update.c.origin == updates.INTAKE)
    found = connection.execute(sa.select(sa.func.max(update.c.id)).where(mine)).scalar()
    return updates.recorded(connection, batch, found) if found else None


def record(connection: sa.Connection, found: Update, windows: Counts | None, who: str, now: datetime) -> None:
    """Record a published update of a batch, with its records by window if they are known. Repeatable.

    A run that reads its partition may have found it on the blackboard before: as another team's, without counts.
    """
    batch_partitions.join(connection, found.partition)
    if updates.find(connection, found.partition, found.id) is None:
        row = {
            "version": found.files_digest,
            "correlation": foreign_correlation(found.partition, found.id),
            "records": None if windows is None else sum(count for _, count in windows),
            "windows": None if windows is None else text_of(windows),
            **updates.files_of(found),
        }
        updates.insert(connection, found.partition, found.id, updates.INTAKE, updates.PUBLISHED, now, **row)
        return
    mine = updates.is_(found.partition, found.id)
    connection.execute(sa.update(update).where(mine).values(origin=updates.INTAKE))
    if windows is not None:
        update_counts.keep(connection, [(found, windows)], who, now)
