"""A run of many partitions: each is built, told of, refused and failed for itself."""

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
"""How long a thread of a test waits for another one at most."""


def ran(world: Harness, first: str = DAY, last: str = THIRD_DAY) -> list[Ran]:
    """What `feed-assets run` makes of the request of a range."""
    assets, before = [dg.AssetKey.from_user_string(asset) for asset in BOTH], len(world.runs)
    world.runner.execute(dg.RunRequest(asset_selection=assets, tags={START: first, END: last}))
    return world.runs[before:]


def failure(result: dg.ExecuteInProcessResult) -> str:
    (event,) = [event for event in result.all_events if event.is_step_failure]
    error = event.step_failure_data.error
    return (error.cause or error).message


def states() -> dict[str, str]:
    """The state of the last run of the sums of each day that has one."""
    with open_ledger(settings().ledger).read() as connection:
        last = {day: runs.last(connection, Partition(Feed.parse(SUMS), day)) for day in THREE_DAYS}
    return {day: run.state for day, run in last.items() if run}


@pytest.fixture(params=[1, 2])
def at_a_time(request, setting) -> int:
    setting(partitions_at_a_time=request.param)
    return request.param


@pytest.mark.usefixtures("at_a_time")
def test_each_partition_of_a_range_is_built_and_told_of_for_itself():
    world = three_days(1, 2, 3)
    result = materialize(world, DAY, THIRD_DAY)
    assert result.success
    for day in THREE_DAYS:
        for asset in BOTH:
            (reported,) = world.reported(asset, day)
            assert (reported.update_id, reported.run) == (world.newest(f"{asset}/v1.0", day), result.run_id)
        assert world.checks("t/sums", day) == {"not_empty": True, "within_n": True}
    assert len({world.reported("t/sums", day)[0].version for day in THREE_DAYS}) == 3


def test_with_spark_several_share_one_session(spark, setting):
    setting(partitions_at_a_time=2)
    raw = raw_feed()
    world = three_days(1, 101, 3, world=harness(raw, sums_of(raw), maker=None))
    assert sorted(outcomes(ran(world))) == [("sums", DAY, True), ("sums", NEXT_DAY, False), ("sums", THIRD_DAY, True)]
    assert [world.reported("t/sums", day)[0].metadata["preview"][-9:] for day in (DAY, THIRD_DAY)] == [
        "| a | 1 |",
        "| a | 3 |",
    ]


def test_with_spark_several_at_a_time_take_no_neighbour_along(spark, setting):
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


def test_of_several_that_need_spark_first_one_starts_it(home):
    env = {**os.environ, "FEED_ASSETS_PARTITIONS_AT_A_TIME": "2", "FEED_ASSETS_SPARK_MASTER": "local[1]"}
    del env["DAGSTER_HOME"]  # A Harness would take it for the developer's.
    command = [sys.executable, "-W", "ignore", "-c", SEVERAL_START_SPARK, str(home)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=env)
    assert done.stdout.splitlines()[-1:] == ["True 1"], done.stderr


def test_what_fails_in_a_range_of_others_is_told_in_a_line():
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


def test_a_range_of_two_dimensions_is_each_combination_of_them():
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


def test_dagster_hears_the_same_of_a_partition_of_many_as_of_a_single_one():
    world = three_days(1, 2, 3)
    materialize(world, DAY, THIRD_DAY)
    world.drop(RAW, DAY, rows(1, 0))  # the same sum
    keys = [dg.AssetKey.from_user_string(asset) for asset in BOTH]
    dg.materialize([*world.definitions.assets], partition_key=DAY, instance=world.instance, selection=keys)
    single, of_many = world.reported("t/sums", DAY)
    assert single.version == of_many.version
    assert [*single.metadata] == [*of_many.metadata, "before and after"]  # As it is the one that replaces the other.
    assert single.metadata["preview"] == of_many.metadata["preview"] == "| k | n |\n| --- | --- |\n| a | 1 |"


def test_a_passed_check_is_of_its_partition_and_of_its_newest_materialization():
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
def test_one_that_is_refused_and_one_that_fails_take_no_neighbour_along():
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


