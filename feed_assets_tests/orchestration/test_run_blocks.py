"""A run of many partitions: each is built, reported, refused and failed by itself."""

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from textwrap import dedent
from threading import Barrier, Event

import dagster as dg
import pytest

from feed_assets import Input, feed_asset, with_automation
from feed_assets.cli.progress import Progress
from feed_assets.cli.run_output import Teller
from feed_assets.core.errors import ServiceUnavailable, SparkUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.execute.joint_run import ends_of_each, to_its_end
from feed_assets.orchestration.execute.makers import SPARK_PROFILE
from feed_assets.orchestration.run_outcomes import outage
from feed_assets.orchestration.runner import NO_TAGS
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness, PlainMaker, Ran
from feed_assets_tests.orchestration.range_runs import END, START, THREE_DAYS, materialize, three_days
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    DAYS,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    THIRD_DAY,
    UNLUCKY,
    chain,
    given,
    harness,
    inputs_of,
    opened,
    outcomes,
    raw_feed,
    rows,
    short,
    sums_of,
    without_place,
)

SECONDS = 60
"""Highest time for which a test's thread waits for another one."""


def ran(world: Harness, first: str = DAY, last: str = THIRD_DAY) -> list[Ran]:
    """Execute the request of a range, and return the runs that `feed-assets run` would show."""
    assets, before = [dg.AssetKey.from_user_string(asset) for asset in BOTH], len(world.runs)
    world.runner.execute(dg.RunRequest(asset_selection=assets, tags={START: first, END: last}))
    return world.runs[before:]


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    error = event.step_failure_data.error
    return (error.cause or error).message


def states() -> dict[str, str]:
    """Return the state of the last run of the sums, for each day that has one."""
    with open_ledger(settings().ledger).read() as connection:
        last = {day: runs.last(connection, Partition(Feed.parse(SUMS), day)) for day in THREE_DAYS}
    return {day: run.state for day, run in last.items() if run}


@pytest.fixture(params=[1, 2])
def at_a_time(request, setting) -> int:
    setting(partitions_at_a_time=request.param)
    return request.param


@pytest.mark.usefixtures("at_a_time")
def test_each_partition_of_a_range_is_built_and_reported_by_itself():
    world = three_days(1, 2, 3)
    result = materialize(world, DAY, THIRD_DAY)
    assert result.success
    for day in THREE_DAYS:
        for asset in BOTH:
            (reported,) = world.reported(asset, day)
            assert (reported.update_id, reported.run) == (world.newest(f"{asset}/v1.0", day), result.run_id)
        assert world.checks("t/sums", day) == {"not_empty": True, "within_n": True}
    assert len({world.reported("t/sums", day)[0].version for day in THREE_DAYS}) == 3


def test_partitions_built_at_the_same_time_share_one_spark_session(spark, setting):
    setting(partitions_at_a_time=2)
    raw = raw_feed()
    world = three_days(1, 101, 3, world=harness(raw, sums_of(raw), maker=None))
    assert sorted(outcomes(ran(world))) == [("sums", DAY, True), ("sums", NEXT_DAY, False), ("sums", THIRD_DAY, True)]
    assert [world.reported("t/sums", day)[0].metadata["preview"][-9:] for day in (DAY, THIRD_DAY)] == [
        "| a | 1 |",
        "| a | 3 |",
    ]


def test_with_spark_a_bad_partition_stops_no_neighbour_of_its_run(spark, setting):
    setting(partitions_at_a_time=2)
    raw = raw_feed()
    found = {
        each.partition: each for each in ran(three_days(101, UNLUCKY, 3, world=harness(raw, sums_of(raw), maker=None)))
    }
    assert {day: found[day].succeeded for day in THREE_DAYS} == {DAY: False, NEXT_DAY: False, THIRD_DAY: True}
    assert found[DAY].error == "within_n: n must be in [0, 100]; not in it: 1 of 1 rows"
    assert "13 is unlucky" in found[NEXT_DAY].error
    assert states() == {DAY: "refused", NEXT_DAY: "failed", THIRD_DAY: "published"}


