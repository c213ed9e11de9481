"""The reasons of waiting partitions, as an observation on their page and in the message of the tick."""

import dagster as dg
import pytest

from feed_assets import Late, feed_asset, with_automation
from feed_assets.orchestration.declare.declarations import KEY
from feed_assets.orchestration.location import NOTHING_LATE
from feed_assets.orchestration.ticks import reported_waits, steps
from feed_assets.orchestration.ticks.tick import Step
from feed_assets_tests.support.sum_projects import DAY, DAYS, NEXT_DAY, RAW, harness, raw_feed, rows, short

OTHER = "t/other/v1.0"


def joined():
    """Build a dataset of two feeds, of which each partition needs both."""
    raw, other = raw_feed(), raw_feed(OTHER)

    @feed_asset("t/both/v1.0", partitions_def=DAYS, inputs={"raw": raw, "other": other})
    def both(raw, other):
        """Rows of both.

        Indented further down.
        """

    return harness(raw, other, both)


def observed_waits(world, asset="t/both"):
    """Return partition and text of Dagster's observations with a reason, oldest first."""
    wanted = dg.AssetRecordsFilter(dg.AssetKey(asset.split("/")))
    found = world.instance.fetch_observations(wanted, limit=100).records
    told = [each.asset_observation for each in reversed(found)]
    return [(each.partition, each.description) for each in told if "verdict" in each.metadata]


def test_a_waiting_partition_reports_its_reason_once_until_it_changes():
    world = joined()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    ((day, why),) = observed_waits(world)
    assert (day, why[: len("waits for input")]) == (DAY, "waits for input")
    assert f"{OTHER} {DAY}" in why
    world.drop(RAW, DAY, rows(2))
    world.run_until_idle()
    assert len(observed_waits(world)) == 1
    world.drop(OTHER, NEXT_DAY, rows(1))
    world.run_until_idle()
    assert [day for day, _ in observed_waits(world)] == [DAY, NEXT_DAY]


def test_a_partition_that_waits_again_after_a_build_is_reported_again():
    world = short()
    world.drop(RAW, DAY, rows(101))
    world.run_until_idle()
    before = observed_waits(world, "t/sums")
    assert before
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(101))
    world.run_until_idle()
    assert len(observed_waits(world, "t/sums")) > len(before)


def test_skipped_late_data_are_reported_with_their_size_and_threshold():
    world = short(late=Late("50%"))
    world.drop(RAW, DAY, rows(*range(10)))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(*range(11)))
    world.run_until_idle()
    ((day, why),) = observed_waits(world, "t/sums")
    assert day == DAY
    assert why.startswith("skips late data: late data of t/raw/v1.0 (+11.4%)")
    assert "below the threshold of 50.0%" in why


def test_a_tick_reports_a_limited_number_of_waits_and_the_next_one_the_rest(monkeypatch):
    monkeypatch.setattr(reported_waits, "TOLD", 1)
    world = joined()
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.tick()
    assert [day for day, _ in observed_waits(world)] == [DAY]
    world.run_until_idle()
    assert [day for day, _ in observed_waits(world)] == [DAY, NEXT_DAY]


def message(world):
    sensor = world.definitions.resolve_sensor_def("feeds")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="feeds") as context:
        return sensor.evaluate_tick(context).skip_message


def test_a_tick_without_requests_names_the_waiting_partitions():
    world = joined()
    assert message(world) == "There is nothing new to run. `feed-assets explain` shows what waits, and why."
    world.drop(RAW, DAY, rows(1))
    said = message(world)
    assert said.startswith(f"1 of 1 outputs decided now are waiting: t/both/v1.0 {DAY} waits for input: ")


def test_a_docstring_is_shown_without_its_indentation():
    graph = joined().definitions.resolve_asset_graph()
    assert graph.get(dg.AssetKey(["t", "both"])).description == "Rows of both.\n\nIndented further down."


def test_an_idle_tick_of_late_data_logs_nothing(caplog, capfd):
    world = short()
    sensor = world.definitions.resolve_sensor_def("late_data")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="late_data") as context:
        sensor.evaluate_tick(context)
    said = [record.getMessage() for record in caplog.records]
    assert not [each for each in (*said, *capfd.readouterr()) if "refetching" in each]


def test_a_declaration_is_shown_as_one_readable_line():
    spec = raw_feed()
    text = spec.metadata[KEY].value
    assert text.startswith("foreign t/raw/v1.0, ")
    assert "sum_projects.py:" in text
    assert "schema" not in text


def test_the_same_reason_after_another_run_is_reported_again():
    world = short()
    for number in (101, 102):
        world.drop(RAW, DAY, rows(number))
        world.run_until_idle()
    assert len(observed_waits(world, "t/sums")) == 2


def test_waits_of_a_failed_tick_are_reported_by_the_next_one(monkeypatch):
    """Dagster drops the reports of a failed tick, so these count as reported only once a tick succeeds."""
    world, fails = joined(), [True]

    def failing(tick, out_of_time):
        if fails:
            raise RuntimeError(fails.pop())

    monkeypatch.setitem(steps.STEPS, "feeds", (*steps.FEEDS, Step("fails", 1, failing)))
    world.definitions = with_automation(dg.Definitions(assets=[*world.definitions.assets]))
    world.drop(RAW, DAY, rows(1))
    with pytest.raises(RuntimeError):
        world.tick()
    assert observed_waits(world) == []
    world.run_until_idle()
    assert [day for day, _ in observed_waits(world)] == [DAY]


def test_an_idle_tick_of_late_data_has_a_message():
    world = short()
    sensor = world.definitions.resolve_sensor_def("late_data")
    with dg.build_sensor_context(world.instance, definitions=world.definitions, sensor_name="late_data") as context:
        assert sensor.evaluate_tick(context).skip_message == NOTHING_LATE
