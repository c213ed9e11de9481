"""Why a partition waits, where people look for it: an observation on its page, and the message of the tick."""

import dagster as dg
import pytest

from feed_assets import Late, feed_asset, with_automation
from feed_assets.orchestration.declare.declarations import KEY
from feed_assets.orchestration.location import NOTHING_LATE
from feed_assets.orchestration.ticks import reported_waits, sensors
from feed_assets.orchestration.ticks.tick import Step
from feed_assets_tests.support.sum_projects import DAY, DAYS, NEXT_DAY, RAW, harness, raw_feed, rows, short

OTHER = "t/other/v1.0"


def joined():
    """A dataset of two feeds: it waits for the other as soon as there is one."""
    raw, other = raw_feed(), raw_feed(OTHER)

    @feed_asset("t/both/v1.0", partitions_def=DAYS, inputs={"raw": raw, "other": other})
    def both(raw, other):
        """Rows of both.

        Indented further down.
        """

    return harness(raw, other, both)


def observed(world, asset="t/both"):
    """What Dagster has been told of why, oldest first: partition and text."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey(asset.split("/")))
    found = world.instance.fetch_observations(wanted, limit=100).records
    told = [each.asset_observation for each in reversed(found)]
    return [(each.partition, each.description) for each in told if "verdict" in each.metadata]


def test_what_waits_says_for_what_once_and_again_when_the_reason_is_another():
    world = joined()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    ((day, why),) = observed(world)
    assert (day, why[: len("waits for input")]) == (DAY, "waits for input")
    assert f"{OTHER} {DAY}" in why
    world.drop(RAW, DAY, rows(2))
    world.run_until_idle()
    assert len(observed(world)) == 1
    world.drop(OTHER, NEXT_DAY, rows(1))
    world.run_until_idle()
    assert [day for day, _ in observed(world)] == [DAY, NEXT_DAY]


def test_what_is_built_and_waits_anew_is_told_anew():
    world = short()
    world.drop(RAW, DAY, rows(101))
    world.run_until_idle()
    before = observed(world, "t/sums")
    assert before
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(101))
    world.run_until_idle()
    assert len(observed(world, "t/sums")) > len(before)


def test_late_data_that_wait_are_told_with_how_much_has_come_and_what_is_waited_for():
    world = short(late=Late("50%"))
    world.drop(RAW, DAY, rows(*range(10)))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(*range(11)))
    world.run_until_idle()
    ((day, why),) = observed(world, "t/sums")
    assert day == DAY
    assert why.startswith("skips late data: late data of t/raw/v1.0 (+11.4%)")
    assert "below the threshold of 50.0%" in why


def test_a_tick_tells_so_many_and_the_next_one_the_rest(monkeypatch):
    monkeypatch.setattr(reported_waits, "TOLD", 1)
    world = joined()
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.tick()
    assert [day for day, _ in observed(world)] == [DAY]
    world.run_until_idle()
    assert [day for day, _ in observed(world)] == [DAY, NEXT_DAY]


def message(world):
    sensor = world.definitions.resolve_sensor_def("feeds")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="feeds") as context:
        return sensor.evaluate_tick(context).skip_message


def test_a_tick_that_requests_nothing_says_what_waits():
    world = joined()
    assert message(world) == "There is nothing new to run. `feed-assets explain` shows what waits, and why."
    world.drop(RAW, DAY, rows(1))
    said = message(world)
    assert said.startswith(f"1 of 1 outputs decided now are waiting: t/both/v1.0 {DAY} waits for input: ")


def test_a_docstring_is_shown_without_its_indentation():
    graph = joined().definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["t", "both"])).description == "Rows of both.\n\nIndented further down."


def test_a_tick_of_late_data_with_nothing_to_do_says_nothing(caplog, capfd):
    world = short()
    sensor = world.definitions.resolve_sensor_def("late_data")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="late_data") as context:
        sensor.evaluate_tick(context)
    said = [record.getMessage() for record in caplog.records]
    assert not [each for each in (*said, *capfd.readouterr()) if "refetching" in each]


def test_a_declaration_is_a_line_for_people():
    spec = raw_feed()
    text = spec.metadata[KEY].value
    assert text.startswith("foreign t/raw/v1.0, ")
    assert "sum_projects.py:" in text
    assert "schema" not in text


def test_the_same_reason_after_another_run_is_told_again():
    world = short()
    for number in (101, 102):
        world.drop(RAW, DAY, rows(number))
        world.run_until_idle()
    assert len(observed(world, "t/sums")) == 2


def test_a_tick_that_fails_after_all_has_told_nothing(monkeypatch):
    """Dagster drops the reports of a tick that raises, so that they count as told only in one that does not."""
    world, fails = joined(), [True]

    def failing(tick, out_of_time):
        if fails:
            raise RuntimeError(fails.pop())

    monkeypatch.setattr(sensors, "FEEDS", (*sensors.FEEDS, Step("fails", 1, failing)))
    world.definitions = with_automation(dg.Definitions(assets=[*world.definitions.assets]))
    world.drop(RAW, DAY, rows(1))
    with pytest.raises(RuntimeError):
        world.tick()
    assert observed(world) == []
    world.run_until_idle()
    assert [day for day, _ in observed(world)] == [DAY]


def test_late_data_that_nothing_is_to_be_done_about_say_so_in_the_tick_of_their_sensor():
    world = short()
    sensor = world.definitions.resolve_sensor_def("late_data")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="late_data") as context:
        assert sensor.evaluate_tick(context).skip_message == NOTHING_LATE