SEVERAL_START_SPARK = dedent(
    """
    import os, psutil, sys
    from feed_assets_tests.orchestration.range_runs import materialize, three_days
    from feed_assets_tests.support.sum_projects import *

    os.environ["DAGSTER_HOME"] = sys.argv[1]
    raw = raw_feed()
    world = three_days(1, 2, 3, world=harness(raw, sums_of(raw), maker=None))
    ended = materialize(world, DAY, THIRD_DAY).success
    print(ended, sum("java" in each.name() for each in psutil.Process().children(recursive=True)))
    """
)


def test_only_one_of_several_partitions_starts_spark(home):
    env = {**os.environ, "FEED_ASSETS_PARTITIONS_AT_A_TIME": "2", "FEED_ASSETS_SPARK_MASTER": "local[1]"}
    del env["DAGSTER_HOME"]  # A Harness would take it for the developer's own home.
    command = [sys.executable, "-W", "ignore", "-c", SEVERAL_START_SPARK, str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)
    assert done.stdout.splitlines()[-1:] == ["True 1"], done.stderr


def test_a_failed_range_of_a_foreign_asset_is_reported_in_one_line():
    @dg.asset(partitions_def=DAYS)
    def theirs():
        raise RuntimeError("bad")

    @dg.sensor(target=[theirs], default_status=dg.DefaultSensorStatus.RUNNING)
    def asks():
        return dg.RunRequest(run_key="1", asset_selection=[theirs.key], tags={START: DAY, END: NEXT_DAY})

    definitions = with_automation(dg.Definitions(assets=[theirs], sensors=[asks]))
    with Harness(definitions, maker=PlainMaker(given)) as world:
        (told,) = world.tick()
    assert (told.assets, told.succeeded, told.error) == (("theirs",), False, "RuntimeError: bad")


def test_a_range_of_two_dimensions_builds_each_combination():
    both = dg.MultiPartitionsDefinition({"day": DAYS, "who": dg.StaticPartitionsDefinition(["men", "women"])})
    raw = raw_feed(partitions_def=both)
    world = harness(raw, sums_of(raw, partitions_def=both))
    keys = [f"{day}|{who}" for day in (DAY, NEXT_DAY) for who in ("men", "women")]
    for key in keys:
        world.drop(RAW, key.replace("|", "/"), rows(1))
    found = ran(world, f"{DAY}|men", f"{NEXT_DAY}|women")
    assert {each.partition: each.error for each in found} == dict.fromkeys(keys)
    for key in keys:
        assert world.reported("t/sums", key)[0].update_id == world.newest(SUMS, key.replace("|", "/"))
        assert world.checks("t/sums", key) == {"not_empty": True, "within_n": True}


def test_a_partition_of_a_joint_run_has_the_metadata_of_a_single_run():
    world = three_days(1, 2, 3)
    materialize(world, DAY, THIRD_DAY)
    world.drop(RAW, DAY, rows(1, 0))  # the same sum
    keys = [dg.AssetKey.from_user_string(asset) for asset in BOTH]
    dg.materialize([*world.definitions.assets], partition_key=DAY, instance=world.instance, selection=keys)
    single, of_many = world.reported("t/sums", DAY)
    assert single.version == of_many.version
    assert [*single.metadata] == [*of_many.metadata, "before and after"]  # It replaces the other one.
    assert single.metadata["preview"] == of_many.metadata["preview"] == "| k | n |\n| --- | --- |\n| a | 1 |"


def test_a_check_of_a_joint_run_targets_its_newest_materialization():
    world = three_days(1, 2, 3)
    materialize(world, DAY, THIRD_DAY)
    for again in (1, 2, 3):
        world.drop(RAW, DAY, rows(again, 1))
    result = materialize(world, DAY, THIRD_DAY)
    found = {each.check_name: each for each in result.get_asset_check_evaluations()}
    assert {(each.partition, each.blocking) for each in found.values()} == {(DAY, True)}
    newest, _ = world.reported("t/sums", DAY)
    target = found["within_n"].target_materialization_data
    assert (target.storage_id, target.run_id) == (newest.storage_id, result.run_id)
    assert type(target).__name__ == "AssetCheckEvaluationTargetMaterializationData"
    assert target.timestamp > 0


