"""500 consumers that wait for one feed: their requests to the store, counted by a proxy before a real S3 server."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.faults.waiting_day import Day, definitions
from feed_assets_tests.support.progress import print_progress

HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-01-02-00:00")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def consumer(number: int, raw: dg.AssetSpec) -> dg.AssetsDefinition:
    @feed_asset(f"web/c{number:03d}/v1.0", partitions_def=HOURS, inputs={"raw": raw})
    def made(raw):
        """Return what raw holds of this hour."""

    return made


@pytest.fixture
def waiting(home, s3_proxy, s3_url, s3_env, monkeypatch):
    """Return a function that defines so many consumers of one feed, on S3 behind the proxy."""
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARD", s3_url)
    monkeypatch.setenv("FEED_ASSETS_S3_ENDPOINT", s3_proxy.server.endpoint)
    settings.cache_clear()

    def make(count: int) -> Harness:
        raw = foreign_feed("web/raw/v1.0", partitions_def=HOURS, schema="k string", format="parquet")
        assets = [raw, *(consumer(number, raw) for number in range(count))]
        return Harness(with_automation(dg.Definitions(assets=assets)), maker=PlainMaker(), now=lambda: NOON)

    return make


@pytest.mark.parametrize("count", [1, 500])
def test_waiting_consumers_cause_at_most_one_listing_a_tick(waiting, s3_proxy, count):
    with waiting(count) as harness:
        cursor = harness.ask().cursor
        for _ in range(5):
            s3_proxy.begin()
            cursor = harness.ask(cursor).cursor
            assert s3_proxy.requests["list"] <= 1, s3_proxy.asked
            assert len(s3_proxy.asked) <= 1


@pytest.fixture
def day(home, direct, through, ledger, s3_proxy):
    """Return a function that makes a day of so many consumers, on an empty feed."""

    def make(consumers: int, *, looks: bool = False) -> Day:
        direct.sweep("web/raw")
        graph = Graph(definitions(consumers).resolve_asset_graph())
        return Day(graph, Services(through, ledger, lambda: None), s3_proxy, direct, looks)

    return make


@pytest.mark.parametrize("hours", [3, pytest.param(24, marks=pytest.mark.soak)])
def test_store_requests_are_at_most_5_percent_of_the_work_of_500_consumers(day, hours):
    share = day(500).run(hours)
    print_progress(f"500 consumers, {hours} hours: {share}")
    assert share.decisions == 500 * hours * 2  # One when the file arrives, and one when the hour is complete.
    assert share.of_decisions >= 0.95, share


def test_consumers_that_read_the_store_themselves_miss_the_95_percent(day):
    share = day(20, looks=True).run(1)
    assert share.of_decisions < 0.5, share
