import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from textwrap import dedent

import dagster as dg
import pytest
from dagster._daemon.types import DaemonHeartbeat

from feed_assets.core.errors import DaemonRunning, NotIdle
from feed_assets.orchestration.declare.declarations import WATCHED
from feed_assets.orchestration.runner import STARTING_SPARK, Runner
from feed_assets.runs.services import this_process
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    chain,
    given,
    harness,
    inputs_of,
    opened,
    outcomes,
    raw_feed,
    reports_of,
    rows,
    short,
)

KILLED_IN_A_RUN = dedent(
    """
    import os, signal
    import dagster as dg
    from feed_assets.orchestration.runner import Runner

    days = dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-01-06")

    @dg.asset(key=dg.AssetKey(["t", "sums"]), partitions_def=days)
    def sums():
        os.kill(os.getpid(), signal.SIGKILL)

    @dg.sensor(asset_selection="*")
    def ask(context):
        return dg.RunRequest("once", partition_key="2020-01-01", asset_selection=[sums.key])

    with dg.DagsterInstance.get() as instance:
        Runner(dg.Definitions(assets=[sums], sensors=[ask]), instance).run_until_idle()
    """
)


def test_progress_names_the_tick_and_the_run_out_of_all_runs():
    world, steps = chain(), []
    world.drop(RAW, DAY, rows(1))
    Runner(world.definitions, world.instance, now=world.now, on_step=steps.append).run_until_idle()
    said = [step for step in steps if step.startswith("run ")]
    assert said == [f"run 1 of 1: t/sums, t/sums_rejects {DAY}", f"run 2 of 2: t/picked {DAY}"]
    assert steps[0] == "tick 1: sensor feeds"
    assert "tick 2: late data" in steps
    assert STARTING_SPARK not in steps


def test_runs_are_counted_through_all_ticks():
    world, steps = chain(), []
    runner = Runner(world.definitions, world.instance, now=world.now, on_step=steps.append)
    world.drop(RAW, DAY, rows(1))
    runner.run_until_idle()
    world.drop(RAW, NEXT_DAY, rows(1))
    runner.run_until_idle()
    assert [step.partition(":")[0] for step in steps if step.startswith("run ")] == [
        "run 1 of 1",
        "run 2 of 2",
        "run 3 of 3",
        "run 4 of 4",
    ]


def test_run_until_idle_ends_when_nothing_is_requested():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True), ("picked", DAY, True)]
    assert world.run_until_idle() == []


def test_a_runs_tags_name_its_driver_sensor_and_reason():
    world = short()
    world.drop(RAW, DAY, rows(1))
    (run,) = world.run_until_idle()
    assert run.tags["feed_assets/driver"] == this_process()
    assert run.tags["dagster/sensor_name"] == "feeds"
    assert run.tags["feed_assets/why"] == "it has no valid update, and every input is there"


def test_run_until_idle_finds_late_data_however_many_partitions_are_known():
    days = dg.DailyPartitionsDefinition("2018-01-01", end_date="2018-04-01")
    world = harness(raw_feed(partitions_def=days))
    for day in days.get_partition_keys():
        world.drop(RAW, day, rows(1))
    world.run_until_idle()
    late = {day: world.drop(RAW, day, rows(1, 2)) for day in days.get_partition_keys()}
    world.run_until_idle()
    assert {day: world.reported("t/raw", day)[0].update_id for day in late} == late


def test_too_many_ticks_are_an_error():
    world = short()
    world.drop(RAW, DAY, rows(1))
    with pytest.raises(NotIdle, match="still requested after 1 ticks"):
        world.run_until_idle(max_ticks=1)


@pytest.mark.parametrize(("seconds_ago", "is_alive"), [(100, True), (140, False)])
def test_run_refuses_a_live_daemon_and_accepts_a_stopped_one(seconds_ago, is_alive):
    beat = datetime.now(UTC).timestamp() - seconds_ago
    refusal = pytest.raises(DaemonRunning, match=r"the Dagster daemon \(SENSOR\)")
    with dg.DagsterInstance.get() as instance:
        instance.add_daemon_heartbeat(DaemonHeartbeat(beat, "SENSOR", None, None))
        with refusal if is_alive else nullcontext():
            assert Harness(short().definitions, instance, maker=PlainMaker(given)).run_until_idle() == []


def test_a_run_whose_driver_was_killed_is_failed_and_its_partition_built(home):
    driver = subprocess.run([sys.executable, "-W", "ignore", "-c", KILLED_IN_A_RUN], capture_output=True, timeout=60)
    assert driver.returncode == -9, driver.stderr.decode()
    with dg.DagsterInstance.get() as instance:
        world = Harness(short().definitions, instance, maker=PlainMaker(given))
        world.drop(RAW, DAY, rows(1))
        assert [run.status.value for run in instance.get_runs()] == ["STARTED"]  # Dagster alone never ends it
        assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
        statuses = [run.status.value for run in instance.get_runs()]
    assert statuses == ["SUCCESS", "FAILURE"]


def test_a_new_instance_builds_nothing_and_gets_the_newest_materializations():
    before = chain()
    for numbers in ((1,), (1, 2)):
        before.drop(RAW, DAY, rows(*numbers))
        before.run_until_idle()
    before.drop(RAW, NEXT_DAY, rows(1))
    before.run_until_idle()
    after = opened.enter_context(Harness(before.definitions))
    assert after.run_until_idle() == []
    for asset in ("t/raw", "t/sums", "t/sums_rejects", "t/picked"):
        for day in (DAY, NEXT_DAY):
            known, reported = before.reported(asset, day), after.reported(asset, day)
            assert [(each.update_id, each.version) for each in reported] == [(known[0].update_id, known[0].version)]


def test_a_new_instance_gets_each_materialization_once():
    before = short()
    before.drop(RAW, DAY, rows(1))
    before.run_until_idle()
    after = opened.enter_context(Harness(before.definitions))
    first = reports_of(after)
    assert len(first.events) == 3
    assert reports_of(after, first.cursor).events == ()


def test_the_sensor_does_not_report_what_a_run_reported():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    assert [reported.run != "" for reported in world.reported("t/sums", DAY)] == [True]


def test_the_sensor_reports_a_part_that_the_run_did_not_select():
    world = short()
    world.drop(RAW, DAY, rows(1))
    job = world.definitions.resolve_implicit_global_asset_job_def()
    job.execute_in_process(instance=world.instance, partition_key=DAY, asset_selection=[dg.AssetKey(["t", "sums"])])
    assert world.reported("t/sums_rejects", DAY) == []
    world.run_until_idle()
    (reported,) = world.reported("t/sums_rejects", DAY)
    assert reported.update_id == world.newest("t/sums_rejects/v1.0", DAY)


def test_metadata_of_an_update_survive_as_json():
    world = chain()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    (reported,) = world.reported("t/picked", DAY)
    assert inputs_of(reported)[f"{SUMS}/{DAY}"] == world.newest(SUMS, DAY)
    assert reported.update_id == world.newest(PICKED, DAY)


def test_a_run_plans_its_datasets_checks_and_none_of_a_sensor():
    """If a failed run had planned such a check and not made it, it would look failed until the next tick."""
    world = short()
    world.drop(RAW, DAY, rows(101))
    world.run_until_idle()
    (run,) = [each for each in world.instance.get_runs() if not each.is_success]
    planned = world.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED)
    checks = {each.get_dagster_event().asset_check_planned_data.check_name for each in planned}
    assert "within_n" in checks
    assert checks.isdisjoint(WATCHED)