@pytest.mark.usefixtures("at_a_time")
def test_a_refused_and_a_failed_partition_stop_no_neighbour_of_their_run():
    world = three_days(101, UNLUCKY, 3)
    result = materialize(world, DAY, THIRD_DAY)
    assert not result.success
    assert [bool(world.reported("t/sums", day)) for day in THREE_DAYS] == [False, False, True]
    assert world.newest(SUMS, THIRD_DAY)
    assert world.checks("t/sums", DAY) == {"not_empty": True, "within_n": False}
    assert world.checks("t/sums", NEXT_DAY) == {}
    said = failure(result)
    assert "Not built: 2 of 3. Correct the cause" in said
    assert f"{DAY}: within_n: n must be in [0, 100]" in said
    assert f"{NEXT_DAY}: RuntimeError: 13 is unlucky" in without_place(said)


def test_the_end_of_a_run_is_reported_for_each_partition():
    found = ran(three_days(101, UNLUCKY, 3))
    assert outcomes(found) == [("sums", DAY, False), ("sums", NEXT_DAY, False), ("sums", THIRD_DAY, True)]
    reasons = ["within_n: n must be in [0, 100]; not in it: 1 of 1 rows", "RuntimeError: 13 is unlucky", None]
    assert [each.error and without_place(each.error) for each in found] == reasons
    assert {each.assets for each in found} == {BOTH}
    assert len({each.id for each in found}) == 1


def test_a_partition_that_never_began_is_reported_with_the_reason(tmp_path):
    """Its input has no such partition, so the ledger has no run of it."""
    first = raw_feed(partitions_def=dg.DailyPartitionsDefinition(NEXT_DAY, end_date="2020-01-06"))
    world = harness(first, sums_of(first))
    for day in (NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, rows(1))
    found = {each.partition: each for each in ran(world)}
    assert {day: each.succeeded for day, each in found.items()} == {DAY: False, NEXT_DAY: True, THIRD_DAY: True}
    assert (
        found[DAY].error == f"NoValidUpdate: {SUMS} {DAY} needs {RAW} {DAY}: no such partition exists yet. Wait for it."
    )
    assert DAY not in states()


def test_a_retry_builds_only_what_is_missing():
    world = three_days(101, UNLUCKY, 3)
    ran(world)
    before = world.newest(SUMS, THIRD_DAY)
    for day in (DAY, NEXT_DAY):
        world.drop(RAW, day, rows(1))
    assert [each.error for each in ran(world)] == [None, None, None]
    assert world.newest(SUMS, THIRD_DAY) == before
    assert len(world.reported("t/sums", THIRD_DAY)) == 1
    assert states() == {DAY: "published", NEXT_DAY: "published", THIRD_DAY: "unchanged"}
    assert world.checks("t/sums", DAY) == {"not_empty": True, "within_n": True}


@pytest.mark.parametrize("number", [2, UNLUCKY])
def test_downstream_in_the_same_run_is_built_only_if_all_inputs_were(number):
    world = three_days(1, number, 3, world=chain())
    result = materialize(world, DAY, THIRD_DAY, *BOTH, "t/picked")
    assert result.success is (number == 2)
    built = [day for day in THREE_DAYS if world.newest(PICKED, day)]
    assert built == [*THREE_DAYS] * (number == 2)
    for day in built:
        update = world.newest(SUMS, day)
        assert world.reported("t/sums", day)[0].update_id == update
        assert inputs_of(world.reported("t/picked", day)[0])[f"{SUMS}/{day}"] == update
        assert world.checks("t/sums", day) == {"not_empty": True, "within_n": True}
    versions = {world.reported("t/sums", day)[0].version for day in built}
    assert len(versions) == len(built)


