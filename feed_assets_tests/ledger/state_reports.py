"""Reports of parts and sources of one dataset, and the transitions of its windows."""

from datetime import UTC, datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.core.reports import Report
from feed_assets.ledger import log
from feed_assets.ledger.tables import change

FOO = Feed.parse("foo")
NOW = datetime(2026, 1, 1, 17, tzinfo=UTC)
HOUR_15 = [datetime(2026, 1, 1, 15, minute, tzinfo=UTC) for minute in range(0, 60, 5)]


def part(name, counts, version=0, dataset=FOO, sub_partition="", **more):
    return Report(dataset, sub_partition, name, tuple(counts.items()), version=f"{version:020d}", **more)


def source(counts, tier="kafka", dataset=FOO, sub_partition="", version=0):
    return [
        part(str(start), {start: count}, version, dataset, sub_partition, tier=tier) for start, count in counts.items()
    ]


def transitions(ledger, after=0):
    """Return the transitions in the log, each as (grain and key, before, after)."""
    query = sa.select(change).where(change.c.kind == log.WINDOW, change.c.sequence > after).order_by(change.c.sequence)
    with ledger.read() as connection:
        return [(row.partition, row.before, row.after) for row in connection.execute(query)]


def last_sequence(ledger):
    with ledger.read() as connection:
        return log.last(connection)
