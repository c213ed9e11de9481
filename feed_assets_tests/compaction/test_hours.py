"""Days of 23 and 25 hours: each hour is compacted once it is complete, and the day is complete with its last hour."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import Compact, Completeness, feed_asset, foreign_feed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import RAW, harness

HOURS, ZONE = Feed.parse("t/hours/v1.0"), "Europe/Berlin"


@pytest.fixture(autouse=True)
def closing(home):
    yield
    sum_projects.opened.close()


def state_of(day: str) -> str:
    address = WindowAddress(HOURS, "", "day", day)
    with open_ledger(settings().ledger).read() as connection:
        return str(window_queries.stored_windows(connection, [address])[address].state)


def compacted(world, keys) -> list[str]:
    with open_ledger(settings().ledger).read() as connection:
        rows = [updates.find(connection, Partition(HOURS, key), world.newest(str(HOURS), key)) for key in keys]
    return [row.partition.key for row in rows if row.origin == "compacted"]


@each_case(("day", "end", "count"), [("2026-03-29", "2026-03-30", 23), ("2025-10-26", "2025-10-27", 25)])
def test_a_day_of_compacted_hours_is_complete_with_its_last_hour(day, end, count):
    hours = dg.HourlyPartitionsDefinition(f"{day}-00:00", end_date=f"{end}-00:00", timezone=ZONE)
    now = datetime.fromisoformat(f"{end}T12:00:00+00:00")
    keys = hours.get_partition_keys(current_time=now)
    starts = {key: hours.time_window_for_partition_key(key).start.astimezone(UTC) for key in keys}
    assert len({*starts.values()}) == count
    raw = foreign_feed(RAW, partitions_def=hours, schema="id int, at timestamp")

    @feed_asset(
        str(HOURS),
        partitions_def=hours,
        inputs={"raw": raw},
        event_time="at",
        completeness=Completeness(grains=("hour", "day"), tiers=("kafka",), tz=ZONE),
        compact=Compact(sort_by=("id",), files=1),
    )
    def of_hours(raw):
        return raw

    def give(task):
        key = task.output.key
        return Given([{"id": key}], windows=((starts[key], 1),) if task.recipe.grain else None)

    def count_at_source(some):
        counts = [Report(HOURS, "", key, ((starts[key], 1),), "kafka", f"{keys.index(key):020d}") for key in some]
        report(open_ledger(settings().ledger), counts, now)

    world = harness(raw, of_hours, give=give, now=lambda: now)
    for key in keys:
        world.drop(RAW, key, "id,at\n")
    assert all(run.succeeded for run in world.run_until_idle())
    assert compacted(world, keys) == []
    count_at_source(keys[:-1])
    assert len(world.run_until_idle()) == 1
    assert (compacted(world, keys), state_of(day)) == (keys[:-1], "open")
    count_at_source(keys[-1:])
    assert state_of(day) == "complete"
    assert len(world.run_until_idle()) == 1
    assert (compacted(world, keys), state_of(day)) == (keys, "complete")
    assert world.run_until_idle() == []