def test_an_outage_ends_a_run_and_names_partitions_not_begun():
    def give(task) -> Given:
        if task.output.key == NEXT_DAY:
            raise SparkUnavailable("no Java")
        return given(task)

    raw = raw_feed()
    world = three_days(1, 2, 3, world=harness(raw, sums_of(raw), give=give))
    said = failure(materialize(world, DAY, THIRD_DAY))
    assert "SparkUnavailable: no Java" in said
    assert f"Not begun: {THIRD_DAY}." in said
    assert states() == {DAY: "published", NEXT_DAY: "abandoned"}
    assert world.reported("t/sums", DAY)[0].update_id == world.newest(SUMS, DAY)


def test_partitions_that_failed_before_an_outage_are_named_with_their_reasons(at_a_time, capsys):
    def give(task) -> Given:
        if task.output.key == THIRD_DAY:
            raise SparkUnavailable("no Java")
        return given(task)

    raw = raw_feed()
    result = materialize(three_days(101, UNLUCKY, 3, world=harness(raw, sums_of(raw), give=give)), DAY, THIRD_DAY)
    reasons = {DAY: "within_n: n must be in [0, 100]; not in it: 1 of 1 rows", NEXT_DAY: "RuntimeError: 13 is unlucky"}
    lines = without_place(failure(result)).splitlines()
    assert lines[-2:] == [f"{day}: {why}" for day, why in reasons.items()]
    capsys.readouterr()
    with pytest.raises(ServiceUnavailable, match="no Java"):
        Teller(Progress(), lambda: None).hear(result)
    said = [without_place(line).removeprefix("FAILED").strip() for line in capsys.readouterr().out.splitlines()]
    assert sorted(said) == [f"{day}: {why} (run {result.run_id})" for day, why in reasons.items()]


def test_the_full_reason_of_an_outage_is_reported_and_nothing_else():
    what = f"{'a long reason, ' * 40}expected Java. Install it."

    def give(task) -> Given:
        raise SparkUnavailable(what)

    raw = raw_feed()
    world = three_days(1, 2, 3, world=harness(raw, sums_of(raw), give=give))
    assert outage(materialize(world, DAY, THIRD_DAY)) == what


def test_partitions_at_a_time_are_built_at_the_same_time(setting):
    """Neither of the first two ends before the other one has begun."""
    setting(partitions_at_a_time=2)
    both = Barrier(2, timeout=SECONDS)

    def give(task) -> Given:
        if task.output.key != THIRD_DAY:
            both.wait()
        return given(task)

    raw = raw_feed()
    assert {each.error for each in ran(three_days(1, 2, 3, world=harness(raw, sums_of(raw), give=give)))} == {None}


def in_own_threads(tags=NO_TAGS, **more: Input) -> set[bool]:
    """Return for each partition of a range whether another thread than the run's built it."""
    threads = list[threading.Thread]()

    def give(task) -> Given:
        threads.append(threading.current_thread())
        return given(task)

    raw = raw_feed()
    made = feed_asset("t/made/v1.0", inputs={"raw": raw, **more}, partitions_def=DAYS)(FUNCTIONS[len(more)])
    world = three_days(1, 2, 3, world=harness(raw, made, give=give))
    request = dg.RunRequest(asset_selection=[*made.keys], tags={START: DAY, END: THIRD_DAY, **tags})
    assert world.runner.execute(request).success
    assert len(threads) == 3
    return {thread is not threading.current_thread() for thread in threads}


FUNCTIONS = [lambda raw: raw, lambda raw, before: raw]


def test_runs_with_a_profile_or_a_self_reading_dataset_build_one_by_one(setting):
    setting(partitions_at_a_time=2, spark_profiles='{"big": {}}')
    assert in_own_threads() == {True}
    assert in_own_threads({SPARK_PROFILE: "big"}) == {False}
    assert in_own_threads(before=Input.previous_bucket()) == {False}


def test_a_partition_is_reported_at_its_own_end_and_not_at_the_runs():
    heard = []

    def during() -> None:
        heard.append([day for day in THREE_DAYS if world.reported("t/sums", day) and world.checks("t/sums", day)])

    world = short(during=during)
    materialize(three_days(1, 2, 3, world=world), DAY, THIRD_DAY)
    assert heard == [[], [DAY], [DAY, NEXT_DAY]]


