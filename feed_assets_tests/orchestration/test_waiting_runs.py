"""Two Dagster runs for the same partitions share the work, wait for each other, and both succeed."""

from threading import Event, Thread

import dagster as dg
import pytest

from feed_assets import Input, feed_asset
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.run_blocks import PARTITION
from feed_assets.orchestration.decide.run_blocks import RANGE_END as END
from feed_assets.orchestration.decide.run_blocks import RANGE_START as START
from feed_assets.orchestration.execute.asset_function import BACKFILL
from feed_assets.orchestration.run_outcomes import trace_of
from feed_assets.runs.services import this_process, utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SUMS,
    THIRD_DAY,
    chain,
    given,
    harness,
    raw_feed,
    rows,
    sums_of,
)

THREE_DAYS = (DAY, NEXT_DAY, THIRD_DAY)
PATIENCE = 60
"""Highest number of seconds that one thread of a test waits for another one."""


def dropped(world, *days: str):
    for number, day in enumerate(days or THREE_DAYS, 1):
        world.drop(RAW, day, rows(number))
    return world


def run(world, *days: str, assets=BOTH, **tags: str) -> dg.ExecuteInProcessResult:
    """Run a day or a range."""
    named = {PARTITION: days[0]} if len(days) == 1 else {START: days[0], END: days[-1]}
    return dg.materialize(
        [*world.definitions.assets],
        instance=world.instance,
        selection=[dg.AssetKey.from_user_string(asset) for asset in assets],
        partition_key=days[0] if len(days) == 1 else None,
        tags={**({} if len(days) == 1 else named), **tags},
        raise_on_error=False,
    )


def builds_of(result: dg.ExecuteInProcessResult) -> list[tuple[str, str]]:
    """Return partition and final state of a run's builds, in order."""
    with open_ledger(settings().ledger).read() as connection:
        return [(each.output.key, each.state) for each in runs.of_dagster(connection, result.run_id)]


def logged(world, result: dg.ExecuteInProcessResult) -> str:
    return "\n".join(each.user_message for each in world.instance.all_logs(result.run_id))


class Hold:
    """A build that goes on once the test lets it."""

    def __init__(self, day: str) -> None:
        self.day, self.has_begun, self.goes_on = day, Event(), Event()

    def give(self, task):
        if task.output.key == self.day and not self.has_begun.is_set():
            self.has_begun.set()
            assert self.goes_on.wait(PATIENCE)
        return given(task)


def world_with_held_build(day: str, **options):
    """Return a world and a build of its day, held in the first run."""
    hold, raw = Hold(day), raw_feed()
    return harness(raw, sums_of(raw), give=hold.give, **options), hold


def beside(world, *days: str) -> tuple[Thread, list[dg.ExecuteInProcessResult]]:
    """Start a run in a thread, as if in another process: on an instance of its own."""
    results: list[dg.ExecuteInProcessResult] = []
    thread = Thread(target=lambda: results.append(run(world, *days)))
    thread.start()
    return thread, results


def test_a_second_joint_run_builds_free_partitions_first_and_waits_last():
    first, hold = world_with_held_build(DAY)
    dropped(first)
    thread, results = beside(first, *THREE_DAYS)
    assert hold.has_begun.wait(PATIENCE)
    second = dropped_nothing(let_go=(hold, THIRD_DAY))
    found = run(second, *THREE_DAYS)
    thread.join(PATIENCE)
    (other,) = results
    assert (found.success, other.success) == (True, True)
    assert builds_of(found) == [(NEXT_DAY, "published"), (THIRD_DAY, "published"), (DAY, "unchanged")]
    assert builds_of(other) == [(DAY, "published"), (NEXT_DAY, "unchanged"), (THIRD_DAY, "unchanged")]
    assert f"{DAY} comes last: {SUMS} {DAY} is being built by run {other.run_id}" in logged(second, found)


def dropped_nothing(let_go: tuple[Hold, str]):
    """Build the same world on another instance, whose build of a day releases another world's."""
    raw, (hold, day) = raw_feed(), let_go

    def give(task):
        if task.output.key == day:
            hold.goes_on.set()
        return given(task)

    return harness(raw, sums_of(raw), give=give)


def test_a_run_of_one_partition_waits_and_names_the_other_run(tmp_path):
    first, hold = world_with_held_build(DAY)
    dropped(first, DAY)
    thread, results = beside(first, DAY)
    assert hold.has_begun.wait(PATIENCE)
    raw = raw_feed()
    second = harness(raw, sums_of(raw), instance=on_disk(tmp_path))
    waiting, ends = beside(second, DAY)
    wait_until(lambda: "this run waits for it" in all_logs(second), "the second run to say that it waits")
    hold.goes_on.set()
    for each in (thread, waiting):
        each.join(PATIENCE)
    assert [each.success for each in (*results, *ends)] == [True, True]
    assert builds_of(ends[0]) == [(DAY, "unchanged")]
    assert f"{SUMS} {DAY} is being built by run {results[0].run_id}" in logged(second, ends[0])


