"""Runs of a pool: Dagster's daemon starts at most its limit, and the waiting ones are not requested again."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.test_utils import MockedRunLauncher
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.cli.loaded_location import prepare
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import alerts, runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.run_blocks import PARTITION
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.support.command_output import printed
from feed_assets_tests.support.sum_projects import (
    BOTH,
    DAY,
    DAYS,
    NEXT_DAY,
    RAW,
    SCHEMA,
    SUMS,
    THIRD_DAY,
    given,
    later,
    rows,
)

ALL = [DAY, NEXT_DAY, THIRD_DAY]
WARM = """  module: feed_assets.orchestration.launcher.warm
  class: WarmRunLauncher"""
MOCKED = """  module: dagster._core.test_utils
  class: MockedRunLauncher"""

raw = foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA)


@feed_asset(SUMS, partitions_def=DAYS, inputs={"raw": raw}, pool="ads")
def sums(raw):
    """Sum by day."""


defs = with_automation(dg.Definitions(assets=[raw, sums]))


class Queue:
    """The queue of an instance with our dagster.yaml. A test decides when a launched run begins."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.daemon = instance, QueuedRunCoordinatorDaemon(1)
        self.most = 0
        self.assets = {dg.AssetKey(name.split("/")) for name in BOTH}
        self.job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=self.assets)

    @property
    def launched(self) -> list[dg.DagsterRun]:
        launcher: Any = self.instance.run_launcher
        assert isinstance(launcher, MockedRunLauncher)
        return launcher.queue()

    def put(self, partition: str) -> None:
        """Submit a run as a sensor's daemon does for a request."""
        origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "here").get_job_origin(self.job.name)
        more: Any = {"asset_selection": self.assets, "remote_job_origin": origin}
        run = self.instance.create_run_for_job(self.job, tags={PARTITION: partition}, **more)
        self.instance.run_coordinator.submit_run(SubmitRunContext(run, workspace=None))  # pyright: ignore[reportArgumentType]

    def turn(self) -> list[str]:
        """Run one iteration of the daemon, and return the partitions whose runs it launched."""
        before, workspace = (
            len(self.launched),
            SimpleNamespace(instance=self.instance, create_request_context=lambda: None),
        )
        for _ in self.daemon.run_iteration(workspace):  # pyright: ignore[reportArgumentType]
            pass
        self.most = max(self.most, len(self.of(dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)))
        return sorted(run.tags[PARTITION] for run in self.launched[before:])

    def of(self, *statuses: dg.DagsterRunStatus) -> list[str]:
        found = self.instance.get_runs(dg.RunsFilter(statuses=[*statuses]))
        return sorted(run.tags[PARTITION] for run in found)

    def build(self, number: int) -> bool:
        """Run the launched run of this number to its end."""
        run = self.instance.get_run_by_id(self.launched[number].run_id)
        assert run
        execute_run(InMemoryJob(self.job), run, self.instance)
        return self.instance.get_run_by_id(run.run_id).is_success


@pytest.fixture
def during() -> list[Any]:
    """Return a list of functions to call in the middle of each run."""
    return []


@pytest.fixture
def world(home, during):
    """Build three dates, and drop late data for them."""
    config = prepare(home) / "dagster.yaml"
    config.write_text(config.read_text().replace(WARM, MOCKED))

    def give(task):
        for act in during:
            act()
        return given(task)

    with Harness(defs, instance=dg.DagsterInstance.get(), maker=PlainMaker(give)) as made:
        for numbers in ((1,), (1, 2)):
            made.run_until_idle()
            for day in ALL:
                made.drop(RAW, day, rows(*numbers))
        yield made


def late(world: Harness) -> list[str]:
    """Return the dates whose re-run the condition requests."""
    assert world.ask().requests == ()
    found = dg.evaluate_automation_conditions(defs, world.instance, evaluation_time=world.now())
    return sorted(found.get_requested_partitions(dg.AssetKey(["t", "sums"])))


def queue_of(world: Harness, limit: int | None) -> Queue:
    """Return the queue with a run of each late date."""
    queue = Queue(world.instance)
    if limit:
        world.instance.event_log_storage.set_concurrency_slots("ads", limit)
    requested = late(world)
    assert requested == ALL
    for partition in requested:
        queue.put(partition)
    return queue


@pytest.mark.parametrize("limit", [2, None])
def test_a_pool_limits_how_many_late_dates_are_built_at_once(world, during, limit):
    queue = queue_of(world, limit)
    assert queue.turn() == ALL[: limit or 3]
    during.append(queue.turn)
    for number in range(len(ALL)):
        assert queue.build(number)
        queue.turn()
    assert (queue.most, queue.of(dg.DagsterRunStatus.QUEUED)) == (limit or 3, [])
    assert [len(world.reported("t/sums", day)) for day in ALL] == [2, 2, 2]
    assert late(world) == []


def test_a_run_that_waits_for_its_pool_is_not_requested_again_and_shown_as_queued(world):
    queue = queue_of(world, 2)
    queue.turn()
    assert queue.of(dg.DagsterRunStatus.QUEUED) == [THIRD_DAY]
    later(world, timedelta(hours=1))
    assert late(world) == []
    world.ask(name="watch")
    assert "waits in Dagster's queue for a place in the pool ads" in printed("explain", SUMS, THIRD_DAY, "-m", __name__)
    assert "queue" not in printed("explain", SUMS, DAY, "-m", __name__), "its run has begun"
    with open_ledger(settings().ledger).read() as connection:
        assert runs.last(connection, Partition(Feed.parse(SUMS), THIRD_DAY)).state == "published", "the run before"
        assert alerts.open_alerts(connection) == ()
