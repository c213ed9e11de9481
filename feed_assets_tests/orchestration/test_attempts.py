"""Runs that fail, are killed or never begin, and the requests of the next tick."""

import socket
import sys
from datetime import timedelta
from random import Random

import dagster as dg
import pytest

from feed_assets.core.attempts import pause_after
from feed_assets.core.errors import BlackboardUnavailable, SparkUnavailable
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.ledger import due, runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.runner import Runner
from feed_assets.orchestration.ticks import steps
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker, rows_of
from feed_assets_tests.orchestration.failing_maker import Outage
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    NEXT_DAY,
    RAW,
    SUMS,
    given,
    harness,
    later,
    outcomes,
    raw_feed,
    requested,
    rows,
    short,
    sums_of,
    without_place,
)

pytestmark = pytest.mark.usefixtures("home")


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.moment = utc_now()

    def __call__(self):
        return self.moment


def test_a_request_without_a_run_is_repeated_with_growing_pauses_and_new_keys():
    clock = Clock()
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker(), now=clock)
    world.drop(RAW, DAY, rows(1))
    began, keys, moments = clock.moment, [], []
    for clock.moment in ticks(began, 1500):
        for request in world.ask().requests:
            keys.append(request.run_key)
            moments.append((clock.moment - began).total_seconds())
    assert moments == [0, 5, 15, 35, 75, 155, 315, 615, 915, 1215]
    assert len({*keys}) == len(keys)
    world.drop(RAW, DAY, rows(1, 2))
    assert [each.partition_key for each in world.ask().requests] == [DAY]
    clock.moment += timedelta(seconds=5)
    assert [each.partition_key for each in world.ask().requests] == [DAY]


def ticks(began, seconds: int):
    """Yield a tick every 5 seconds, as the daemon does; every 20 seconds once pauses exceed two minutes."""
    for after in [*range(0, 155, 5), *range(155, seconds, 20)]:
        yield began + timedelta(seconds=after)


class Killed(BaseException):
    """A simulated kill: nothing in the process goes on."""


def test_kills_before_a_partitions_turn_count_no_attempt_of_it(setting):
    setting(partitions_per_run=1)
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker())
    days = [f"2020-01-0{day}" for day in range(1, 6)]
    for day in days:
        world.drop(RAW, day, rows(1))

    def kill(_run):
        raise Killed

    for _ in range(3):
        with pytest.raises(Killed):
            Runner(world.definitions, world.instance, kill).run_until_idle()
    assert outcomes(world.run_until_idle()) == [("sums", day, True) for day in days[3:]]
    with open_ledger(settings().ledger).read() as connection:
        assert due.listed(connection, Feed.parse(SUMS)) == ()


def test_a_failed_run_is_retried_up_to_max_attempts_and_then_waits_for_a_person(setting):
    setting(max_attempts=2)
    world = short()
    world.drop(RAW, DAY, rows(13))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    assert outcomes(world.run_until_idle()) == []
    assert [(row.state, row.reason[:22]) for row in listed()] == [
        ("waits for another attempt", "attempt 1 of 2 failed,")
    ]
    later(world, pause_after(1))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)]
    runs = world.runs
    assert [row.state for row in listed()] == ["waits for a person"]
    assert [without_place(run.error) for run in runs] == ["RuntimeError: 13 is unlucky"] * 2
    assert len({run.tags["dagster/run_key"] for run in runs}) == 2


def test_a_function_that_exits_fails_its_run_and_no_other():
    def give(task):
        sys.exit(1) if task.output.key == DAY else None
        return given(task)

    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker(give))
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(1))
    assert sorted(outcomes(world.run_until_idle())) == [("sums", DAY, False), ("sums", NEXT_DAY, True)]
    assert [row.state for row in listed()] == ["waits for another attempt"]
    assert [without_place(run.error) for run in world.runs if not run.succeeded] == ["SystemExit: 1"]


def test_a_partition_that_waits_for_a_person_is_built_on_a_new_input(setting):
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


def test_a_partition_in_progress_is_not_requested_again(setting):
    setting(partitions_per_run=1)
    asked = []
    world = short(during=lambda: asked.append(requested(world, "1")))
    world.drop(RAW, DAY, rows(1))
    world.drop(RAW, NEXT_DAY, rows(1))
    world.run_until_idle()
    assert asked == [[NEXT_DAY], []]


