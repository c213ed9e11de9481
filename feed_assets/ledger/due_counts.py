"""Counts of the due list by dataset and state, with a few examples."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.ledger.quality import FAILED
from feed_assets.ledger.tables import due, quality

EXAMPLES = 5
"""Maximum number of partitions of a group that are named. The others are only counted."""


@dataclass(frozen=True)
class WaitingExample:
    """One partition of a group: its key, and why it waits."""

    key: str
    reason: str | None = None


@dataclass(frozen=True)
class Group:
    """The due partitions of a dataset in one state. `state` is None if there was no decision since the last change."""

    feed: Feed
    state: str | None
    count: int
    examples: tuple[WaitingExample, ...]


def by_state(connection: sa.Connection) -> tuple[Group, ...]:
    """Return the due partitions of all datasets, grouped by state."""
    return tuple(_groups(connection.execute(_by_state())))


def refused(connection: sa.Connection) -> tuple[Group, ...]:
    """Return the due partitions with a failed check, with the reason.

    A failed audit counts until the next publication.
    """
    return tuple(_groups(connection.execute(_refused())))


@dataclass(frozen=True)
class WaitingCount:
    """The number of a dataset's due partitions in one state, and since when the first one is due (UTC)."""

    feed: str
    state: str | None
    count: int
    since: datetime


def waits(connection: sa.Connection) -> tuple[WaitingCount, ...]:
    """Return the counts of the due list by dataset and state, without examples."""
    query = sa.select(due.c.feed, due.c.state, sa.func.count(), sa.func.min(due.c.since))
    rows = connection.execute(query.group_by(due.c.feed, due.c.state).order_by(due.c.feed, due.c.state))
    return tuple(WaitingCount(*row) for row in rows)


@cache
def _by_state() -> sa.Select[Any]:
    return _grouped(sa.select(due.c.feed, due.c.state, due.c.partition, due.c.reason))


@cache
def _refused() -> sa.Select[Any]:
    own = (quality.c.feed == due.c.feed) & (quality.c.partition == due.c.partition) & (quality.c.state == FAILED)
    reason = sa.func.coalesce(sa.func.min(quality.c.reason), sa.func.min(quality.c.check)).label("reason")
    columns = due.c.feed, sa.literal(FAILED).label("state"), due.c.partition
    query = sa.select(*columns, reason).join(quality, own).group_by(due.c.feed, due.c.partition)
    return _grouped(query)


def _grouped(query: sa.Select[*tuple[Any, ...]]) -> sa.Select[Any]:
    rows = query.subquery()
    group = [rows.c.feed, rows.c.state]
    number = sa.func.row_number().over(partition_by=group, order_by=rows.c.partition).label("number")
    count = sa.func.count().over(partition_by=group).label("count")
    few = sa.select(rows, number, count).subquery()
    return sa.select(few).where(few.c.number <= EXAMPLES).order_by(few.c.feed, few.c.state, few.c.number)


def _groups(rows: Iterable[Any]) -> Iterable[Group]:
    rows_by_group: dict[tuple[str, str | None], list[Any]] = {}
    for row in rows:
        rows_by_group.setdefault((row.feed, row.state), []).append(row)
    for (feed, state), each in rows_by_group.items():
        examples = tuple(WaitingExample(row.partition, row.reason) for row in each)
        yield Group(Feed.parse(feed), state, each[0].count, examples)
