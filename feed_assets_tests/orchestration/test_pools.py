"""Runs of a pool: Dagster's daemon starts at most its limit, and the waiting ones are not requested again."""

from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import alerts, runs
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.run_blocks import PARTITION
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.support.command_output import printed
from feed_assets_tests.support.run_queue import RunQueue, queued_instance
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
raw = foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA)


@feed_asset(SUMS, partitions_def=DAYS, inputs={"raw": raw}, pool="ads")
def sums(raw):
    """Sum by day."""


defs = with_automation(dg.Definitions(assets=[raw, sums]))


class Queue(RunQueue):
    """The queue with runs of the dataset."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        super().__init__(instance)
        self.most = 0
        self.assets = {dg.AssetKey(name.split("/")) for name in BOTH}
        self.job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=self.assets)

    def put_partition(self, partition: str) -> None:
        self.put(self.job, {PARTITION: partition}, asset_selection=self.assets)

    def turn_partitions(self) -> list[str]:
        """Run one iteration of the daemon, and return the partitions whose runs it launched."""
        launched = self.turn()
        self.most = max(self.most, len(self.of(dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED)))
        return sorted(run.tags[PARTITION] for run in launched)

    def of(self, *statuses: dg.DagsterRunStatus) -> list[str]:
        found = self.instance.get_runs(dg.RunsFilter(statuses=[*statuses]))
        return sorted(run.tags[PARTITION] for run in found)

    def build(self, number: int) -> bool:
        return self.execute(self.job, number)


@pytest.fixture
def during() -> list[Any]:
    """Return a list of functions to call in the middle of each run."""
    return []


@pytest.fixture
def world(home, during):
    """Build three dates, and drop late data for them."""

    def give(task):
        for act in during:
            act()
        return given(task)

    with Harness(defs, instance=queued_instance(home), maker=PlainMaker(give)) as made:
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
        queue.put_partition(partition)
    return queue


@pytest.mark.parametrize("limit", [2, None])
def test_a_pool_limits_how_many_late_dates_are_built_at_once(world, during, limit):
    queue = queue_of(world, limit)
    assert queue.turn_partitions() == ALL[: limit or 3]
    during.append(queue.turn_partitions)
    for number in range(len(ALL)):
        assert queue.build(number)
        queue.turn_partitions()
    assert (queue.most, queue.of(dg.DagsterRunStatus.QUEUED)) == (limit or 3, [])
    assert [len(world.reported("t/sums", day)) for day in ALL] == [2, 2, 2]
    assert late(world) == []


def test_a_run_that_waits_for_its_pool_is_not_requested_again_and_shown_as_queued(world):
    queue = queue_of(world, 2)
    queue.turn_partitions()
    assert queue.of(dg.DagsterRunStatus.QUEUED) == [THIRD_DAY]
    later(world, timedelta(hours=1))
    assert late(world) == []
    world.ask(name="watch")
    assert "waits in Dagster's queue for a place in the pool ads" in printed("explain", SUMS, THIRD_DAY, "-m", __name__)
    assert "queue" not in printed("explain", SUMS, DAY, "-m", __name__), "its run has begun"
    with open_ledger(settings().ledger).read() as connection:
        assert runs.last(connection, Partition(Feed.parse(SUMS), THIRD_DAY)).state == "published", "the run before"
        assert alerts.open_alerts(connection) == ()
