from datetime import UTC, datetime

import dagster as dg
import pytest

from feed_assets import Input, Late
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import AbsentInput
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.declare.declarations import KEY
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import DAYS, PICKED, RAW, SUMS, picked_of, raw_feed, sums_of

NOW = datetime(2020, 12, 31, tzinfo=UTC)
BERLIN = "Europe/Berlin"
STATIC = dg.StaticPartitionsDefinition(["men", "women"])
MULTI = dg.MultiPartitionsDefinition({"date": DAYS, "campaign": STATIC})


@pytest.fixture(autouse=True)
def at_the_end_of_2020():
    with dg.partition_loading_context(NOW):
        yield


def graph_of(raw_parts, sums_parts, mapping=None):
    raw = raw_feed(partitions_def=raw_parts)
    sums = sums_of(Input(raw, mapping=mapping), partitions_def=sums_parts)
    return Graph(dg.Definitions(assets=[raw, sums]).resolve_asset_graph())


def needed(graph, key):
    return [partition.key for partition in need_of(graph, Partition(Feed.parse(SUMS), key)).partitions]


def affected(graph, key):
    found = graph.affected(graph.node(Feed.parse(SUMS)), Partition(Feed.parse(RAW), key), NOW)
    return found if found is None else [partition.key for partition, _ in found]


IDENTITY = (DAYS, DAYS, None)
FAN_IN = (MULTI, DAYS, dg.MultiToSingleDimensionPartitionMapping("date"))
HOURS_OF_A_DAY = (
    dg.HourlyPartitionsDefinition("2020-03-01-00:00", timezone=BERLIN),
    dg.DailyPartitionsDefinition("2020-03-01", timezone=BERLIN),
    None,
)
UNPARTITIONED_INPUT = (None, DAYS, None)
UNPARTITIONED_OUTPUT = (DAYS, None, None)
UNPARTITIONED_BOTH = (None, None, None)
ALL_DAYS = ["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04", "2020-01-05"]


def absent(need):
    """Return the names of inputs that do not exist."""
    return tuple(str(each.partition) for each in need.inputs if isinstance(each, AbsentInput))


@each_case(
    ("shape", "output", "inputs"),
    [
        (IDENTITY, "2020-01-02", ["2020-01-02"]),
        (FAN_IN, "2020-01-02", ["2020-01-02/men", "2020-01-02/women"]),
        (UNPARTITIONED_INPUT, "2020-01-02", [""]),
        (UNPARTITIONED_OUTPUT, "", ALL_DAYS),
        (UNPARTITIONED_BOTH, "", [""]),
    ],
)
def test_an_output_needs_the_inputs_of_its_mapping(shape, output, inputs):
    assert needed(graph_of(*shape), output) == inputs


@each_case(
    ("shape", "changed", "outputs"),
    [
        (IDENTITY, "2020-01-02", ["2020-01-02"]),
        (IDENTITY, "2019-12-31", []),
        (FAN_IN, "2020-01-02/men", ["2020-01-02"]),
        (FAN_IN, "2020-01-02/children", []),
        (FAN_IN, "2020-01-02", []),
        (UNPARTITIONED_INPUT, "", ALL_DAYS),
        (UNPARTITIONED_INPUT, "2020-01-02", []),
        (UNPARTITIONED_OUTPUT, "2020-01-02", [""]),
        (UNPARTITIONED_BOTH, "", [""]),
        (HOURS_OF_A_DAY, "2020-10-25-13:00", ["2020-10-25"]),
    ],
)
def test_a_change_affects_the_outputs_of_its_mapping(shape, changed, outputs):
    assert affected(graph_of(*shape), changed) == outputs


def test_a_change_of_an_unfinished_partition_affects_its_outputs_at_its_end():
    daily = dg.DailyPartitionsDefinition("2020-01-01")
    graph, last_day = graph_of(daily, daily), Partition(Feed.parse(RAW), "2020-12-31")
    found = graph.affected(graph.node(Feed.parse(SUMS)), last_day, NOW)
    assert found == [(Partition(Feed.parse(SUMS), "2020-12-31"), datetime(2021, 1, 1, tzinfo=UTC))]


@each_case(("day", "hours"), [("2020-03-29", 23), ("2020-06-01", 24), ("2020-10-25", 25)])
def test_a_day_needs_each_of_its_hours_in_its_zone(day, hours):
    inputs = needed(graph_of(*HOURS_OF_A_DAY), day)
    assert len(set(inputs)) == hours
    assert (inputs[0], inputs[-1]) == (f"{day}-00:00", f"{day}-23:00")


