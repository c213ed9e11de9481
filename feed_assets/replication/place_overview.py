"""State of a place by dataset: complete partitions, waiting tasks, lag; and the notes and alerts about them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.ledger import alerts, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import replica, replica_task, update
from feed_assets.ledger.updates import UpdateRow
from feed_assets.replication import replicas, turn
from feed_assets.replication.copy_events import source_urls
from feed_assets.replication.places import matches, without_rejects
from feed_assets.replication.replica_tasks import COPY, REMOVE, WITHDRAW

LATE = "replication"
"""The kind of alerts about copies that fail or are late: `replication:<dataset>|<data center>`."""

_NOUNS = {COPY: "copy", WITHDRAW: "withdrawal", REMOVE: "removal"}

_Row = Any
"""A row of the ledger, or None."""


@dataclass(frozen=True, kw_only=True)
class WaitingCopies:
    """Copies of a dataset that a place does not have yet. `lag` is the age of the oldest transition, in seconds."""

    place: str
    feed: Feed
    waiting: int
    waiting_bytes: int
    lag: float | None
    error: str | None


@dataclass(frozen=True, kw_only=True)
class DatasetCopies(WaitingCopies):
    """Copies of a dataset in a place.

    `partitions` have a valid update at the source, batches count on their own; of `complete` ones the place has the
    newest.
    """

    partitions: int
    complete: int


def overview(connection: sa.Connection, place: str, datasets: Iterable[str], now: datetime) -> list[DatasetCopies]:
    """Return the copies of each dataset that a place has, or is to get, by name."""
    counts = _complete(connection, place)
    waiting = {each.feed: each for each in waiting_copies(connection, place, now)}
    patterns = [*datasets]
    feeds = {feed for feed in counts if matches(feed, patterns)} | waiting.keys()
    return [_copies(waiting.get(each) or _no_waiting(place, each), counts.get(each, (0, 0))) for each in sorted(feeds)]


def _copies(waiting: WaitingCopies, counts: tuple[int, int]) -> DatasetCopies:
    return DatasetCopies(**vars(waiting), partitions=counts[0], complete=counts[1])


def _no_waiting(place: str, feed: Feed) -> WaitingCopies:
    return WaitingCopies(place=place, feed=feed, waiting=0, waiting_bytes=0, lag=None, error=None)


def waiting_copies(connection: sa.Connection, place: str, now: datetime) -> list[WaitingCopies]:
    """Return the datasets for which something waits in a place. The cost does not grow with what the place has."""
    errors = _errors(connection, place)
    return [
        WaitingCopies(
            place=place,
            feed=feed,
            waiting=tasks,
            waiting_bytes=size,
            lag=max((now - since).total_seconds(), 0),
            error=errors.get(feed),
        )
        for feed, (tasks, size, since) in sorted(_waiting(connection, place).items())
    ]


def _complete(connection: sa.Connection, place: str) -> dict[Feed, tuple[int, int]]:
    """Return for each feed how many partitions have a published update, and of how many the place has the newest."""
    keys = update.c.feed, update.c.partition
    newest = sa.select(*keys, sa.func.max(update.c.id).label("id")).where(update.c.state == updates.PUBLISHED)
    newest = newest.group_by(*keys).subquery()
    has_copy = (replica.c.place == place) & (replica.c.state == replicas.PUBLISHED)
    for name in ("feed", "partition", "id"):
        has_copy &= replica.c[name] == newest.c[name]
    query = sa.select(newest.c.feed, sa.func.count(), sa.func.count(replica.c.id))
    query = query.select_from(newest.outerjoin(replica, has_copy)).group_by(newest.c.feed)
    return {Feed.parse(feed): (partitions, complete) for feed, partitions, complete in connection.execute(query)}


def _waiting(connection: sa.Connection, place: str) -> dict[Feed, tuple[int, int, datetime]]:
    size = sa.func.sum(sa.case((replica_task.c.action == COPY, sa.func.coalesce(replica_task.c.size, 0)), else_=0))
    columns = replica_task.c.feed, sa.func.count(), size, sa.func.min(replica_task.c.since)
    query = sa.select(*columns).where(replica_task.c.place == place).group_by(replica_task.c.feed)
    return {Feed.parse(feed): (count, int(size), since) for feed, count, size, since in connection.execute(query)}


def _errors(connection: sa.Connection, place: str) -> dict[Feed, str]:
    """Return the error of the oldest failed task of each feed."""
    failed = (replica_task.c.place == place) & replica_task.c.error.is_not(None)
    query = sa.select(replica_task.c.feed, replica_task.c.error).where(failed)
    rows = connection.execute(query.order_by(replica_task.c.sequence.desc()))
    return {Feed.parse(row.feed): row.error or "" for row in rows}


def left_notes(connection: sa.Connection, place: str, patterns: Collection[str]) -> list[str]:
    """Return a note for each feed whose copies stay in a place although no pattern of the place matches it any more."""
    query = sa.select(replica.c.feed, sa.func.count()).filter_by(place=place, state=replicas.PUBLISHED)
    rows = connection.execute(query.group_by(replica.c.feed).order_by(replica.c.feed)).all()
    return [
        f"the data center {place} has {count} {'copy' if count == 1 else 'copies'} of {feed}, which none of its "
        "`datasets` matches any more: it does not follow the source. Add a pattern for it, or remove the copies by "
        f"`feed-assets replicate repair {place} {feed}`"
        for feed, count in rows
        if not matches(Feed.parse(feed), patterns)
    ]


def late(copies: Iterable[WaitingCopies], deadline: float | None) -> dict[str, str]:
    """Return the reason of an alert for each dataset whose copies fail, or are later than `deadline` seconds.

    The keys are `<dataset>|<place>`.
    """
    reasons = dict[str, str]()
    for each in copies:
        is_late = deadline is not None and each.lag is not None and each.lag > deadline
        if is_late or each.error:
            verb = "waits" if each.waiting == 1 else "wait"
            lag = f"{_transitions(each.waiting)} {verb}, the oldest for {timedelta(seconds=int(each.lag or 0))}"
            limit = f", expected at most {timedelta(seconds=deadline)}" if is_late and deadline else ""
            error = f": {each.error}" if each.error else ""
            reasons[f"{each.feed}|{each.place}"] = f"the copy in the data center {each.place}: {lag}{limit}{error}"
    return reasons


def notes(connection: sa.Connection, newest: UpdateRow | None) -> list[str]:
    """Return a note for each place about the newest update of a partition: copied, or waiting and why."""
    if newest is None:
        return []
    its_keys = {"feed": str(newest.partition.feed), "partition": newest.partition.key}
    copies = sa.select(replica).filter_by(**its_keys, id=newest.id).order_by(replica.c.place)
    waiting = sa.select(replica_task).filter_by(**its_keys).order_by(replica_task.c.place, replica_task.c.sequence)
    first_tasks = {row.place: row for row in reversed(connection.execute(waiting).all())}
    done = {row.place: row for row in connection.execute(copies)}
    sources = source_urls(connection, newest, done)
    return [
        _note(newest.id, place, done.get(place), first_tasks.get(place), sources.get(place, ""))
        for place in sorted({*done, *first_tasks})
    ]


def lag_notes(connection: sa.Connection, feeds: Iterable[Feed], now: datetime) -> list[str]:
    """Return a note for each place and dataset whose transitions are not all in the place yet."""
    query = sa.select(replica_task.c.place).distinct().order_by(replica_task.c.place)
    datasets = frozenset(feeds)
    return [
        f"the data center {place} waits for {feed}: {_transitions(tasks)}, the oldest for {_age(since, now)}"
        for place in connection.execute(query).scalars()
        for feed, (tasks, _, since) in sorted(_waiting(connection, place).items())
        if without_rejects(feed) in datasets
    ]


def unfinished(connection: sa.Connection, place: str, *, failed: int, is_busy: bool, **_: object) -> str:
    """Return why copies into a place stopped early or failed. Return an empty text if they did not."""
    paused, error = turn.why_paused(connection, place), min(_errors(connection, place).values(), default="")
    reasons = [f"it is paused: {paused}" if paused else "another process copies into it"] * is_busy
    reasons += [f"{failed} {'task' if failed == 1 else 'tasks'} failed: {error}"] * (failed > 0)
    return "; ".join(reasons)


def _transitions(count: int) -> str:
    return f"{count} transition{'s' * (count != 1)}"


def _age(since: datetime, now: datetime) -> timedelta:
    return timedelta(seconds=max(int((now - since).total_seconds()), 0))


def _note(update_id: str, place: str, copy: _Row, task: _Row, source: str) -> str:
    if task:
        error, noun = f": {task.error}" if task.error else "", _NOUNS[task.action]
        return f"the data center {place} waits for its {noun} since {task.since:%Y-%m-%d %H:%M:%S} UTC{error}"
    if copy and copy.state == replicas.PUBLISHED:
        seconds = (copy.at - copy.since).total_seconds()
        replica_of = f"a replica of {source}, " if source else ""
        return f"the data center {place} has {update_id}, {replica_of}{seconds:.0f} s after the source"
    return f"the data center {place} does not have {update_id}: it is {copy.state if copy else 'unknown'} there"


def resolve_alerts(ledger: Ledger, place: str, now: datetime) -> None:
    """Resolve the alerts of a place that is forgotten."""
    with ledger.read() as connection:
        keys = [each for each in alerts.of_kind(connection, LATE) if each.endswith(f"|{place}")]
    alerts.resolve(ledger, LATE, keys, now)
