"""Copies of updates in data centers, as runs need them: which are published there, and with which files."""

import json
from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.data_centers import title_of
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import key_tables, log
from feed_assets.ledger.tables import due, replica, replica_place, update

PinnedUpdate = tuple[Partition, str]
"""A partition and the id of its update that a run reads."""

PUBLISHED, MISSED = "published", "missed"
"""States of a copy that runs may read, and of one that a run has missed in its place, until a task looks at it."""


def published(connection: sa.Connection, place: str, pinned: Collection[PinnedUpdate]) -> set[PinnedUpdate]:
    """Return the updates whose copy is published in a place with the files that the source has."""
    key_table = key_tables.updates(connection, pinned)
    names = ("feed", "partition", "id")
    same_copy = sa.and_(*(replica.c[name] == key_table.c[name] for name in names))
    same_update = sa.and_(*(update.c[name] == key_table.c[name] for name in names))
    # A copy with other files is one that the owner has written again under its id.
    same_files = update.c.files_digest.is_(None) | (update.c.files_digest == replica.c.files_digest)
    query = sa.select(replica.c.feed, replica.c.partition, replica.c.id).select_from(key_table)
    query = query.join(replica, same_copy & (replica.c.place == place) & (replica.c.state == PUBLISHED))
    query = query.join(update, same_update & same_files)
    rows = {(row.feed, row.partition, row.id) for row in connection.execute(query)}
    return {(at, each) for at, each in pinned if (str(at.feed), at.key, each) in rows}


def behind_since(connection: sa.Connection, place: str, pinned: Collection[PinnedUpdate]) -> datetime | None:
    """Return since when a place lacks the partitions of these updates. Return None if the ledger has none of them.

    It is the time of a partition's first update after the newest copy, so that one update after another, each a little
    late, does not look as if the place had nothing to catch up.
    """
    key_table = key_tables.updates(connection, pinned)
    same_partition = (update.c.feed == key_table.c.feed) & (update.c.partition == key_table.c.partition)
    its_copy = (replica.c.feed == update.c.feed) & (replica.c.partition == update.c.partition)
    its_copy &= (replica.c.place == place) & (replica.c.state == PUBLISHED)
    copied = sa.select(sa.func.max(replica.c.id)).where(its_copy).scalar_subquery()
    was_published = update.c.state.in_((log.PUBLISHED, log.PRUNED))
    is_newer = was_published & (update.c.id <= key_table.c.id) & (update.c.id > sa.func.coalesce(copied, ""))
    is_pinned = update.c.id == key_table.c.id
    query = sa.select(sa.func.min(update.c.at)).select_from(key_table).join(update, same_partition)
    return connection.execute(query.where(is_newer | is_pinned)).scalar()


def paused_places(connection: sa.Connection) -> set[str]:
    """Return the data centers into which nothing is copied now, because a person has paused the copies."""
    return {*connection.execute(sa.select(replica_place.c.place).where(replica_place.c.paused.is_not(None))).scalars()}


def files_of(
    connection: sa.Connection, place: str, partition: Partition, update_id: str
) -> dict[str, tuple[int, str, str]] | None:
    """Return the size, the source's etag and the place's etag of each file of a published copy, by name.

    Return None if no such copy is published.
    """
    key = {"place": place, "feed": str(partition.feed), "partition": partition.key, "id": update_id}
    row = connection.execute(sa.select(replica.c.files).filter_by(**key, state=PUBLISHED)).first()
    if row is None:
        return None
    facts: dict[str, tuple[int, str, str, str]] = json.loads(row.files or "{}")
    return {name: (size, of_source, of_copy) for name, (size, _, of_source, of_copy) in facts.items()}


def mark_gone(connection: sa.Connection, place: str, partition: Partition, update_id: str) -> None:
    """Record that a copy is not valid in its place any more. Without this, run after run would go there in vain.

    Replication then looks at it, and copies it again if it is gone.
    """
    key = {"place": place, "feed": str(partition.feed), "partition": partition.key, "id": update_id}
    connection.execute(sa.update(replica).filter_by(**key, state=PUBLISHED).values(state=MISSED))


def wake_waiting(connection: sa.Connection, place: str, partition: Partition, now: datetime) -> None:
    """Make outputs due now whose reason names a partition that a place did not have, because a copy has arrived.

    Ticks look at these outputs again anyway, so an output that another transaction has locked can be skipped.
    """
    named = due.c.reason.contains(f"{title_of(place)}: {partition} ", autoescape=True)
    waits = (due.c.state == "waits for input") & (due.c.look_at > now) & named
    query = sa.select(due.c.feed, due.c.partition).where(waits).order_by(due.c.feed, due.c.partition)
    if rows := connection.execute(query.with_for_update(skip_locked=True)).all():
        partitions = [Partition(Feed.parse(feed), key) for feed, key in rows]
        key_table = key_tables.partitions(connection, partitions)
        woken = sa.tuple_(due.c.feed, due.c.partition).in_(sa.select(key_table.c.feed, key_table.c.partition))
        connection.execute(sa.update(due).where(woken).values(look_at=now))
