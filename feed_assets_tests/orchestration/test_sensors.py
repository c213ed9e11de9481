"""Requests of the sensor, tick by tick."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from feed_assets import Input, feed_asset
from feed_assets.core.errors import BlackboardMissing
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.declare.declarations import KEY
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    harness,
    outcomes,
    raw_feed,
    reports_of,
    requested,
    rows,
    short,
    sums_of,
)

pytestmark = pytest.mark.usefixtures("home")


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
    assert request.tags["feed_assets/why"] == "it has no valid update, and every input is there"


def test_an_output_whose_only_update_was_invalidated_is_built_again():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    only = world.newest(SUMS, DAY)
    world.invalidate(SUMS, DAY, only)
    sync(world.board, open_ledger(settings().ledger), Partition(Feed.parse(SUMS), DAY), utc_now())
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert world.newest(SUMS, DAY) > only


def test_a_newer_input_changes_the_run_key():
    world = short()
    world.drop(RAW, DAY, rows(1))
    (first,) = world.ask().requests
    world.drop(RAW, DAY, rows(1, 2))
    (second,) = world.ask().requests
    assert first.run_key != second.run_key


def test_a_tick_requests_at_most_max_requests_and_the_next_one_the_rest(setting):
    setting(max_requests=2, partitions_per_run=1)
    world = short()
    for day in (DAY, NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, rows(1))
    ticks = [[run.partition for run in world.tick()] for _ in range(3)]
    assert ticks == [[DAY, NEXT_DAY], [THIRD_DAY], []]


def two_inputs() -> Harness:
    left, right = raw_feed("t/left/v1.0"), raw_feed("t/right/v1.0")

    @feed_asset("t/both/v1.0", partitions_def=DAYS, inputs={"left": left, "right": right})
    def both(left, right):
        """Return the rows of both sides."""
        return left.unionByName(right)

    return harness(left, right, both)


def test_a_partition_waits_until_all_its_inputs_are_there():
    world = two_inputs()
    world.drop("t/left/v1.0", DAY, rows(1))
    world.drop("t/right/v1.0", NEXT_DAY, rows(1))
    assert world.ask().targets == []
    world.drop("t/right/v1.0", DAY, rows(1))
    assert [partition for _, partition in world.ask("1").targets] == [DAY]


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


# Keys that are no partition yet are remembered


def test_a_day_is_reported_and_built_once_it_is_over():
    daily = dg.DailyPartitionsDefinition("2020-01-01")
    raw = raw_feed(partitions_def=daily)
    world = harness(raw, sums_of(raw, partitions_def=daily))
    world.drop(RAW, "2020-01-09", rows(1))
    world.now = lambda: datetime(2020, 1, 9, 23, 59, tzinfo=UTC)
    assert requested(world) == []
    before = reports_of(world)
    world.now = lambda: datetime(2020, 1, 10, 0, 5, tzinfo=UTC)
    assert requested(world) == ["2020-01-09"]
    after = reports_of(world, before.cursor)
    assert before.events == ()
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


# Failures


def unreadable(home: Path, feed: str) -> None:
    """Make a feed whose folder is a link to itself."""
    path = home / "blackboard" / feed
    path.parent.mkdir(parents=True)
    path.symlink_to(path)


def test_sensor_records_other_feeds_beside_an_unreadable_one(home):
    good, bad = raw_feed(), raw_feed("t/bad/v1.0")
    world = harness(good, bad, sums_of(good))
    unreadable(home, "t/bad/v1.0")
    world.drop(RAW, DAY, rows(1))
    assert requested(world) == [DAY]


def test_a_tick_without_a_blackboard_fails_and_still_alerts(home, setting):
    setting(blackboard=(home / "nowhere").as_uri())
    world = short()
    with pytest.raises(BlackboardMissing):
        world.ask()
    world.ask(name="watch")
    with open_ledger(settings().ledger).read() as connection:
        opened = [each.name for each in alerts.open_alerts(connection)]
    assert opened == ["failing:feeds:step discover", "failing:feeds:step finish"]


def test_ticks_out_of_time_report_every_partition_in_the_end(setting):
    setting(tick_seconds=1e-9)
    world = short()
    for day in (DAY, NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, rows(1))
    seen, cursor = set(), None
    for _ in range(4):
        asked = reports_of(world, cursor)
        cursor = asked.cursor
        seen |= {event.partition for event in asked.events}
    assert seen == {DAY, NEXT_DAY, THIRD_DAY}


def test_a_bad_feed_name_in_an_assets_metadata_breaks_nothing_else():
    raw = raw_feed()
    strange = dg.AssetSpec("strange", metadata={KEY: {"role": "foreign", "feed": "a//b"}})
    world = harness(raw, strange, sums_of(raw))
    world.drop(RAW, DAY, rows(1))
    assert requested(world) == [DAY]


def test_dagster_accepts_the_result_of_a_tick():
    world = short()
    world.drop(RAW, DAY, rows(1))
    sensor = world.definitions.resolve_sensor_def("feeds")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="feeds") as context:
        found = sensor.evaluate_tick(context)
    assert [request.partition_key for request in found.run_requests] == [DAY]
    assert (len(found.asset_events), found.cursor) == (1, "log:2/0")
