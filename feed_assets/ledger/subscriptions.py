"""Positions of subscribers in the change log: of a consumer for each feed that it reads, of others for all feeds."""

from collections.abc import Collection, Iterable
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.ledger.database import insert_missing
from feed_assets.ledger.tables import change, subscription

ALL = ""
"""Value in place of a feed: the changes of all feeds."""

Edge = tuple[str, str]
"""Subscriber and feed."""


def positions(connection: sa.Connection, subscribers: Collection[str] | None = None) -> dict[Edge, int]:
    """Return the number of the last change that each has, by subscriber and feed, of some subscribers or of all."""
    query = sa.select(subscription)
    if subscribers is not None:
        query = query.where(subscription.c.subscriber.in_(sorted(subscribers)))
    return {(row.subscriber, row.feed): row.position for row in connection.execute(query)}


def feeds(connection: sa.Connection) -> set[str]:
    """Return the feeds that somebody reads or makes."""
    query = sa.select(subscription.c.subscriber, subscription.c.feed).distinct()
    return {name for row in connection.execute(query) for name in row} - {ALL}


def abandoned(connection: sa.Connection, before: datetime) -> set[str]:
    """Return the feeds that were read or made, and all of whose subscriptions lag behind a moment: they were removed.

    Or their code location does not run. One index seek for each subscription.
    """
    lags = _lags(before)
    live: dict[bool, set[str]] = {True: set(), False: set()}
    for row in connection.execute(sa.select(subscription.c.subscriber, subscription.c.feed, lags.label("lags"))):
        live[not row.lags] |= {row.subscriber, row.feed}
    return live[False] - live[True] - {ALL}


def readers(connection: sa.Connection, feeds: Iterable[Feed], before: datetime) -> set[str]:
    """Return who reads some feeds, apart from their own datasets, and has every change from before a moment."""
    names = [*map(str, feeds)]
    condition = subscription.c.feed.in_(names) & subscription.c.subscriber.not_in(names)
    query = sa.select(subscription.c.subscriber).where(condition, sa.not_(_lags(before)))
    return {row.subscriber for row in connection.execute(query)}


def _lags(before: datetime) -> sa.Exists:
    """Return whether a subscriber does not have a change from before a moment: one index seek for each."""
    later = sa.select(sa.func.min(change.c.sequence)).where(change.c.sequence > subscription.c.position)
    missed = change.c.sequence == later.correlate(subscription).scalar_subquery()
    return sa.exists().where(missed, change.c.at < before).correlate(subscription)


def position(connection: sa.Connection, subscriber: str, feed: str = ALL) -> int:
    """Return the number of the last change that one subscriber has; 0 if it is new."""
    same_edge = (subscription.c.subscriber == subscriber) & (subscription.c.feed == feed)
    return connection.execute(sa.select(subscription.c.position).where(same_edge)).scalar() or 0


def subscribe(connection: sa.Connection, edges: Iterable[Edge]) -> None:
    """Add the subscriptions that are not there; they begin with the first change that is kept."""
    new = [{"subscriber": subscriber, "feed": feed, "position": 0} for subscriber, feed in edges]
    insert_missing(connection, subscription, new)


def move(connection: sa.Connection, edges: Collection[Edge], start: int, position: int) -> bool:
    """Move subscriptions that are all at `start`. Return False, and move nothing, if one of them has moved since.

    Call it in a transaction of `Ledger.change()`: nobody else is between the check and the move.
    """
    position_by_edge = positions(connection)
    if any(position_by_edge.get(edge) != start for edge in edges):
        return False
    its = {name: subscription.c[name] == sa.bindparam(f"its_{name}") for name in ("subscriber", "feed")}
    rows = [{"its_subscriber": subscriber, "its_feed": feed, "reached": position} for subscriber, feed in edges]
    moved = sa.update(subscription).where(*its.values()).values(position=sa.bindparam("reached"))
    connection.execute(moved, rows)  # By key, row by row: joined with a list PostgreSQL compares each with each.
    return True


def advance(connection: sa.Connection, subscriber: str, position: int, feed: str = ALL) -> None:
    """Move one subscription forwards; another process may have moved it further."""
    subscribe(connection, [(subscriber, feed)])
    same_edge = (subscription.c.subscriber == subscriber) & (subscription.c.feed == feed)
    behind = same_edge & (subscription.c.position < position)
    connection.execute(sa.update(subscription).where(behind).values(position=position))
