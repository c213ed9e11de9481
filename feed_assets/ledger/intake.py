"""Updates that intake publishes. Intake records them itself, because no sensor searches the blackboard for them."""

from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.events import foreign_correlation
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.reports import text_of
from feed_assets.core.write_result import Counts
from feed_assets.ledger import batch_partitions, update_changes, update_counts, updates
from feed_assets.ledger.tables import update


def newest(connection: sa.Connection, batch: Partition) -> Update | None:
    """Return the last update of a batch that the receiver or a pull wrote, in any state, with its files.

    Return None if there is none.
    """
    condition = updates.is_(batch) & (update.c.origin == updates.INTAKE)
    newest_id = connection.execute(sa.select(sa.func.max(update.c.id)).where(condition)).scalar()
    return updates.recorded(connection, batch, newest_id) if newest_id else None


def record(connection: sa.Connection, published: Update, windows: Counts | None, by: str, now: datetime) -> None:
    """Record a published update of a batch, with its records by window if known.

    A run that read the partition may already have recorded the same update, as another team's update without counts. A
    repeated call changes nothing.
    """
    batch_partitions.join(connection, published.partition)
    if updates.find(connection, published.partition, published.id) is None:
        row = {
            "version": published.files_digest,
            "correlation": foreign_correlation(published.partition, published.id),
            "records": None if windows is None else sum(count for _, count in windows),
            "windows": None if windows is None else text_of(windows),
            **updates.files_of(published),
        }
        update_changes.insert(
            connection, published.partition, published.id, origin=updates.INTAKE, state=updates.PUBLISHED, at=now, **row
        )
        return
    condition = updates.is_(published.partition, published.id)
    connection.execute(sa.update(update).where(condition).values(origin=updates.INTAKE))
    if windows is not None:
        update_counts.keep(connection, [(published, windows)], by, now)
