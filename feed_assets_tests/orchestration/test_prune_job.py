"""The job `prune`, as `with_automation` adds it."""

from pathlib import Path

import dagster as dg
import pytest

from feed_assets import Retention, with_automation
from feed_assets.core.feeds import Feed, Partition
from feed_assets.orchestration.declare.declarations import declaration_of
from feed_assets.testing import Harness
from feed_assets_tests.support.sum_projects import (
    DAY,
    DAYS,
    RAW,
    SCHEMA,
    foreign_feed,
    harness,
    raw_feed,
    rows,
    sums_of,
)

OTHER = "t/other/v1.0"


def retaining() -> Harness:
    """Build two foreign feeds with two updates each and a retention of one."""
    world = harness(
        *(foreign_feed(feed, partitions_def=DAYS, schema=SCHEMA, retention=Retention(keep=1)) for feed in (OTHER, RAW))
    )
    for feed in (OTHER, RAW):
        for numbers in ((1,), (1, 2)):
            world.drop(feed, DAY, rows(*numbers))
    return world


def run_job(world: Harness, **config: bool) -> bool:
    job = world.definitions.resolve_job_def("prune")
    given = {"ops": {"prune_feeds": {"config": config}}} if config else {}
    return job.execute_in_process(run_config=given, instance=world.instance, raise_on_error=False).success


def ids(world: Harness, feed: str) -> list[str]:
    return world.board.children(Partition(Feed.parse(feed), DAY).path)


def test_prune_job_lists_updates_and_removes_them_only_with_apply(capfd):
    world = retaining()
    assert run_job(world)
    assert [len(ids(world, feed)) for feed in (OTHER, RAW)] == [2, 2]
    said = capfd.readouterr().err
    assert f"{RAW} {DAY} {ids(world, RAW)[0]} would be pruned: newer valid updates: 1" in said
    assert f"{RAW}: 1 updates would be pruned: nothing is removed without apply" in said
    assert run_job(world, apply=True)
    assert [len(ids(world, feed)) for feed in (OTHER, RAW)] == [1, 1]


def test_a_feed_that_cannot_be_pruned_does_not_hold_up_the_others(capfd):
    world = retaining()
    folder = Path(world.board.url.removeprefix("file://"), OTHER)
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
    assert not run_job(world, apply=True)
    assert f"{OTHER} is not pruned: " in capfd.readouterr().err
    assert [len(ids(world, RAW)), len([*(folder / DAY).iterdir()])] == [1, 2]


def test_rejects_have_the_retention_of_their_dataset():
    sums = sums_of(raw_feed(), retention=Retention(keep=3))
    assert [declaration_of(spec).retention for spec in sums.specs] == [Retention(keep=3)] * 2


def test_the_prune_job_can_be_scheduled_by_its_name():
    nightly = dg.ScheduleDefinition(
        name="nightly",
        job_name="prune",
        cron_schedule="0 3 * * *",
        run_config={"ops": {"prune_feeds": {"config": {"apply": True}}}},
    )
    raw = foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA, retention=Retention(keep=1))
    defs = with_automation(dg.Definitions(assets=[raw], schedules=[nightly]))
    assert defs.get_repository_def().get_schedule_def("nightly").job_name == "prune"


@pytest.mark.parametrize("retention", [None, Retention(keep=1)])
def test_the_prune_job_exists_only_if_a_feed_has_a_retention(retention):
    world = harness(foreign_feed(RAW, partitions_def=DAYS, schema=SCHEMA, retention=retention))
    assert world.definitions.get_repository_def().has_job("prune") == (retention is not None)
