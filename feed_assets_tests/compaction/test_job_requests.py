"""Requests of jobs: one that always fails is left out alone, and compactions wait behind builds and share a pool."""

from collections import Counter

import dagster as dg

from feed_assets import Compact, with_automation
from feed_assets.cli.run_output import sentence
from feed_assets.orchestration import compact_job
from feed_assets.orchestration.run_outcomes import Ended
from feed_assets.orchestration.runner import Runner
from feed_assets.settings import settings
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.support.run_queue import RunQueue, queued_instance
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, chain, given, opened, raw_feed, rows, sums_of


def test_a_job_that_fails_stops_no_other_job_and_no_other_dataset(home):
    assert sentence(Ended((), None, True, None, 3), "id", "compact") == "built   by the job compact: 3 rows"
    assert sentence(Ended((), None, True, None), "id", "replicate") == "done    by the job replicate"

    @dg.op
    def work(context):
        if context.run.tags["feed_assets/compact"] == "bad":
            raise RuntimeError("it fails")

    jobs = [dg.GraphDefinition(name, node_defs=[work]).to_job() for name in ("one", "other")]
    requests = [
        dg.RunRequest(job_name=job, tags={"feed_assets/compact": dataset})
        for job in ("one", "other")
        for dataset in ("bad", "good")
    ]
    sensor = dg.SensorDefinition(name="both", jobs=jobs, evaluation_fn=lambda: dg.SensorResult(run_requests=requests))
    ran, world = Counter(), chain()
    runner = Runner(
        dg.Definitions(jobs=jobs, sensors=[sensor]),
        world.instance,
        on_run=lambda result: ran.update([(result.job_def.name, result.dagster_run.tags["feed_assets/compact"])]),
    )
    ticks = settings().max_attempts + 2
    for _ in range(ticks):
        runner.tick()
    expected = {"bad": settings().max_attempts, "good": ticks}
    assert ran == {(job, dataset): number for job in ("one", "other") for dataset, number in expected.items()}
    opened.close()


def test_compactions_are_launched_after_builds_and_as_many_as_their_pool_has_room_for(home):
    compacting, raw = Compact(sort_by=("k",), files=1), raw_feed()
    names = [SUMS, "t/others/v1.0"]
    definitions = with_automation(
        dg.Definitions(assets=[raw, *(sums_of(raw, name=each, compact=compacting) for each in names)])
    )
    with Harness(definitions, instance=queued_instance(home), maker=PlainMaker(given)) as world:
        world.drop(RAW, DAY, rows(1, 2))
        world.tick()
        world.instance.event_log_storage.set_concurrency_slots(compact_job.POOL, 1)
        queue, job = RunQueue(world.instance), definitions.resolve_job_def(compact_job.COMPACT)
        requests = world.ask(name=compact_job.COMPACT).requests
        assert [each.tags[compact_job.TAG] for each in requests] == sorted(names)
        for each in requests:
            queue.put(job, each.tags, run_config=each.run_config)
        assets = {dg.AssetKey(["t", "sums"])}
        build = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=assets)
        queue.put(build, {"dagster/partition": DAY}, asset_selection=assets)
        launched = queue.turn()
        assert [each.job_name for each in launched] == [build.name, compact_job.COMPACT], "the build came last"
        assert queue.turn() == [], "the pool is full"
        assert queue.execute(job, 1)
        assert [each.tags[compact_job.TAG] for each in queue.turn()] == [SUMS]
