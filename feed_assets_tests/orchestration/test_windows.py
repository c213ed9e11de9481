"""Datasets that wait for windows of a table or feed to be complete, tick by tick."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import (
    BatchDate,
    Completeness,
    DayToDate,
    Input,
    Late,
    Regions,
    Within,
    feed_asset,
    state_table,
)
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import due, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states.reports import report
from feed_assets.ledger.states.windows import accept, report_quality
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.orchestration.worlds import harness as world

NOW = datetime(2026, 1, 20, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-01")
TENS = dg.TimeWindowPartitionsDefinition(cron_schedule="*/10 * * * *", start="2026-01-01-00:00", fmt="%Y-%m-%d-%H:%M")
FOO = Feed.parse("web/foo")
KAFKA = Completeness(tiers=("kafka",))
BASE = timedelta(minutes=5)


def days(zone: str) -> dg.DailyPartitionsDefinition:
    return dg.DailyPartitionsDefinition("2026-01-01", timezone=zone)


def foo(partitions_def=HOURS, **options) -> dg.AssetSpec:
    return state_table("web/foo", partitions_def=partitions_def, completeness=KAFKA, **options)


def reader(name: str, partitions_def, read, **options) -> dg.AssetsDefinition:
    """A dataset that reads foo."""

    @feed_asset(f"web/{name}/v1.0", partitions_def=partitions_def, inputs={"foo": read}, **options)
    def made(foo):
        """What foo has of this time."""

    return made


@pytest.fixture
def harness():
    """Of some assets, by a clock that stands at NOW."""

    def make(*assets, now: datetime = NOW):
        return world(*assets, give=give, now=lambda: now)

    READ.clear()
    return make


READ: list[tuple[str, str, tuple[str, ...]]] = []
"""What runs got, as (output, sub-partition, keys of windows)."""


def give(task) -> Given:
    READ.extend(
        (task.output.path, span.sub_partition, tuple(each.key for each in span.windows))
        for span in task.spans.values()
        if span
    )
    return Given([{"n": len(READ)}])


def moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d-%H:%M").replace(tzinfo=UTC)


_parts: list[int] = []


def tell(start: str, end: str, tier: str = "", count: int = 100, sub_partition: str = "", part: str = "") -> None:
    """Report so many records in each base window from one moment to another."""
    first, last = moment(start), moment(end)
    windows = tuple((first + number * BASE, count) for number in range((last - first) // BASE))
    _parts.append(1)
    report(
        open_ledger(settings().ledger),
        [Report(FOO, sub_partition, part or start, windows, tier, version=f"{len(_parts):020d}")],
        NOW,
    )


def complete(start: str, end: str, sub_partition: str = "") -> None:
    tell(start, end, "kafka", sub_partition=sub_partition)
    tell(start, end, sub_partition=sub_partition)


def why(dataset: str, key: str) -> str:
    with open_ledger(settings().ledger).read() as connection:
        listed = due.listed(connection, Feed.parse(f"web/{dataset}/v1.0"))
    return next(f"{each.state}: {each.reason}" for each in listed if each.partition.key == key)


def made(runs) -> list[str]:
    return [f"{run.assets[0].removeprefix('web/')} {run.partition}" for run in runs]


def test_an_hour_is_made_in_the_tick_in_which_its_window_is_complete(harness):
    tested = harness(foo(), reader("hourly", HOURS, foo()))
    assert made(tested.run_until_idle()) == []
    complete("2026-01-02-15:00", "2026-01-02-16:00")
    assert made(tested.tick()) == ["hourly 2026-01-02-15:00"]
    assert READ == [("web/hourly/v1.0/2026-01-02-15:00", "", ("2026-01-02-15:00",))]
    assert made(tested.run_until_idle()) == []


def test_what_is_lacking_is_said_in_words_that_a_person_understands_at_night(harness):
    tested = harness(foo(), reader("hourly", HOURS, foo()))
    complete("2026-01-02-15:00", "2026-01-02-15:55")
    tell("2026-01-02-15:55", "2026-01-02-16:00", "kafka", 134)
    tell("2026-01-02-15:55", "2026-01-02-16:00", count=103)
    tested.tick()
    assert why_of(tested, "2026-01-02-15:00") == (
        "hour 2026-01-02-15:00 of web/foo is open: 1,203 of 1,234 records at kafka (97.4878 %)"
    )


def why_of(tested, key: str) -> str:
    """What a partition waits for, decided now, as `explain` says it."""
    from feed_assets.orchestration.decide.decisions import verdicts
    from feed_assets.orchestration.decide.graph import Graph

    graph = Graph(tested.definitions.resolve_asset_graph())
    with dg.partition_loading_context(tested.now()), open_ledger(settings().ledger).read() as connection:
        (verdict,) = verdicts(graph, connection, [Partition(Feed.parse("web/hourly/v1.0"), key)], tested.now())
    return verdict.reason
