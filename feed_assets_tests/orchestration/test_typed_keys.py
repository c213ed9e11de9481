"""Partitions as people type them, with the clock at `NOW`."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.typed_keys import keys_of, path_of, within
from feed_assets.orchestration.declare.declarations import Foreign
from feed_assets_tests.support.each_case import each_case

NOW = datetime(2019, 11, 26, 12, 30, tzinfo=UTC)
DAILY = dg.DailyPartitionsDefinition("2019-11-24")
HOURLY = dg.HourlyPartitionsDefinition("2019-11-24-00:00")
SIZES = dg.StaticPartitionsDefinition(["small", "medium", "large"])
MULTI = dg.MultiPartitionsDefinition({"date": DAILY, "campaign": dg.StaticPartitionsDefinition(["men", "women"])})
DYNAMIC = dg.DynamicPartitionsDefinition(name="regions")


@pytest.fixture(autouse=True)
def at_noon():
    """Set Dagster's time to NOW, and add the dynamic region 'north'."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("regions", ["north"])
        with dg.partition_loading_context(NOW, instance):
            yield


def node(definition):
    feed = Feed.parse("ads/shown/v1.0")
    return Node(feed, dg.AssetKey(["ads", "shown"]), definition, Foreign(feed, "csv", "n int"))


@each_case(
    ("definition", "typed", "paths"),
    [
        (None, [], [""]),
        (None, [""], [""]),
        (DAILY, [], []),
        (DAILY, ["2019-11-24"], ["2019-11-24"]),
        (DAILY, ["2019-11-24...2019-11-25"], ["2019-11-24", "2019-11-25"]),
        (DAILY, ["2019-11-25", "2019-11-24...2019-11-25"], ["2019-11-25", "2019-11-24"]),
        (HOURLY, ["2019-11-24-23:00...2019-11-25-00:00"], ["2019-11-24-23:00", "2019-11-25-00:00"]),
        (SIZES, ["small...medium"], ["small", "medium"]),
        (DYNAMIC, ["north"], ["north"]),
        (MULTI, ["2019-11-24/men"], ["2019-11-24/men"]),
        (MULTI, ["men|2019-11-24"], ["2019-11-24/men"]),
        (MULTI, ["men|2019-11-24...men|2019-11-25"], ["2019-11-24/men", "2019-11-25/men"]),
        (MULTI, ["2019-11-24/men...women|2019-11-24"], ["2019-11-24/men", "2019-11-24/women"]),
    ],
)
def test_typed_keys_and_ranges_name_their_partitions(definition, typed, paths):
    assert keys_of(node(definition), typed, NOW) == paths


@each_case(
    ("definition", "typed", "said"),
    [
        (None, "2019-11-24", "the dataset has no partitions. Leave it out"),
        (DAILY, "2019-11-31", "'2019-11-31' is no partition of ads/shown/v1.0: expected 2019-11-24 to 2019-11-25"),
        (DAILY, "2019-11-26", "no partition of ads/shown/v1.0 yet: it will be one at 2019-11-27 00:00 UTC"),
        (DAILY, "2019-11-25...2019-11-24", "'2019-11-25...2019-11-24' ends before it begins"),
        (DAILY, "2019-11-24...2019-11-30", "'2019-11-30' is no partition"),
        (DAILY, "men|2019-11-24", "expected 2019-11-24 to 2019-11-25 in place of 'men|2019-11-24'"),
        (SIZES, "lrge", "expected large in place of 'lrge'"),
        (SIZES, "xyz", "expected small, medium, large in place of 'xyz'"),
        (DYNAMIC, "noth", "expected north in place of 'noth'"),
        (MULTI, "2019-11-24", "expected date/campaign, or campaign|date as the UI writes it"),
        (DAILY, "2019-11-24/men", "expected a key without '/'"),
        (MULTI, "a|b|c", "expected the form campaign|date"),
        (MULTI, "2019-11-24/mn", "'2019-11-24/mn' is no partition of ads/shown/v1.0: expected men"),
        (MULTI, "2019-11-24|men", "in place of 'men', or a range, FIRST...LAST; expected men, women"),
    ],
)
def test_a_typed_key_that_is_no_partition_is_refused_with_the_nearest_ones(definition, typed, said):
    with pytest.raises(InvalidName) as refused:
        keys_of(node(definition), [typed], NOW)
    assert said in str(refused.value)


@each_case(
    ("definition", "typed", "paths"),
    [
        (DAILY, "2019-11", ["2019-11-24", "2019-11-25"]),
        (DAILY, "2019-11-24", ["2019-11-24"]),
        (DAILY, "2018", ["2018"]),
        (MULTI, "2019", ["2019-11-24/men", "2019-11-24/women", "2019-11-25/men", "2019-11-25/women"]),
        (MULTI, "2019-11-24", ["2019-11-24/men", "2019-11-24/women"]),
        (MULTI, "2019-11-24/men", ["2019-11-24/men"]),
        (SIZES, "2019", ["2019"]),
    ],
)
def test_a_typed_year_month_or_day_names_its_partitions(definition, typed, paths):
    assert sorted(within(node(definition), [typed])) == paths


def test_a_typed_key_becomes_a_path_even_if_it_does_not_exist():
    assert path_of(node(MULTI), "men|1999-01-01") == "1999-01-01/men"
    assert path_of(node(MULTI), "1999-01-01/men") == "1999-01-01/men"
    assert path_of(node(DAILY), "1999-01-01") == "1999-01-01"
