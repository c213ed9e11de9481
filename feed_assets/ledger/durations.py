"""From one table's event to another's, for each update that went through both."""

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.durations import Duration
from feed_assets.core.feeds import Feed
from feed_assets.ledger import events, wanted
from feed_assets.ledger.tables import event


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