def on_disk(folder) -> dg.DagsterInstance:
    """Return an instance whose log one thread can read while another writes; those in memory cannot.

    It keeps no output: capturing is per process, and two runs in one process would wait for each other's.
    """
    keeps_nothing = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
    return dg.DagsterInstance.local_temp(str(folder), overrides={"compute_logs": keeps_nothing})


def all_logs(world) -> str:
    found = world.instance.get_runs()
    return "\n".join(each.user_message for one in found for each in world.instance.all_logs(one.run_id))


def test_a_self_reading_dataset_keeps_its_order_even_if_it_waits(tmp_path):
    hold, raw = Hold(DAY), raw_feed()

    def sums(raw, before):
        """Add to the sums of the day before."""
        return raw

    def world_of(give, **options):
        made = feed_asset(SUMS, inputs={"raw": raw, "before": Input.previous_bucket()}, partitions_def=DAYS)(sums)
        return harness(raw, made, give=give, **options)

    first, second = world_of(hold.give), world_of(given, instance=on_disk(tmp_path))
    dropped(first)
    thread, results = beside(first, *THREE_DAYS)
    assert hold.has_begun.wait(PATIENCE)
    waiting, ends = beside(second, *THREE_DAYS)
    wait_until(lambda: "this run waits for it" in all_logs(second), "the second run to say that it waits")
    assert second.newest(SUMS, NEXT_DAY) is None
    hold.goes_on.set()
    for each in (thread, waiting):
        each.join(PATIENCE)
    assert [each.success for each in (*results, *ends)] == [True, True]
    assert [key for key, _ in builds_of(ends[0])] == [*THREE_DAYS]


def another_run(key: str, process: str, dagster_run: str | None = None) -> None:
    """Record a build of a day by another process."""
    output = Partition(Feed.parse(SUMS), key)
    build = runs.Run("another", output, runs.RUNNING, process, utc_now(), dagster_run=dagster_run)
    runs.start(open_ledger(settings().ledger), build)


@pytest.mark.parametrize("days", [(DAY,), THREE_DAYS])
def test_a_run_of_another_host_that_dagster_has_ended_is_not_waited_for(days):
    raw = raw_feed()
    world = dropped(harness(raw, sums_of(raw)))
    job = world.definitions.resolve_implicit_global_asset_job_def()
    canceled = world.instance.create_run_for_job(job, status=dg.DagsterRunStatus.CANCELED)
    another_run(DAY, "another-host:1:0.00", canceled.run_id)
    found = run(world, *days)
    assert (found.success, dict(builds_of(found))[DAY]) == (True, "published")


@pytest.mark.parametrize("days", [(DAY,), THREE_DAYS])
def test_a_wait_that_times_out_fails_its_partition_and_no_neighbour(setting, days):
    setting(run_wait_seconds=0)
    raw = raw_feed()
    world = dropped(harness(raw, sums_of(raw)))
    another_run(DAY, this_process())
    found = run(world, *days)
    assert not found.success
    assert builds_of(found) == [(day, "published") for day in days[1:]]
    assert f"AlreadyRunning: {SUMS} {DAY} is being built by run another in process" in trace_of(found)


def partitions_reported(world, result: dg.ExecuteInProcessResult, asset: str = "t/sums") -> list[str]:
    """Return the partitions for which a run reported a materialization."""
    return sorted(each.partition for each in world.reported(asset) if each.run == result.run_id)


OF_BACKFILL = {BACKFILL: "abcdefgh"}


@pytest.mark.parametrize("days", [(DAY,), THREE_DAYS])
def test_only_backfill_runs_report_unchanged_partitions(days):
    """Dagster's backfill fails for each partition for which none of its own runs reports a materialization."""
    world = dropped(chain())
    world.run_until_idle()
    before = {asset: world.reported(asset, day) for asset in (*BOTH, "t/picked") for day in days}
    assert partitions_reported(world, run(world, *days)) == []
    found = run(world, *days, assets=(*BOTH, "t/picked"), **OF_BACKFILL)
    assert found.success
    assert {state for _, state in builds_of(found)} == {"unchanged"}
    for asset in (*BOTH, "t/picked"):
        assert partitions_reported(world, found, asset) == sorted(days), asset
        newest = world.reported(asset, days[-1])[0]
        assert (newest.run, newest.version, newest.update_id) == (
            found.run_id,
            before[asset][0].version,
            before[asset][0].update_id,
        )


def test_a_failed_backfill_run_reports_each_unchanged_partition_once():
    world = dropped(chain())
    run(world, DAY, NEXT_DAY)
    world.drop(RAW, THIRD_DAY, rows(101))
    found = run(world, *THREE_DAYS, **OF_BACKFILL)
    assert not found.success
    assert partitions_reported(world, found) == [DAY, NEXT_DAY]


def test_a_backfill_without_changes_leaves_nothing_to_rebuild():
    world = dropped(chain())
    world.run_until_idle()
    run(world, *THREE_DAYS, assets=(*BOTH, "t/picked"), **OF_BACKFILL)
    assert world.run_until_idle() == []
    assert [each.run for each in world.reported("t/picked", DAY)][1:] != []
