"""Durations from an event of one table to an event of another table, for propagations that reached both tables."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.durations import Duration
from feed_assets.core.events import Recorded
from feed_assets.core.feeds import Feed
from feed_assets.ledger import event_store, key_tables
from feed_assets.ledger.tables import event

SHOWN = 1000
"""Number of newest updates that `events stats` shows.

Pruning keeps the events of these updates, and of updates that were joined into them.
"""


def durations(connection: sa.Connection, first: Feed, last: Feed, limit: int) -> tuple[Duration, ...]:
    """Return how long the newest updates of `last` took since their events in `first`, oldest first.

    If several updates were joined into one, the duration starts with the last of their events in `first`.
    """
    return durations_of(connection, {last: [first]}, limit)[first, last]


def durations_of(
    connection: sa.Connection, pairs: Mapping[Feed, Collection[Feed]], limit: int
) -> dict[tuple[Feed, Feed], tuple[Duration, ...]]:
    """Return durations by first and last table. `pairs` maps each last table to its first tables."""
    reached = _newest(connection, pairs, limit)
    ids = {each.sequence: {each.correlation, *each.parents} for events in reached.values() for each in events}
    firsts = {first for tables in pairs.values() for first in tables}
    began = _began(connection, firsts, {each for own_ids in ids.values() for each in own_ids})
    return {
        (first, last): tuple(
            _duration(each, start)
            for each in reached.get(last, ())
            if (start := _start(each, [at for one in ids[each.sequence] for at in began.get((first, one), ())]))
        )
        for last, tables in pairs.items()
        for first in tables
    }


def _newest(connection: sa.Connection, tables: Collection[Feed], limit: int) -> dict[Feed, list[Recorded]]:
    """Return the newest events of each table, oldest first."""
    floors = shown_from(connection, limit, tables)
    key_table = key_tables.rows(connection, ("feed", "first"), floors.items())
    is_newest = (event.c.feed == key_table.c.feed) & (event.c.sequence >= sa.cast(key_table.c.first, sa.BigInteger))
    events_by_table: dict[Feed, list[Recorded]] = {}
    for row in connection.execute(sa.select(event).join(key_table, is_newest).order_by(event.c.sequence)).mappings():
        events_by_table.setdefault(Feed.parse(row["feed"]), []).append(event_store.recorded_of(row))
    return events_by_table


def _start(reached: Recorded, starts: Iterable[datetime]) -> datetime | None:
    return max((start for start in starts if start <= reached.time), default=None)


def _duration(reached: Recorded, start: datetime) -> Duration:
    code, seconds = reached.context.get("code_version"), (reached.time - start).total_seconds()
    return Duration(reached.correlation, reached.partition.key, seconds, None if code is None else str(code))


def _began(
    connection: sa.Connection, tables: Collection[Feed], correlations: Collection[str]
) -> dict[tuple[Feed, str], list[datetime]]:
    """Return the times of events by table and correlation id. Cost: one index lookup for each correlation id."""
    times: dict[tuple[Feed, str], list[datetime]] = {}
    key_table = key_tables.rows(connection, ("correlation",), [[each] for each in correlations])
    condition = event.c.correlation.in_(sa.select(key_table.c.correlation)) & event.c.feed.in_(sorted(map(str, tables)))
    for row in connection.execute(sa.select(event).where(condition)).mappings():
        recorded = event_store.recorded_of(row)
        times.setdefault((recorded.partition.feed, recorded.correlation), []).append(recorded.time)
    return times


def shown_from(connection: sa.Connection, count: int, tables: Iterable[Feed] | None = None) -> dict[str, int]:
    """Return for each table the log number of the oldest of its newest `count` events, or 0 if it has fewer events.

    By default, do this for all tables. Only the newest events of each table are read.
    """
    names = known_tables(connection) if tables is None else sorted(map(str, tables))
    key_table = key_tables.rows(connection, ("feed",), [[name] for name in names])
    history = event.alias()
    numbers = sa.select(history.c.sequence).where(history.c.feed == key_table.c.feed).correlate(key_table)
    first = numbers.order_by(history.c.sequence.desc()).offset(count - 1).limit(1).scalar_subquery()
    return {feed: number or 0 for feed, number in connection.execute(sa.select(key_table.c.feed, first))}


def known_tables(connection: sa.Connection) -> list[str]:
    """Return the names of all tables with events, by stepping through the index."""
    table_names = sa.select(sa.func.min(event.c.feed).label("feed")).cte("found", recursive=True)
    after = (
        sa.select(sa.func.min(event.c.feed))
        .where(event.c.feed > table_names.c.feed)
        .correlate(table_names)
        .scalar_subquery()
    )
    every = table_names.union_all(sa.select(after).where(table_names.c.feed.is_not(None)))
    return [name for name in connection.execute(sa.select(every.c.feed)).scalars() if name is not None]
