"""The status page of fifty datasets needs as many statements as of five, and a long history no more than a day."""

from datetime import UTC, date, datetime, timedelta

import dagster as dg

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import Slots
from feed_assets.ledger import update_changes, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.status_grid import nodes_shown, status_of
from feed_assets.settings import settings
from feed_assets_tests.support.statement_counter import counted_statements

NOW = datetime(2026, 1, 21, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")


def graph(datasets):
    raw = foreign_feed("t/raw/v1.0", partitions_def=HOURS, schema="n int")

    def made(number):
        return feed_asset(f"t/d{number:03d}/v1.0", partitions_def=HOURS, inputs={"raw": raw})(lambda raw: raw)

    defs = with_automation(dg.Definitions(assets=[raw, *map(made, range(datasets))]))
    return Graph(defs.resolve_asset_graph())


def publish(datasets, hours):
    """Publish the hours of each dataset up to now, except the last two."""
    with open_ledger(settings().ledger).change() as connection:
        for number in range(datasets):
            feed = Feed.parse(f"t/d{number:03d}/v1.0")
            for hour in range(3, hours + 3):
                at = Partition(feed, f"{NOW - hour * timedelta(hours=1):%Y-%m-%d-%H:%M}")
                update_changes.insert(connection, at, "20260121.000000", updates.REBUILT, updates.PUBLISHED, NOW)


def shown(graph_, slots=Slots.of(date(2026, 1, 20), 1), asked=()):  # noqa: B008 (it is frozen)
    """Return the status and the number of its statements."""
    ledger = open_ledger(settings().ledger)
    with counted_statements(ledger.engine) as statements, ledger.read() as connection:
        found = status_of(graph_, connection, nodes_shown(graph_), slots, NOW, asked)
    return found, len(statements)


def test_a_status_page_of_fifty_datasets_takes_the_statements_of_five():
    publish(5, 20)
    _, few = shown(graph(5))
    found, many = shown(graph(50))
    assert many == few < 30
    assert len(found.rows) == 51
    assert sum(len(row.shown) for row in found.rows) == 51 * 24


def test_a_long_history_takes_no_more_statements_than_a_day():
    publish(3, 20)
    _, few = shown(graph(3))
    publish_older = range(23, 400)
    with open_ledger(settings().ledger).change() as connection:
        for hour in publish_older:
            at = Partition(Feed.parse("t/d000/v1.0"), f"{NOW - hour * timedelta(hours=1):%Y-%m-%d-%H:%M}")
            update_changes.insert(connection, at, "20260121.000000", updates.REBUILT, updates.PUBLISHED, NOW)
    _, many = shown(graph(3))
    assert many == few


def test_newest_periods_of_fifty_datasets_take_the_statements_of_five():
    publish(5, 20)
    _, few = shown(graph(5), None)
    with open_ledger(settings().ledger).change() as connection:
        at = Partition(Feed.parse("t/d006/v1.0"), "2026-01-03-05:00")
        update_changes.insert(connection, at, "20260121.000000", updates.REBUILT, updates.PUBLISHED, NOW)
    found, many = shown(graph(50), None)
    assert many == few < 30
    keys = {str(row.node.feed): [each.partition.key for each in row.shown] for row in found.rows}
    assert (keys["t/d000/v1.0"][0], keys["t/d000/v1.0"][-1]) == ("2026-01-20-00:00", "2026-01-21-00:00")
    assert keys["t/d006/v1.0"][-3:] == ["2026-01-03-05:00", "2026-01-03-06:00", "2026-01-20-23:00"]
    assert keys["t/raw/v1.0"][-1] == "2026-01-21-00:00", "it has nothing yet"
    (alone,), (asked,) = shown(graph(0), None)[0].rows, shown(graph(0), None, [Feed.parse("t/raw/v1.0")])[0].rows
    assert (len(alone.shown), len(asked.shown)) == (25, 101), "with the one that is not over"
