"""Two partners of the ads domain: their declarations, and their data."""

import csv
import json
from collections import Counter
from datetime import datetime
from io import StringIO

import pytest

from feed_assets import Late, Pull
from feed_assets.cli.receive import pushed_feeds
from feed_assets.core.feeds import Feed
from feed_assets.definitions import defs
from feed_assets.defs.ads import sample
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.declare.declarations import Dataset, Foreign
from feed_assets_tests.support.each_case import each_case

DAY, MOVED = "2019-11-27", "2026-11-20"
FEEDS = {"ads/partners_daily", "ads/partners_daily_rejects", "partners/men", "partners/women"}


def keys(definitions) -> set[str]:
    return {key.to_user_string() for key in definitions.resolve_asset_graph().get_all_asset_keys()}


@pytest.fixture
def with_women(tmp_path, monkeypatch):
    """Return the definitions of a home that has the blackboard of women."""
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", json.dumps({"women": {"url": tmp_path.as_uri()}}))
    return defs()


def test_a_home_with_the_blackboard_of_women_has_both_partners(with_women):
    assert keys(with_women) >= FEEDS
    assert "pull" in {sensor.name for sensor in with_women.sensors}


@pytest.mark.parametrize("boards", ["", '{"others": {"url": "file:///others"}}'])
def test_a_home_without_the_partner_s_blackboard_defines_no_partner_assets(monkeypatch, boards):
    monkeypatch.setenv("FEED_ASSETS_BLACKBOARDS", boards)
    without = defs()
    assert not keys(without) & FEEDS
    assert "pull" not in {sensor.name for sensor in without.sensors}


def test_men_are_pushed_and_women_are_pulled_by_the_hour(with_women):
    graph = Graph(with_women.resolve_asset_graph())
    assert [*pushed_feeds(graph)] == ["partners/men/v1.0"]
    women = graph.node(Feed.parse("partners/women/v1.0")).declaration
    assert isinstance(women, Foreign)
    assert women.intake == Pull("women", "%Y-%m-%d/%H/ads_*.csv", lookback=7)


def test_their_late_data_are_weighed_each_for_itself(with_women):
    declared = Graph(with_women.resolve_asset_graph()).node(Feed.parse("ads/partners_daily/v1.0")).declaration
    assert isinstance(declared, Dataset)
    assert declared.late_of == dict.fromkeys(("partners/men/v1.0", "partners/women/v1.0"), Late("5%"))


@each_case("campaign", sample.CAMPAIGNS)
def test_a_moved_day_has_every_row_at_its_time_of_day_and_every_hour(campaign):
    rows = sample.moved(DAY, campaign, MOVED)
    told, events = csv.DictReader(StringIO(sample.told_csv(rows).decode())), sample.told_json(rows).splitlines()
    pulled = [{name: kind(row[name]) for name, kind in sample.TOLD.items()} for row in told]
    assert pulled == [json.loads(event) for event in events]
    raw = csv.DictReader(StringIO(sample.shown_csv(DAY, campaign).decode()))
    assert Counter(row["timestamp"].replace(MOVED, DAY) for row in pulled) == Counter(row["timestamp"] for row in raw)
    times = [datetime.fromisoformat(row["timestamp"]) for row in pulled]
    assert times == sorted(times)
    assert {f"{time:%Y-%m-%d %H}" for time in times} == {f"{MOVED} {hour:02}" for hour in range(24)}
