"""From one table's event to another's, for each update that went through both."""

from collections.abc import Collection, Iterable
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.durations import Duration
from feed_assets.core.feeds import Feed
from feed_assets.ledger import events, wanted
from feed_assets.ledger.tables import event

SHOWN = 1000
"""Updates that `events stats` looks at, the newest: what old events are removed leaves these, and what went in."""


def durations(connection: sa.Connection, first: Feed, last: Feed, limit: int) -> tuple[Duration, ...]:
    """How long the newest updates of `last` took since they were in `first`, oldest first.

    An update that several went into counts from the last of these that came by `first`.
    """
    reached = events.newest(connection, limit, last)
    origins = {each.sequence: {each.correlation, *each.parents} for each in reached}
    began = _began(connection, first, {each for some in origins.values() for each in some})
    found: list[Duration] = []
    for each in reversed(reached):
        starts = [start for origin in origins[each.sequence] for start in began.get(origin, ()) if start <= each.time]
        if starts:
            seconds = (each.time - max(starts)).total_seconds()
            code = each.context.get("code_version")
            found.append(Duration(each.correlation, each.partition.key, seconds, None if code is None else str(code)))
    return tuple(found)


def _began(connection: sa.Connection, first: Feed, correlations: Collection[str]) -> dict[str, list[datetime]]:
    """By correlation id the times of a table's events: one index seek for each."""
    found: dict[str, list[datetime]] = {}
    asked = wanted.rows(connection, ("correlation",), [[each] for each in correlations])
    mine = event.c.correlation.in_(sa.select(asked.c.correlation)) & (event.c.feed == str(first))
    for row in connection.execute(sa.select(event).where(mine)).mappings():
        recorded = events.recorded_of(row)
        found.setdefault(recorded.correlation, []).append(recorded.time)
    return found


def shown_from(connection: sa.Connection, count: int, tables: Iterable[Feed] | None = None) -> dict[str, int]:
    """By table the number of the first of so many events, the newest; 0 where there are fewer. Of some tables or all.

    A seek for each table, and its newest events: never through all of its history.
    """
    names = _tables(connection) if tables is None else sorted(map(str, tables))
    asked = wanted.rows(connection, ("feed",), [[name] for name in names])
    history = event.alias()
    mine = sa.select(history.c.sequence).where(history.c.feed == asked.c.feed).correlate(asked)
    first = mine.order_by(history.c.sequence.desc()).offset(count - 1).limit(1).scalar_subquery()
    return {feed: number or 0 for feed, number in connection.execute(sa.select(asked.c.feed, first))}


def _tables(connection: sa.Connection) -> list[str]:
    """The names of all tables that have events: from one to the next in the index."""
    found = sa.select(sa.func.min(event.c.feed).label("feed")).cte("found", recursive=True)
    after = sa.select(sa.func.min(event.c.feed)).where(event.c.feed > found.c.feed).correlate(found).scalar_subquery()
    every = found.union_all(sa.select(after).where(found.c.feed.is_not(None)))
    return [name for name in connection.execute(sa.select(every.c.feed)).scalars() if name is not None]