def test_after_an_interrupt_no_partition_begins_and_running_ones_end():
    interrupted, waiting, ended = Event(), deque("abc"), list[str]()

    def build(key: str) -> str:
        if key != "a":
            assert interrupted.wait(SECONDS)
            ended.append(key)
        return key

    ends = ends_of_each(build, waiting, 2, interrupted)
    assert next(ends) == ("a", "a")
    ends.close()
    assert (ended, [*waiting]) == (["b"], ["c"])


def test_a_partition_published_before_an_interrupt_reaches_it_is_reported():
    interrupted = Event()

    def build(key: str) -> str:
        if key != "a":
            assert interrupted.wait(SECONDS)
        if key == "c":
            raise KeyboardInterrupt  # as at its next step
        return key

    ends = ends_of_each(build, deque("abcd"), 3, interrupted)
    assert next(ends) == ("a", "a")
    assert ends.throw(KeyboardInterrupt()) == ("b", "b")
    with pytest.raises(KeyboardInterrupt):
        next(ends)


def test_an_interrupt_during_a_report_is_delayed_until_its_end():
    told = []

    def tell(interrupt: bool) -> None:
        with to_its_end():
            if interrupt:
                signal.raise_signal(signal.SIGINT)
            told.append(interrupt)

    with pytest.raises(KeyboardInterrupt):
        tell(interrupt=True)
    tell(interrupt=False)
    assert told == [True, False]


def in_another_process(end, at_a_time: int) -> None:
    """Run the range with Dagster's own instance; the second day calls `end` once `at_a_time` are being built."""
    both = Barrier(at_a_time, timeout=SECONDS)

    def give(task) -> Given:
        if task.output.key == NEXT_DAY or at_a_time == 2:
            both.wait()
        if task.output.key == NEXT_DAY:
            end()
        if at_a_time == 2:
            wait_until(main_thread_waits, "the interrupt", SECONDS)
        return given(task)

    raw = raw_feed()
    with dg.DagsterInstance.get() as instance:
        materialize(Harness(harness(raw, sums_of(raw)).definitions, instance, maker=PlainMaker(give)), DAY, THIRD_DAY)


def main_thread_waits() -> bool:
    """Return True if the main thread waits for the others to end."""
    frames = sys._current_frames()[threading.main_thread().ident]
    return any(frame.name in ("shutdown", "as_completed") for frame in traceback.extract_stack(frames))


def killed(at_a_time: int) -> None:
    in_another_process(lambda: os.kill(os.getpid(), signal.SIGKILL), at_a_time)


def interrupted(at_a_time: int) -> None:
    in_another_process(lambda: os.kill(os.getpid(), signal.SIGINT), at_a_time)


@pytest.mark.parametrize(
    ("end", "code", "state"), [(killed, -signal.SIGKILL, "running"), (interrupted, 0, "abandoned")]
)
def test_after_a_kill_or_cancel_only_the_missing_partitions_are_built(forker, end, code, state, at_a_time):
    world = three_days(1, 2, 3)
    assert forker.run(end, at_a_time) == code
    first = {1: "published", 2: state}[at_a_time]
    assert states() == {DAY: first, NEXT_DAY: state}
    before = world.newest(SUMS, DAY)
    assert (before is None) == (at_a_time == 2)
    with dg.DagsterInstance.get() as instance:
        after = opened.enter_context(Harness(world.definitions, instance, maker=PlainMaker(given)))
        heard = [day for day in THREE_DAYS if after.reported("t/sums", day)]
        assert heard == [DAY][: 2 - at_a_time]
        missing = THREE_DAYS[2 - at_a_time :]
        assert {each.partition for each in after.run_until_idle()} == {*missing}
    assert states() == dict.fromkeys(THREE_DAYS, "published")
    assert world.newest(SUMS, DAY) == before or at_a_time == 2