def test_how_a_run_ended_is_said_of_each_partition():
    found = ran(three_days(101, UNLUCKY, 3))
    assert outcomes(found) == [("sums", DAY, False), ("sums", NEXT_DAY, False), ("sums", THIRD_DAY, True)]
    reasons = ["within_n: n must be in [0, 100]; not in it: 1 of 1 rows", "RuntimeError: 13 is unlucky", None]
    assert [each.error and without_place(each.error) for each in found] == reasons
    assert {each.assets for each in found} == {BOTH}
    assert len({each.id for each in found}) == 1


def test_a_partition_that_never_began_is_said_to_be_none(tmp_path):
    """Its input has no such partition: the ledger has no run of it."""
    first = raw_feed(partitions_def=dg.DailyPartitionsDefinition(NEXT_DAY, end_date="2020-01-06"))
    world = harness(first, sums_of(first))
    for day in (NEXT_DAY, THIRD_DAY):
        world.drop(RAW, day, rows(1))
    found = {each.partition: each for each in ran(world)}
    assert {day: each.succeeded for day, each in found.items()} == {DAY: False, NEXT_DAY: True, THIRD_DAY: True}
    assert (
        found[DAY].error
        == f"NoValidUpdate: {SUMS} {DAY} needs {RAW} {DAY}: there is no such partition yet. Wait for it."
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
def test_what_is_downstream_in_the_same_run_goes_on_if_all_was_built(number):
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


def test_an_outage_ends_a_run_and_what_was_not_begun_is_named():
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


def test_what_was_refused_or_failed_before_an_outage_is_named_with_its_reason(at_a_time, capsys):
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


def test_all_that_an_outage_says_is_told_and_nothing_of_its_neighbours():
    what = f"{'a long reason, ' * 40}expected Java. Install it."

    def give(task) -> Given:
        raise SparkUnavailable(what)

    raw = raw_feed()
    world = three_days(1, 2, 3, world=harness(raw, sums_of(raw), give=give))
    assert outage(materialize(world, DAY, THIRD_DAY)) == what


def test_so_many_are_built_at_a_time(setting):
    """None of the first two ends before the other one has begun."""
    setting(partitions_at_a_time=2)
    both = Barrier(2, timeout=SECONDS)

    def give(task) -> Given:
        if task.output.key != THIRD_DAY:
            both.wait()
        return given(task)

    raw = raw_feed()
    assert {each.error for each in ran(three_days(1, 2, 3, world=harness(raw, sums_of(raw), give=give)))} == {None}


def in_own_threads(tags=NO_TAGS, **more: Input) -> set[bool]:
    """Whether partitions of a range were built beside the run's own thread, as they are if several are at a time."""
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


def test_runs_with_a_profile_and_of_what_reads_itself_build_one_by_one(setting):
    setting(partitions_at_a_time=2, spark_profiles='{"big": {}}')
    assert in_own_threads() == {True}
    assert in_own_threads({SPARK_PROFILE: "big"}) == {False}
    assert in_own_threads(before=Input.previous_bucket()) == {False}


def test_a_partition_is_told_of_when_it_ends_and_not_when_the_run_does():
    heard = []

    def during() -> None:
        heard.append([day for day in THREE_DAYS if world.reported("t/sums", day) and world.checks("t/sums", day)])

    world = short(during=during)
    materialize(three_days(1, 2, 3, world=world), DAY, THIRD_DAY)
    assert heard == [[], [DAY], [DAY, NEXT_DAY]]


def test_after_an_interrupt_nothing_more_is_begun_and_the_others_hear_of_it():
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


def test_what_is_published_before_an_interrupt_reaches_it_is_told_of():
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


def test_an_interrupt_while_a_partition_is_told_of_comes_after_it():
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
    """Run the range with Dagster's own instance; the second day does `end`, when as many are being built as may be."""
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
    """Whether the main thread waits for the ends of the others."""
    frames = sys._current_frames()[threading.main_thread().ident]
    return any(frame.name in ("shutdown", "as_completed") for frame in traceback.extract_stack(frames))


def killed(at_a_time: int) -> None:
    in_another_process(lambda: os.kill(os.getpid(), signal.SIGKILL), at_a_time)


def interrupted(at_a_time: int) -> None:
    in_another_process(lambda: os.kill(os.getpid(), signal.SIGINT), at_a_time)


@pytest.mark.parametrize(
    ("end", "code", "state"), [(killed, -signal.SIGKILL, "running"), (interrupted, 0, "abandoned")]
)
def test_after_a_kill_or_a_cancel_what_is_missing_is_built_and_nothing_else(forker, end, code, state, at_a_time):
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
