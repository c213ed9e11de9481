"""Tasks of replication: one for each transition of an update and each place that gets it.

A lane is a partition with its batches and its rejects. Within a lane, a task waits for the one before it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import replica_task

COPY, WITHDRAW, REMOVE = "copy", "withdraw", "remove"
"""Actions: copy an update, make its copy invalid, and remove what retention does not keep."""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)
"""Pauses after a failed try. Each pause is twice as long as the one before."""


@dataclass(frozen=True)
class ReplicaTask:
    """One thing to do about one update in a place. UTC: `since` the source changed, `due` is when it is tried next."""

    place: str
    lane: str
    sequence: int
    partition: Partition
    id: str
    action: str
    since: datetime
    due: datetime
    files_digest: str | None = None
    size: int | None = None
    tries: int = 0
    error: str | None = None


def put(connection: sa.Connection, new: Iterable[ReplicaTask]) -> None:
    """Add tasks. Existing tasks stay as they are, so this can be repeated."""
    rows = [{**vars(each), "feed": str(each.partition.feed), "partition": each.partition.key} for each in new]
    insert_missing(connection, replica_task, rows)


def heads(
    connection: sa.Connection, place: str, now: datetime, *, limit: int, rank: Callable[[Feed], int] = lambda _: 0
) -> list[ReplicaTask]:
    """Return the first task of each lane if it is due, up to `limit`: by the rank of its feed, then the oldest change.

    Few are read at a time, so that a new change of a dataset with a low rank does not wait for many others.
    """
    first = sa.select(replica_task.c.lane, sa.func.min(replica_task.c.sequence).label("sequence"))
    first = first.where(replica_task.c.place == place).group_by(replica_task.c.lane).subquery()
    is_first = (replica_task.c.lane == first.c.lane) & (replica_task.c.sequence == first.c.sequence)
    is_due = (replica_task.c.place == place) & (replica_task.c.due <= now)
    query = sa.select(replica_task).join(first, is_first).where(is_due)
    feeds = connection.execute(sa.select(replica_task.c.feed).where(is_due).distinct()).scalars()
    ranks = {feed: rank(Feed.parse(feed)) for feed in feeds}
    order = [sa.case(ranks, value=replica_task.c.feed)] if len({*ranks.values()}) > 1 else []
    return _tasks(connection, query.order_by(*order, replica_task.c.sequence).limit(limit))


def waiting(connection: sa.Connection, place: str, partition: Partition | None = None) -> list[ReplicaTask]:
    """Return the tasks of a place, of all partitions or of one, in the order of the log."""
    query = sa.select(replica_task).where(replica_task.c.place == place)
    if partition is not None:
        query = query.where(replica_task.c.feed == str(partition.feed), replica_task.c.partition == partition.key)
    return _tasks(connection, query.order_by(replica_task.c.sequence))


def is_due(connection: sa.Connection, place: str, now: datetime) -> bool:
    """Return whether a task of a place can be tried now: it is due, and the first of its lane."""
    before = replica_task.alias()
    is_before = (before.c.place == place) & (before.c.lane == replica_task.c.lane)
    is_second = sa.exists().where(is_before, before.c.sequence < replica_task.c.sequence)
    can_begin = (replica_task.c.place == place) & (replica_task.c.due <= now) & ~is_second
    return bool(connection.scalar(sa.select(sa.exists().where(can_begin))))


def _tasks(connection: sa.Connection, query: sa.Select[Any]) -> list[ReplicaTask]:
    rows = (dict(row) for row in connection.execute(query).mappings())
    return [ReplicaTask(partition=Partition(Feed.parse(row.pop("feed")), row.pop("partition")), **row) for row in rows]


def remove(connection: sa.Connection, done: ReplicaTask) -> None:
    """Remove a task that is done."""
    connection.execute(sa.delete(replica_task).where(*_is(done)))


def failed(connection: sa.Connection, task: ReplicaTask, now: datetime, error: str) -> None:
    """Record a failed try and the time of the next one."""
    pause = min(FIRST_PAUSE * 2 ** min(task.tries, 10), LONGEST_PAUSE)
    values = {"due": now + pause, "tries": task.tries + 1, "error": error}
    connection.execute(sa.update(replica_task).where(*_is(task)).values(values))


def retry(connection: sa.Connection, place: str, now: datetime) -> None:
    """Let all tasks of a place be tried now."""
    later = (replica_task.c.place == place) & (replica_task.c.due > now)
    connection.execute(sa.update(replica_task).where(later).values(due=now))


def _is(task: ReplicaTask) -> list[sa.ColumnElement[bool]]:
    names = ("place", "lane", "sequence")
    return [replica_task.c[name] == getattr(task, name) for name in names]
