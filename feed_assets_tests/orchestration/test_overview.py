"""All partitions of a dataset, counted: what is current, waits or is missing, and the holes before the newest."""

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


def found(world):
    node = Graph(world.definitions.resolve_asset_graph()).node(Feed.parse(SUMS))
    with open_ledger(settings().ledger).read() as connection:
        return {each.state: (each.count, [one.key for one in each.examples]) for each in overview(connection, node)}


def test_every_partition_is_in_one_group_and_holes_are_named_once_more():
    world = short()
    for day, number in ((DAY, 1), (THIRD_DAY, 1000), (FOURTH_DAY, 2)):
        world.drop(RAW, day, rows(number))
    world.run_until_idle()
    world.drop(RAW, LAST_DAY, rows(3))
    world.ask()
    assert found(world) == {
        "current": (2, [DAY, FOURTH_DAY]),
        "build": (1, [LAST_DAY]),
        "waits for quality": (1, [THIRD_DAY]),
        "missing": (1, [NEXT_DAY]),
        "holes before the newest": (2, [NEXT_DAY, THIRD_DAY]),
    }


def test_a_change_of_an_input_that_cannot_be_mapped_takes_the_partition_of_its_key_out_of_no_group():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    raw = raw_feed()
    broken = harness(raw, sums_of(Input(raw, mapping=BrokenDown())))
    broken.drop(RAW, DAY, rows(2))
    broken.ask()
    groups = found(broken)
    assert groups["cannot be decided"] == (1, [f"{RAW} {DAY}"])
    assert groups["current"] == (1, [DAY])


def test_without_a_dimension_of_time_there_are_no_holes():
    parts = dg.StaticPartitionsDefinition(["a", "b", "c"])
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(raw, partitions_def=parts))
    world.drop(RAW, "c", rows(1))
    world.run_until_idle()
    assert found(world) == {"current": (1, ["c"]), "missing": (2, ["a", "b"])}


@pytest.mark.parametrize("count", [10_000])
def test_of_very_many_a_few_are_named(count):
    keys = dg.StaticPartitionsDefinition([f"k{number:05}" for number in range(count)])
    times = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-02")
    parts = dg.MultiPartitionsDefinition({"day": times, "key": keys})
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(raw, partitions_def=parts))
    began = process_time()
    assert found(world) == {"missing": (count, [f"2020-01-01/k{number:05}" for number in range(5)])}
    assert process_time() - began < 10