def test_a_partition_being_built_during_the_decision_is_not_requested(monkeypatch):
    world = short()
    world.drop(RAW, DAY, rows(1))
    job, decide = world.definitions.resolve_implicit_global_asset_job_def(), steps.decide_due
    run = world.instance.create_run_for_job(
        job,
        asset_selection={dg.AssetKey(["t", "sums"])},
        tags={"dagster/partition": DAY},
        status=dg.DagsterRunStatus.STARTED,
    )

    def decided(*given, **named):
        found = decide(*given, **named)
        world.instance.report_run_canceled(run)
        return found

    monkeypatch.setattr(steps, "decide_due", decided)
    assert [requested(world), requested(world)] == [[], [DAY]]


def test_runs_without_input_do_not_count_as_attempts(setting):
    setting(max_attempts=1)
    world = short()
    job = world.definitions.resolve_implicit_global_asset_job_def()
    too_early = job.execute_in_process(instance=world.instance, partition_key=DAY, raise_on_error=False)
    assert not too_early.success
    world.drop(RAW, DAY, rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_the_run_of_a_killed_worker_is_failed_and_its_partition_requested():
    world = short()
    world.drop(RAW, DAY, rows(1))
    job = world.definitions.resolve_implicit_global_asset_job_def()
    sums = Partition(Feed.parse(SUMS), DAY)
    left = world.instance.create_run_for_job(
        job,
        tags={"dagster/partition": DAY},
        status=dg.DagsterRunStatus.STARTED,
        asset_selection=frozenset(map(dg.AssetKey.from_user_string, BOTH)),
    )
    gone = f"{socket.gethostname()}:{2**22 + 1}:0.00"  # a process id above Linux's maximum
    run = runs.Run("1", sums, runs.RUNNING, gone, utc_now(), dagster_run=left.run_id)
    runs.start(open_ledger(settings().ledger), run)
    assert requested(world) == [DAY]
    assert world.instance.get_run_by_id(left.run_id).status is dg.DagsterRunStatus.FAILURE


def test_the_first_run_sensor_does_not_request_a_built_partition():
    world = short()
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(1, 2))
    assert world.ask("9").targets == []


def requested_by_conditions(world) -> list[str]:
    """Return the keys of `sums` that the real evaluator requests, which are also those of its rejects."""
    found = dg.evaluate_automation_conditions(world.definitions, world.instance, evaluation_time=world.now())
    asked = [sorted(found.get_requested_partitions(dg.AssetKey.from_user_string(asset)), key=str) for asset in BOTH]
    assert asked[0] == asked[1]
    return asked[0]


def late_world(clock) -> Harness:
    """Build a day, and drop late data for it."""
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker(given), now=clock)
    world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.drop(RAW, DAY, rows(1, 2))
    return world


def test_a_late_rerun_that_never_begins_is_requested_with_growing_pauses():
    clock = Clock()
    world = late_world(clock)
    began, moments = clock.moment, []
    for clock.moment in ticks(began, 650):
        world.ask()
        if requested_by_conditions(world):
            moments.append((clock.moment - began).total_seconds())
        assert requested_by_conditions(world) == []  # the runs of the first evaluation were never created
    assert moments == [0, 5, 15, 35, 75, 155, 315, 615]
    world.drop(RAW, DAY, rows(1, 2, 3))
    world.ask()
    assert requested_by_conditions(world) == [DAY]


def test_run_until_idle_starts_at_once_a_late_rerun_requested_in_vain():
    world = late_world(Clock())
    for _ in range(3):
        world.ask()
        requested_by_conditions(world)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert requested_by_conditions(world) == []


def ticking(world, clock, seconds: int) -> list[float]:
    """Return when runs were created, in seconds."""
    began, moments = clock.moment, []
    for clock.moment in ticks(began, seconds):
        moments += [(clock.moment - began).total_seconds() for _ in world.tick()]
    return moments


