"""A team with a table of events, and a report that is built by its events."""

from datetime import UTC, datetime

from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed
from feed_assets.ledger import inbox
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import harness

REPORT = Feed.parse("gamma/report/v1.0")
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Team:
    """A team with an event table in a database of its own."""

    def __init__(self, folder):
        self.sink = SqlSink(f"sqlite:///{folder / 'team.db'}", "events")
        self.source = EventSource("team", (SqlTable(self.sink.url, "events", "id"),))
        self.sink.publish([])

    def publish(self, *reported, operation=Operation.UPSERT, key="", marker_time=NOON, **context):
        """Publish one event for each (table, correlation id, marker)."""
        rows = [
            WriteEvent(table, marker, marker_time, correlation, operation, key, context)
            for table, correlation, marker in reported
        ]
        self.sink.publish([(0, row) for row in rows])


def report_world(team, seen, *, during=lambda: None, **options):
    """Build a and b of a team -> report, by events. Its rows come from here, not from its function."""

    def give(task):
        seen.append(task.run_spec)
        during()
        return Given([{"k": str(len(seen))}])

    return harness(*report_assets(team, lambda a, b: None, **options), give=give)


def report_assets(team, function, **options):
    pipelines = {"p": ["team/a", "team/b"]}
    a = event_table("team/a", source=team.source, table_name="a")
    b = event_table("team/b", source=team.source, table_name="b")
    by_events = ByEvents(**{"pipelines": pipelines, **options})
    return a, b, feed_asset("gamma/report/v1.0", inputs={"a": a, "b": b}, by_events=by_events)(function)


def slice_ranges(run_spec):
    return {str(p.feed): (int(s.start) if s.start else None, int(s.end)) for p, s in run_spec.slices.items()}


def consumed_markers():
    with open_ledger(settings().ledger).read() as connection:
        return {row["input_feed"]: int(row["marker"]) for row in inbox.markers(connection, REPORT)}
