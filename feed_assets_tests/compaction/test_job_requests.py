"""Requests of jobs in one driver: a job that always fails is left out after some attempts, and alone."""

from collections import Counter

import dagster as dg

from feed_assets.cli.run_output import sentence
from feed_assets.orchestration.run_outcomes import Ended
from feed_assets.orchestration.runner import Runner
from feed_assets.settings import settings
from feed_assets_tests.support.sum_projects import chain, opened


def test_a_job_that_fails_stops_no_other_job_and_no_other_dataset(home):
    assert sentence(Ended((), None, True, None, 3), "id", "compact") == "built   by the job compact: 3 rows"

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
