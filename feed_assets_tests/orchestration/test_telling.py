"""What the sensor tells Dagster of, tick by tick."""

import dagster as dg
import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets_tests.orchestration.worlds import (
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    harness,
    raw_feed,
    requested,
    rows,
    short,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")


def test_a_foreign_update_is_told_with_the_digest_of_its_files_as_data_version():
    world = short()
    update_id = world.drop(RAW, DAY, rows(1, 2))
    (event,) = world.ask().events
    digest = read.latest(world.board, Partition(Feed.parse(RAW), DAY)).update.files_digest
    assert (event.asset_key.to_user_string(), event.partition) == ("t/raw", DAY)
    assert event.tags == {"dagster/data_version": digest}
    assert {name: value.value for name, value in event.metadata.items()} == {
        "update id": update_id,
        "path": f"t/raw/v1.0/{DAY}/{update_id}",
        "files": 1,
        "bytes": 12,
    }


def test_an_update_that_dagster_confirmed_is_not_told_again():
    world = short()
    world.drop(RAW, DAY, rows(1))
    first = world.ask()
    second = world.ask(first.cursor)
    assert (len(first.events), second.events, second.cursor) == (1, (), first.cursor)


def test_an_update_that_dagster_did_not_confirm_is_told_again():
    world = short()
    world.drop(RAW, DAY, rows(1))
    before = world.ask().cursor
    world.drop(RAW, NEXT_DAY, rows(2))
    lost, again = world.ask(before), world.ask(before)
    assert [event.partition for event in lost.events] == [NEXT_DAY]
    assert again.events == lost.events


def test_each_newer_update_is_told():
    world = short()
    first = world.drop(RAW, DAY, rows(1))
    before = world.ask()
    second = world.drop(RAW, DAY, rows(1, 2))
    after = world.ask(before.cursor)
    assert [event.metadata["update id"].value for event in (*before.events, *after.events)] == [first, second]


def test_a_partition_outside_of_the_definition_is_neither_told_nor_built():
    world = short()
    for key in ("2019-12-31", "2020-01-06", "men", f"{DAY}/men"):
        world.drop(RAW, key, rows(1))
    world.drop(RAW, DAY, rows(1))
    first = world.ask()
    second = world.ask(first.cursor)
    assert [event.partition for event in first.events] == [DAY]
    assert [partition for _, partition in first.wanted] == [DAY]
    assert second.events == ()


def test_a_partition_of_other_depth_does_not_stop_the_tick():
    parts = dg.MultiPartitionsDefinition({"date": DAYS, "campaign": dg.StaticPartitionsDefinition(["men", "women"])})
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(raw, partitions_def=parts))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.drop(RAW, f"{DAY}/men", rows(1))
    found = world.ask()
    assert [event.partition for event in found.events] == [f"men|{DAY}"]
    assert requested(world) == [f"men|{DAY}"]
