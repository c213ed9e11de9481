"""Positions of subscribers in the log. A consumer has one position for each feed that it reads.

Other subscribers have one position for all feeds.
"""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import change, subscription

ALL = ""
"""Value for a subscription to the changes of all feeds."""

GONE_AFTER = timedelta(hours=1)
"""Time after which a feed or a subscriber has no owner: no code location has read one of its changes for this long.

Any location may then resolve its alerts.
"""

Edge = tuple[str, str]
"""Subscriber and feed."""


def positions(connection: sa.Connection, subscribers: Collection[str] | None = None) -> dict[Edge, int]:
    """Return the positions by subscriber and feed: the number of the last change that each subscriber has read."""
    query = sa.select(subscription)
    if subscribers is not None:
        query = query.where(subscription.c.subscriber.in_(sorted(subscribers)))
    return {(row.subscriber, row.feed): row.position for row in connection.execute(query)}


def feeds(connection: sa.Connection) -> set[str]:
    """Return the feeds with a subscription. A consumer reads or builds each of them."""
    query = sa.select(subscription.c.subscriber, subscription.c.feed).distinct()
    return {name for row in connection.execute(query) for name in row} - {ALL}


def abandoned(connection: sa.Connection, before: datetime) -> set[str]:
    """Return the feeds that no live subscription names, neither as the subscriber nor as the feed that it reads.

    A subscription is live if it has read every change from before the given time. Without a live one, the dataset was
    removed from the code, or its code location does not run. Cost: one index lookup for each subscription.
    """
    lags = _lags(before)
    live: dict[bool, set[str]] = {True: set(), False: set()}
    for row in connection.execute(sa.select(subscription.c.subscriber, subscription.c.feed, lags.label("lags"))):
        live[not row.lags] |= {row.subscriber, row.feed}
    return live[False] - live[True] - {ALL}


def lagging(connection: sa.Connection, before: datetime) -> set[str]:
    """Return the subscribers to the changes of all feeds that lack a change from before a time."""
    query = sa.select(subscription.c.subscriber).where(subscription.c.feed == ALL, _lags(before))
    return {*connection.execute(query).scalars()}


def readers(connection: sa.Connection, feeds: Iterable[Feed], before: datetime) -> set[str]:
    """Return the live readers of feeds, except the feeds' own datasets.

    A reader is live if it has read every change from before the given time.
    """
    names = [*map(str, feeds)]
    condition = subscription.c.feed.in_(names) & subscription.c.subscriber.not_in(names)
    query = sa.select(subscription.c.subscriber).where(condition, sa.not_(_lags(before)))
    return {row.subscriber for row in connection.execute(query)}


def _lags(before: datetime) -> sa.Exists:
    """Return the SQL condition that a subscriber has not read all log changes that are older than a time.

    Cost: one index lookup for each subscription.
    """
    later = sa.select(sa.func.min(change.c.sequence)).where(change.c.sequence > subscription.c.position)
    missed = change.c.sequence == later.correlate(subscription).scalar_subquery()
    return sa.exists().where(missed, change.c.at < before).correlate(subscription)


def position(connection: sa.Connection, subscriber: str, feed: str = ALL) -> int:
    """Return the position of one subscriber, or 0 if the subscriber is new."""
    same_edge = (subscription.c.subscriber == subscriber) & (subscription.c.feed == feed)
    return connection.execute(sa.select(subscription.c.position).where(same_edge)).scalar() or 0


def subscribe(connection: sa.Connection, edges: Iterable[Edge]) -> None:
    """Add missing subscriptions of consumers to feeds. They begin with the first change in the log."""
    new = [{"subscriber": subscriber, "feed": feed, "position": 0} for subscriber, feed in edges]
    insert_missing(connection, subscription, new)


def move(connection: sa.Connection, edges: Collection[Edge], start: int, position: int) -> bool:
    """Move subscriptions from `start` to `position`.

    Return False, and move no subscription, if one of them is not at `start`. Call this in a transaction of
    `Ledger.change()`. Otherwise another process could move them in between.
    """
    position_by_edge = positions(connection)
    if any(position_by_edge.get(edge) != start for edge in edges):
        return False
    its = {name: subscription.c[name] == sa.bindparam(f"its_{name}") for name in ("subscriber", "feed")}
    rows = [{"its_subscriber": subscriber, "its_feed": feed, "reached": position} for subscriber, feed in edges]
    moved = sa.update(subscription).where(*its.values()).values(position=sa.bindparam("reached"))
    connection.execute(moved, rows)  # One statement with a join would compare each pair of rows.
    return True


def advance(connection: sa.Connection, subscriber: str, position: int, feed: str = ALL) -> None:
    """Store that a subscriber has got a feed's changes up to a log number. If it has already got more, do nothing."""
    subscribe(connection, [(subscriber, feed)])
    same_edge = (subscription.c.subscriber == subscriber) & (subscription.c.feed == feed)
    behind = same_edge & (subscription.c.position < position)
    connection.execute(sa.update(subscription).where(behind).values(position=position))
