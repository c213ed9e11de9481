"""Counts of updates by window of event time. The first process that counts an update stores them."""

from collections.abc import Collection, Iterable
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.reports import text_of
from feed_assets.core.write_result import Counts
from feed_assets.ledger import key_tables, log, updates
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import dataset, update

COUNTER = "counter of feeds"
"""The name of the feed counter, as a reporter and as a subscriber of the log."""


def uncounted(connection: sa.Connection, pinned: Iterable[Update]) -> set[Update]:
    """Return the foreign updates that a run must count: those without counts whose producers report no counts."""
    by_key = {(str(each.partition.feed), each.partition.key, each.id): each for each in pinned}
    if not by_key:
        return set()
    key_table = key_tables.updates(connection, ((each.partition, each.id) for each in by_key.values()))
    is_uncounted = key_tables.same_keys(update, key_table) & update.c.windows.is_(None)
    rows = connection.execute(sa.select(update.c.feed, update.c.partition, update.c.id).join(key_table, is_uncounted))
    self_reported = reported_by_others(connection, {each.partition.feed for each in by_key.values()})
    uncounted_updates = {by_key[row.feed, row.partition, row.id] for row in rows}
    return {each for each in uncounted_updates if each.partition.feed not in self_reported}


def is_counted(connection: sa.Connection, counted: Partition, update_id: str) -> bool:
    """Return whether an update is counted by window."""
    condition = updates.is_(counted, update_id) & update.c.windows.is_not(None)
    return connection.execute(sa.select(update.c.id).where(condition)).first() is not None


def reported_by_others(connection: sa.Connection, feeds: Collection[Feed]) -> set[Feed]:
    """Return the feeds whose producers report their own counts. Cost: one index lookup for each feed."""
    key_table = key_tables.rows(connection, ("name",), [[str(feed)] for feed in feeds])
    query = (
        sa.select(dataset.c.name).join(key_table, key_tables.same_keys(dataset, key_table)).where(dataset.c.reported)
    )
    return {Feed.parse(name) for name in connection.execute(query).scalars()}


def keep(connection: sa.Connection, counted_updates: Iterable[tuple[Update, Counts]], by: str, now: datetime) -> None:
    """Store the counts of uncounted updates, and log them for the counter. A repeated call changes nothing."""
    for counted, counts in counted_updates:
        row = updates.find(connection, counted.partition, counted.id)
        is_uncounted = updates.is_(counted.partition, counted.id) & update.c.windows.is_(None)
        is_new = (
            row and connection.execute(sa.update(update).where(is_uncounted).values(windows=text_of(counts))).rowcount
        )
        if row and is_new:
            number = log.append(
                connection,
                [Change(counted.partition, log.COUNTED, counted.id, at=now, before=row.state, after=row.state, who=by)],
            )
            this = updates.is_(counted.partition, counted.id)
            connection.execute(sa.update(update).where(this).values(changed=number))


def newest(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, tuple[str | None, int]]:
    """Return each partition's newest valid update: its counts (None if it was not counted), and their version.

    The version is the number of the partition's last change, so changed counts get a new version. Cost: a few index
    lookups for each partition.
    """
    partitions = [*partitions]
    history = update.alias()
    key_table = key_tables.partitions(connection, partitions)
    published = key_tables.same_keys(history, key_table) & (history.c.state == updates.PUBLISHED)
    last = sa.select(sa.func.max(history.c.id)).where(published).correlate(key_table).scalar_subquery()
    query = sa.select(update.c.feed, update.c.partition, update.c.windows).join(
        key_table, key_tables.same_keys(update, key_table)
    )
    rows = connection.execute(query.where(update.c.id == last))
    counts = {Partition(Feed.parse(row.feed), row.partition): row.windows for row in rows}
    return {each: (counts.get(each), number) for each, number in log.last_of(connection, partitions).items()}