@pytest.mark.parametrize("is_late", [False, True])
def test_runs_stopped_by_an_outage_count_no_attempt_and_pause_ever_longer(is_late):
    clock, outage = Clock(), Outage(SparkUnavailable("no Java"))
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker(outage), now=clock)
    if is_late:
        outage.error = None
        world.drop(RAW, DAY, rows(2))
        world.run_until_idle()
        outage.error = SparkUnavailable("no Java")
    world.drop(RAW, DAY, rows(1))
    assert ticking(world, clock, 650) == [0, 5, 15, 35, 75, 155, 315, 615]
    (row,) = listed()
    assert (row.state, row.requested) == ("rebuild" if is_late else "build", 8)
    assert (row.look_at - clock.moment).total_seconds() == 280
    outage.error = None
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert listed() == ()


@pytest.mark.parametrize("is_late", [False, True])
def test_an_outage_limits_ticks_to_one_run_until_the_service_is_back(is_late):
    clock, outage = Clock(), Outage(SparkUnavailable("no Java"))
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker(outage), now=clock)
    days = [f"2020-01-0{day}" for day in range(1, 5)]
    if is_late:
        outage.error = None
        for day in days:
            world.drop(RAW, day, rows(2))
        world.run_until_idle()
        outage.error = SparkUnavailable("no Java")
    world.drop(RAW, days[0], rows(1))
    world.tick()
    for day in days[1:]:
        world.drop(RAW, day, rows(1))
    clock.moment += timedelta(hours=1)
    assert [len(world.tick()) for _ in range(2)] == [1, 1]
    outage.error = None
    clock.moment += timedelta(hours=1)
    assert len(world.tick()) == 1  # this run finds the service back
    assert {run.partition for run in world.run_until_idle() if run.succeeded} <= {*days}
    assert listed() == ()


def listed() -> tuple[due.DueOutput, ...]:
    with open_ledger(settings().ledger).read() as connection:
        return due.listed(connection, Feed.parse(SUMS))


def test_run_until_idle_gives_up_on_an_outage_and_the_next_call_retries():
    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker(Outage(BlackboardUnavailable("the store failed"))), now=Clock())
    world.drop(RAW, DAY, rows(1))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)] * 2
    assert outcomes(world.run_until_idle()) == [("sums", DAY, False)] * 2
    (row,) = listed()
    assert row.state == "build"


def test_outage_runs_longer_than_the_longest_pause_end_and_are_named():
    clock = Clock()

    def give(_task):
        clock.moment += timedelta(minutes=6)
        raise BlackboardUnavailable("the store failed")

    raw = raw_feed()
    world = harness(raw, sums_of(raw), maker=PlainMaker(give), now=clock)
    world.drop(RAW, DAY, rows(1))
    runner = world.runner
    runner.run_until_idle(max_ticks=30)
    assert outcomes(world.runs) == [("sums", DAY, False)] * settings().max_attempts
    sums = Partition(Feed.parse(SUMS), DAY)
    assert runner.in_vain() == {sums: "BlackboardUnavailable: the store failed"}


SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]


@pytest.mark.parametrize("seed", SEEDS)
def test_sixty_updates_with_frequent_kills_are_all_built(seed):
    chance, days = Random(seed), dg.DailyPartitionsDefinition("2020-01-01", end_date="2020-02-01")  # noqa: S311
    raw, sums, ended = raw_feed(partitions_def=days), dict[str, int](), []
    world = harness(raw, sums_of(raw, partitions_def=days), maker=PlainMaker(given), now=Clock())
    for number in range(60):
        day = chance.choice(days.get_partition_keys())
        sums[day] = sums.get(day, 0) + 1
        world.drop(RAW, day, rows(*[1] * sums[day]))
        if number % 5 == 4:
            ended += [until_killed(world) for _ in range(3)]
    assert ended.count("killed") > 30
    assert all(run.succeeded for run in world.run_until_idle())
    assert (listed(), world.runner.in_vain()) == ((), {})
    assert {day: built_of(world, day) for day in sums} == sums


def built_of(world: Harness, day: str) -> int:
    """Return the sum in a day's newest update."""
    (row,) = rows_of(world.board, read.latest(world.board, Partition(Feed.parse(SUMS), day)).update)
    return row["n"]


def until_killed(world: Harness) -> str:
    """Run what is due, and be killed after the first run: the other requests never begin."""

    def kill(_run):
        raise Killed

    try:
        Runner(world.definitions, world.instance, kill, world.now).run_until_idle()
    except Killed:
        return "killed"
    return "idle"
