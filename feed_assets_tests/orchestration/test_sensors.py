from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import Input, feed_asset
from feed_assets.core.errors import BlackboardUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.testing import Harness
from feed_assets_tests.orchestration.worlds import (
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    harness,
    outcomes,
    raw_feed,
    rows,
    short,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")
BOTH = ("t/sums", "t/sums_rejects")


def requested(harness: Harness, cursor: str | None = None) -> list[str | None]:
    """The partitions of `sums` that a tick asks for."""
    return [partition for assets, partition in harness.ask(cursor).wanted if assets == BOTH]


# What arrived is told once.


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


# What can be built is requested.


def test_every_partition_that_landed_between_two_ticks_is_requested():
    world = short()
    before = world.ask()
    for day in (THIRD_DAY, DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    world.drop(RAW, DAY, rows(1, 2))
    world.drop(RAW, DAY, rows(1, 2, 3))
    assert sorted(requested(world, before.cursor)) == [DAY, NEXT_DAY, THIRD_DAY]


def test_a_request_names_dataset_and_rejects_and_says_why():
    world = short()
    world.drop(RAW, DAY, rows(1))
    (request,) = world.ask().requests
    assert sorted(key.to_user_string() for key in request.asset_selection) == [*BOTH]
    assert request.tags["feed_assets/output"] == f"t/sums/v1.0/{DAY}"
    assert request.tags["feed_assets/why"] == "never built, and every input is there"


def test_a_request_whose_run_was_never_created_is_made_again_under_the_same_key():
    world = short()
    world.drop(RAW, DAY, rows(1))
    first = world.ask()
    second = world.ask(first.cursor)
    assert [each.run_key for each in second.requests] == [each.run_key for each in first.requests]


def test_another_update_of_the_input_makes_another_key():
    world = short()
    world.drop(RAW, DAY, rows(1))
    (first,) = world.ask().requests
    world.drop(RAW, DAY, rows(1, 2))
    (second,) = world.ask().requests
    assert first.run_key != second.run_key


def test_a_tick_requests_so_many_at_most_and_the_next_one_the_rest(setting):
    setting(max_requests=2)
    world = short()
    for day in (DAY, NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, rows(1))
    ticks = [[run.partition for run in world.tick()] for _ in range(3)]
    assert ticks == [[DAY, NEXT_DAY], [THIRD_DAY], []]


def two_inputs() -> Harness:
    left, right = raw_feed("t/left/v1.0"), raw_feed("t/right/v1.0")

    @feed_asset("t/both/v1.0", partitions_def=DAYS, inputs={"left": left, "right": right})
    def both(left, right):
        """Either side."""
        return left.unionByName(right)

    return harness(left, right, both)


def test_a_partition_waits_until_all_its_inputs_are_there():
    world = two_inputs()
    world.drop("t/left/v1.0", DAY, rows(1))
    world.drop("t/right/v1.0", NEXT_DAY, rows(1))
    assert world.ask().wanted == []
    world.drop("t/right/v1.0", DAY, rows(1))
    assert [partition for _, partition in world.ask("1").wanted] == [DAY]


def test_a_fan_in_waits_for_every_partition_that_it_needs():
    parts = dg.MultiPartitionsDefinition({"date": DAYS, "campaign": dg.StaticPartitionsDefinition(["men", "women"])})
    raw = raw_feed(partitions_def=parts)
    world = harness(raw, sums_of(Input(raw, mapping=dg.MultiToSingleDimensionPartitionMapping("date"))))
    world.drop(RAW, f"{DAY}/men", rows(1))
    assert requested(world) == []
    world.drop(RAW, f"{DAY}/women", rows(1))
    assert requested(world) == [DAY]


def test_an_input_that_was_invalidated_counts_as_missing():
    world = short()
    update_id = world.drop(RAW, DAY, rows(1))
    assert requested(world) == [DAY]
    world.invalidate(RAW, DAY, update_id)
    assert requested(world) == []


def test_a_dataset_without_partitions_is_requested():
    raw = raw_feed(partitions_def=None)
    world = harness(raw, sums_of(raw, partitions_def=None))
    world.drop(RAW, "", rows(1))
    assert requested(world) == [None]


# What is no partition yet is remembered.


def test_a_day_that_is_not_over_is_built_when_it_is():
    daily = dg.DailyPartitionsDefinition("2020-01-01")
    raw = raw_feed(partitions_def=daily)
    world = harness(raw, sums_of(raw, partitions_def=daily))
    world.drop(RAW, "2020-01-09", rows(1))
    world.now = lambda: datetime(2020, 1, 9, 23, 59, tzinfo=UTC)
    before = world.ask()
    world.now = lambda: datetime(2020, 1, 10, 0, 5, tzinfo=UTC)
    after = world.ask(before.cursor)
    assert (before.wanted, before.events) == ([], ())
    assert [partition for _, partition in after.wanted] == ["2020-01-09"]
    assert [event.partition for event in after.events] == ["2020-01-09"]


def test_a_dynamic_partition_is_built_once_it_has_been_added():
    regions = dg.DynamicPartitionsDefinition(name="regions")
    raw = raw_feed(partitions_def=regions)
    world = harness(raw, sums_of(raw, partitions_def=regions))
    world.drop(RAW, "north", rows(1))
    assert requested(world) == []
    world.instance.add_dynamic_partitions("regions", ["north"])
    world.now = lambda: datetime.now(UTC) + timedelta(minutes=6)
    assert outcomes(world.tick()) == [("sums", "north", True)]


# A bad day.


def unreadable(home: Path, feed: str) -> None:
    """A feed whose folder leads to itself."""
    path = home / "blackboard" / feed
    path.parent.mkdir(parents=True)
    path.symlink_to(path)


def test_a_feed_that_cannot_be_read_does_not_hold_up_the_others(home):
    good, bad = raw_feed(), raw_feed("t/bad/v1.0")
    world = harness(good, bad, sums_of(good))
    unreadable(home, "t/bad/v1.0")
    world.drop(RAW, DAY, rows(1))
    assert requested(world) == [DAY]


def test_a_tick_fails_if_no_feed_can_be_read(home):
    world = short()
    unreadable(home, RAW)
    with pytest.raises(BlackboardUnavailable):
        world.ask()


def test_a_tick_whose_time_is_over_goes_on_in_the_next_one_and_loses_nothing(setting):
    setting(tick_seconds=1e-9)
    world = short()
    for day in (DAY, NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, rows(1))
    seen, cursor = set(), None
    for _ in range(4):
        asked = world.ask(cursor)
        cursor = asked.cursor
        seen |= {event.partition for event in asked.events}
    assert seen == {DAY, NEXT_DAY, THIRD_DAY}


def test_a_bad_feed_name_in_an_assets_metadata_breaks_nothing_else():
    raw = raw_feed()
    strange = dg.AssetSpec("strange", metadata={"feed_assets/feed": "a//b", "feed_assets/role": "foreign"})
    world = harness(raw, strange, sums_of(raw))
    world.drop(RAW, DAY, rows(1))
    assert requested(world) == [DAY]


def test_dagster_itself_takes_the_tick_for_valid():
    world = short()
    world.drop(RAW, DAY, rows(1))
    sensor = world.definitions.resolve_sensor_def("feeds")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="feeds") as context:
        found = sensor.evaluate_tick(context)
    assert [request.partition_key for request in found.run_requests] == [DAY]
    assert len(found.asset_events) == 1
    assert found.cursor == "1"


# Runs that end otherwise.


def test_a_failed_run_is_tried_again_so_many_times_and_then_waits_for_a_person(setting):
    setting(max_attempts=2)
    world = short()
    world.drop(RAW, DAY, rows(13))
    runs = world.run_until_idle()
    assert outcomes(runs) == [("sums", DAY, False)] * 2
    assert [run.error for run in runs] == ["RuntimeError: 13 is unlucky"] * 2
    assert len({run.tags["dagster/run_key"] for run in runs}) == 2


def test_what_waits_for_a_person_is_built_on_another_input(setting):
    setting(max_attempts=1)
    world = short()
    world.drop(RAW, DAY, rows(13))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    world.drop(RAW, DAY, rows(14))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_a_failed_audit_is_not_tried_again_on_the_same_input():
    world = short()
    world.drop(RAW, DAY, rows(101))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    assert world.newest(SUMS, DAY) is None


def test_a_partition_in_progress_is_not_requested_again():
    asked = []
    world = short(during=lambda: asked.append(requested(world, "1")))
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.run_until_idle()
    assert asked == [[NEXT_DAY], []]


def test_what_is_built_already_is_not_requested_by_the_sensor():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(1, 2))
    assert world.ask("9").wanted == []
