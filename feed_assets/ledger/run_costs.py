"""Costs of earlier runs. Decisions about late data, and the number of cores of a run, depend on these costs."""

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.core.learned_needs import Cost
from feed_assets.core.needs import Need
from feed_assets.ledger import key_tables, updates
from feed_assets.ledger.tables import UtcDateTime, consumed, run, update

RUNS = 20
"""Number of last published builds of a dataset from which its cost is computed."""


def per_byte(connection: sa.Connection, needs: Iterable[Need], run_cost: float) -> dict[Feed, float]:
    """Return the median cost of reading a byte, for each dataset that weighs cost.

    The cost of a build is its duration in seconds times `run_cost`, which is the cost of one second. The result has no
    entry for a dataset without a published build that has read bytes.
    """
    seconds_by_feed: dict[Feed, list[float]] = {}
    for row in _builds(connection, {need.output.feed for need in needs if need.weighs_cost}):
        if row.size and row.ended:
            seconds_by_feed.setdefault(Feed.parse(row.feed), []).append(
                (row.ended - row.started).total_seconds() / int(row.size)
            )
    return {feed: median(seconds) * run_cost for feed, seconds in seconds_by_feed.items()}


def core_seconds(connection: sa.Connection, feed: Feed) -> list[Cost]:
    """Return the costs of the last published builds of a dataset. Skip builds without cores of a compute target."""
    return [
        Cost(int(row.size), (row.ended - row.started).total_seconds() * row.cores)
        for row in _builds(connection, {feed})
        if row.size and row.cores
    ]


def _builds(connection: sa.Connection, feeds: Collection[Feed]) -> Sequence[sa.Row[Any]]:
    """Return start, end, cores and bytes read of the last builds of each feed.

    Cost: one statement, and one index lookup for each build.
    """
    if not feeds:
        return ()
    key_table, earlier = key_tables.rows(connection, ("feed",), [[str(feed)] for feed in sorted(feeds)]), run.alias()
    ends = sa.select(earlier.c.ended).where(earlier.c.feed == key_table.c.feed, earlier.c.state == updates.PUBLISHED)
    first = ends.order_by(earlier.c.ended.desc()).limit(1).offset(RUNS - 1).correlate(key_table).scalar_subquery()
    last = (run.c.feed == key_table.c.feed) & (run.c.state == updates.PUBLISHED)
    last &= run.c.ended >= sa.func.coalesce(first, sa.literal(_EVER, UtcDateTime))
    of_run = (update.c.feed == run.c.feed) & (update.c.partition == run.c.partition) & (update.c.run == run.c.id)
    of_run &= update.c.state.in_([updates.PUBLISHED, updates.PRUNED]) & (update.c.origin != updates.COMPACTED)
    read = (consumed.c.feed == update.c.feed) & (consumed.c.partition == update.c.partition)
    read &= (consumed.c.id == update.c.id) & consumed.c.is_input
    size = sa.select(sa.func.sum(consumed.c.size)).select_from(update).join(consumed, read).where(of_run)
    # The outer join and the scalar subquery keep databases from scanning all runs or all pins.
    columns = [run.c.feed, run.c.started, run.c.ended, run.c.cores, size.correlate(run).scalar_subquery().label("size")]
    return connection.execute(sa.select(*columns).select_from(key_table).outerjoin(run, last)).all()


_EVER = datetime(1, 1, 1, tzinfo=UTC)