def test_a_needed_hour_that_is_no_partition_yet_is_named():
    hours = dg.HourlyPartitionsDefinition("2020-03-01-00:00", end_offset=-2)
    graph = graph_of(hours, dg.DailyPartitionsDefinition("2020-03-01"))
    need = need_of(graph, Partition(Feed.parse(SUMS), "2020-12-30"))
    assert len(need.partitions) == 22
    assert absent(need) == ("t/raw/v1.0 2020-12-30-22:00", "t/raw/v1.0 2020-12-30-23:00")


WINDOW = dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=0)
BEFORE = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
FROM_THE_3RD = dg.DailyPartitionsDefinition("2020-01-03", end_date="2020-01-06")


def own_of_a_window(raw_parts=DAYS, mapping=WINDOW):
    raw = raw_feed(partitions_def=raw_parts)
    sums = sums_of(Input(raw, mapping=mapping, required="own"))
    return Graph(dg.Definitions(assets=[raw, sums]).resolve_asset_graph())


@each_case(
    ("raw_parts", "mapping", "output", "inputs", "optional", "unknown"),
    [
        (DAYS, WINDOW, "2020-01-04", ["2020-01-02", "2020-01-03", "2020-01-04"], ["2020-01-02", "2020-01-03"], ()),
        (DAYS, WINDOW, "2020-01-02", ["2020-01-01", "2020-01-02"], ["2020-01-01"], ()),
        (DAYS, WINDOW, "2020-01-01", ["2020-01-01"], [], ()),
        (FROM_THE_3RD, WINDOW, "2020-01-04", ["2020-01-03", "2020-01-04"], ["2020-01-03"], ()),
        (FROM_THE_3RD, WINDOW, "2020-01-02", [], [], ("t/raw/v1.0 2020-01-02",)),
        (DAYS, BEFORE, "2020-01-03", ["2020-01-02"], ["2020-01-02"], ("t/raw/v1.0 2020-01-03",)),
    ],
)
def test_required_own_makes_all_other_partitions_of_the_input_optional(
    raw_parts, mapping, output, inputs, optional, unknown
):
    need = need_of(own_of_a_window(raw_parts, mapping), Partition(Feed.parse(SUMS), output))
    assert [each.key for each in need.partitions] == inputs
    assert sorted(each.key for each in need.optional) == optional
    assert absent(need) == unknown


def test_without_required_own_every_partition_is_required():
    assert need_of(graph_of(DAYS, DAYS, WINDOW), Partition(Feed.parse(SUMS), "2020-01-04")).optional == frozenset()


def test_a_change_of_an_optional_partition_affects_every_output_that_reads_it():
    assert affected(own_of_a_window(), "2020-01-02") == ["2020-01-02", "2020-01-03", "2020-01-04"]


def test_a_need_carries_the_late_policy_and_inputs_with_ignored_quality():
    raw = raw_feed()
    sums = sums_of(Input(raw, ignore_quality_issue=True), late=Late(growth=0.05))
    need = need_of(
        Graph(dg.Definitions(assets=[raw, sums]).resolve_asset_graph()), Partition(Feed.parse(SUMS), ALL_DAYS[0])
    )
    assert need.late == Late(growth=0.05)
    assert [each.partition.feed for each in need.inputs if each.ignores_quality] == [Feed.parse(RAW)]


def test_rejects_are_not_listed_as_a_dataset():
    raw = raw_feed()
    sums = sums_of(raw)
    graph = Graph(dg.Definitions(assets=[raw, sums, picked_of(sums)]).resolve_asset_graph())
    assert [str(node.feed) for node in graph.datasets()] == [PICKED, SUMS]
    assert [str(node.feed) for node in graph.foreign()] == [RAW]
    assert {str(feed) for feed in graph.by_feed} == {RAW, SUMS, PICKED, "t/sums_rejects/v1.0"}


def test_an_unknown_feed_is_refused_with_the_known_ones():
    with pytest.raises(InvalidName, match=r"no asset has the feed t/nothing/v1\.0: expected one of: t/raw/v1\.0"):
        graph_of(*IDENTITY).node(Feed.parse("t/nothing/v1.0"))


def test_an_asset_that_is_no_feed_is_ignored():
    other = dg.AssetSpec("other", metadata={KEY: {"role": "foreign", "feed": "a//b"}})
    assert Graph(dg.Definitions(assets=[other, raw_feed()]).resolve_asset_graph()).by_feed.keys() == {Feed.parse(RAW)}
