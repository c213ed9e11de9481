"""Counts of all partitions of a dataset: current, waiting and missing ones, and holes before the newest."""

from time import process_time

import dagster as dg
import pytest

from feed_assets import Input
from feed_assets.core.feeds import Feed
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.overview import overview
from feed_assets.settings import settings
from feed_assets_tests.orchestration.failing_parts import BrokenDown
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    harness,
    raw_feed,
    rows,
    short,
    sums_of,
)

FOURTH_DAY, LAST_DAY = "2020-01-04", "2020-01-05"


def groups_of(world):
    node = Graph(world.definitions.resolve_asset_graph()).node(Feed.parse(SUMS))
    with open_ledger(settings().ledger).read() as connection:
        return {each.state: (each.count, [one.key for one in each.examples]) for each in overview(connection, node)}


def test_every_partition_is_in_one_group_and_holes_are_also_listed():
    world = short()
    for day, number in ((DAY, 1), (THIRD_DAY, 1000), (FOURTH_DAY, 2)):
        world.drop(RAW, day, rows(number))
    world.run_until_idle()
    world.drop(RAW, LAST_DAY, rows(3))
    world.ask()
    assert groups_of(world) == {
        "current": (2, [DAY, FOURTH_DAY]),
        "build": (1, [LAST_DAY]),
        "waits for quality": (1, [THIRD_DAY]),
        "missing": (1, [NEXT_DAY]),
        "holes before the newest": (2, [NEXT_DAY, THIRD_DAY]),
    }


def test_a_change_that_cannot_be_mapped_moves_no_partition_to_another_group():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    raw = raw_feed()
    broken = harness(raw, sums_of(Input(raw, mapping=BrokenDown())))
    broken.drop(RAW, DAY, rows(2))
    broken.ask()
    groups = groups_of(broken)
    assert groups["cannot be decided"] == (1, [f"{RAW} {DAY}"])
    assert groups["current"] == (1, [DAY])


def test_partitions_without_time_have_no_holes():
    parts = dg.StaticPartitionsDefinition(["a", "b", "c"])
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(raw, partitions_def=parts))
    world.drop(RAW, "c", rows(1))
    world.run_until_idle()
    assert groups_of(world) == {"current": (1, ["c"]), "missing": (2, ["a", "b"])}


@pytest.mark.parametrize("count", [10_000])
def test_an_overview_of_ten_thousand_partitions_names_five(count):
    keys = dg.StaticPartitionsDefinition([f"k{number:05}" for number in range(count)])
    times = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-02")
    parts = dg.MultiPartitionsDefinition({"day": times, "key": keys})
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(raw, partitions_def=parts))
    began = process_time()
    assert groups_of(world) == {"missing": (count, [f"2020-01-01/k{number:05}" for number in range(5)])}
    assert process_time() - began < 10
