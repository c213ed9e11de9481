"""Transitions of updates in the log become tasks: each place reads the log for itself."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import batch_partitions, key_tables, log, places_down, subscriptions
from feed_assets.ledger.database import Ledger, insert_into
from feed_assets.ledger.tables import change, replica, replica_place, replica_task, subscription, update
from feed_assets.replication import replica_tasks
from feed_assets.replication.places import Place, matches, without_rejects
from feed_assets.replication.replica_tasks import COPY, REMOVE, WITHDRAW, ReplicaTask
from feed_assets.replication.replicas import MISSED, WITHDRAWN

_Entry = Any
"""A row of the log: SQLAlchemy has no type for rows whose columns are chosen by name."""

CHANGES_PER_STEP = 1000
"""Number of changes that one transaction makes to tasks."""

_ACTIONS = {log.PUBLISHED: COPY, log.INVALIDATED: WITHDRAW, log.PRUNED: REMOVE}


def _readers(name: str) -> str:
    """Return how the names begin under which a place reads the log."""
    return f"replicated to {name}: "


def fill(ledger: Ledger, place: Place, now: datetime, elsewhere: Collection[Feed] = ()) -> int:
    """Make tasks of the new transitions of a place's datasets, and return their number.

    Each pattern has a position of its own, and begins at the start of the log. Positions of patterns that the place no
    longer has are removed, because they would hold the log. Feeds in `elsewhere` are on other blackboards.
    """
    _forget_others(ledger, place)
    new = sum(_fill(ledger, place, pattern, now, elsewhere) for pattern in place.center.datasets)
    return new + _fill_missed(ledger, place, now)


def _fill(ledger: Ledger, place: Place, pattern: str, now: datetime, elsewhere: Collection[Feed]) -> int:
    name, count = f"{_readers(place.name)}{pattern}", 0
    while True:
        with ledger.read() as connection:
            upto, before = log.last(connection), _position(connection, name)
            entries = _transitions(connection, before or 0, upto)
            chosen = [each for each in entries if _is_chosen(each, pattern, elsewhere)]
            new = [_task(connection, place, each, now) for each in chosen]
        is_last = len(entries) < CHANGES_PER_STEP
        reached = upto if is_last else entries[-1].sequence
        if reached == before:
            return count
        with ledger.write() as connection:
            # Tasks and position change together: a kill repeats or loses no transition.
            if not _advance(connection, name, before, reached):
                return count
            replica_tasks.put(connection, new)
        count += len(new)
        if is_last:
            return count


def _fill_missed(ledger: Ledger, place: Place, now: datetime) -> int:
    """Make a task of each copy that a run has missed in the place, if its update is valid.

    A copy that is there after all, such as on a disk that was not mounted, is compared and not sent. Tasks and states
    change together, so each miss makes one task. While an earlier task of the update exists, the copy stays missed: the
    task may be ending, without another look.
    """
    its_task = sa.and_(*(replica_task.c[name] == replica.c[name] for name in ("place", "feed", "partition", "id")))
    is_missed = (replica.c.place == place.name) & (replica.c.state == MISSED) & ~sa.exists().where(its_task)
    with ledger.read() as connection:
        if not connection.scalar(sa.select(sa.exists().where(is_missed))):
            return 0
    with ledger.write() as connection:
        # The rows first: a copy that is missed meanwhile must not lose this state without a task.
        to_withdrawn = sa.update(replica).where(is_missed).values(state=WITHDRAWN)
        missed = connection.execute(to_withdrawn.returning(replica.c.feed, replica.c.partition, replica.c.id)).all()
        keys = key_tables.updates(connection, [(Partition(Feed.parse(feed), key), each) for feed, key, each in missed])
        is_same = sa.and_(*(update.c[name] == keys.c[name] for name in ("feed", "partition", "id")))
        its_change = update.c.changed.label("sequence"), update.c.id.label("subject"), update.c.state.label("after")
        query = sa.select(update.c.feed, update.c.partition, *its_change, update.c.at).join(keys, is_same)
        entries = connection.execute(query.where(update.c.state == log.PUBLISHED)).all()
        new = [_task(connection, place, each, now) for each in entries]
        replica_tasks.put(connection, new)
    return len(new)


def _transitions(connection: sa.Connection, after: int, upto: int) -> list[_Entry]:
    columns = change.c.sequence, change.c.feed, change.c.partition, change.c.subject, change.c.after, change.c.at
    condition = (change.c.sequence > after) & (change.c.sequence <= upto) & (change.c.kind == log.UPDATE)
    query = sa.select(*columns).where(condition, change.c.after.in_(sorted(_ACTIONS)))
    return [*connection.execute(query.order_by(change.c.sequence).limit(CHANGES_PER_STEP))]


def _is_chosen(entry: _Entry, pattern: str, elsewhere: Collection[Feed]) -> bool:
    feed = Feed.parse(entry.feed)
    return feed not in elsewhere and matches(feed, [pattern])


def _task(connection: sa.Connection, place: Place, entry: _Entry, now: datetime) -> ReplicaTask:
    partition = Partition(Feed.parse(entry.feed), entry.partition)
    its_update = (update.c.feed == entry.feed) & (update.c.partition == entry.partition)
    files = sa.select(update.c.files_digest, update.c.size).where(its_update, update.c.id == entry.subject)
    digest, size = connection.execute(files).one_or_none() or (None, None)
    lane, action = lane_of(connection, partition), _ACTIONS[entry.after]
    return ReplicaTask(
        place.name,
        lane,
        entry.sequence,
        partition,
        entry.subject,
        action=action,
        since=entry.at,
        due=now,
        files_digest=digest,
        size=size,
    )


def lane_of(connection: sa.Connection, partition: Partition) -> str:
    """Return the lane of a partition: rejects go with their dataset, and batches with their partition."""
    parent = partition.parent
    if parent is not None and partition in batch_partitions.recorded_batches(connection, [parent])[parent]:
        partition = parent
    return str(Partition(without_rejects(partition.feed), partition.key))


def _position(connection: sa.Connection, name: str) -> int | None:
    query = sa.select(subscription.c.position).filter_by(subscriber=name, feed=subscriptions.ALL)
    return connection.execute(query).scalar()


def _advance(connection: sa.Connection, name: str, before: int | None, reached: int) -> bool:
    """Move a position from `before` to `reached`. Return False if another process has moved it meanwhile."""
    key = {"subscriber": name, "feed": subscriptions.ALL}
    if before is None:
        first = insert_into(connection, subscription).values(**key, position=reached).on_conflict_do_nothing()
        return bool(connection.execute(first).rowcount)
    moved = sa.update(subscription).filter_by(**key, position=before).values(position=reached)
    return bool(connection.execute(moved).rowcount)


def _forget_others(ledger: Ledger, place: Place) -> None:
    kept = {f"{_readers(place.name)}{pattern}" for pattern in place.center.datasets}
    with ledger.read() as connection:
        gone = readers_of(connection, place.name) - kept
    if gone:
        with ledger.write() as connection:
            connection.execute(sa.delete(subscription).where(subscription.c.subscriber.in_(sorted(gone))))


def readers_of(connection: sa.Connection, name: str) -> set[str]:
    """Return the names under which a place reads the log."""
    its_rows = subscription.c.subscriber.startswith(_readers(name), autoescape=True)
    return {*connection.execute(sa.select(subscription.c.subscriber).where(its_rows)).scalars()}


def forget_place(connection: sa.Connection, place: str) -> int:
    """Remove all rows about a place, and its positions in the log. Return how many copies and tasks it had.

    The files in the place stay.
    """
    counts = [
        connection.execute(sa.delete(table).where(table.c.place == place)).rowcount
        for table in (replica, replica_task, replica_place)
    ]
    places_down.forget(connection, place)
    readers = readers_of(connection, place)
    connection.execute(sa.delete(subscription).where(subscription.c.subscriber.in_(sorted(readers))))
    return counts[0] + counts[1]
