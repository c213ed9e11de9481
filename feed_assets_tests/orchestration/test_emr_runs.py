"""Runs whose rows a job of EMR Serverless makes: each state of the job, kills, lost jobs, and what is published."""

import json
import sys
from contextlib import suppress
from unittest.mock import MagicMock

import dagster as dg
import dagster_pipes
import pytest
import sqlalchemy as sa
from botocore.exceptions import EndpointConnectionError
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.pipes import utils

from feed_assets.cli import emr_job
from feed_assets.core.errors import BlackboardRefused
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.write import publish
from feed_assets.ledger import target_probes
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import allocation, run
from feed_assets.orchestration.decide import resource_requests
from feed_assets.orchestration.execute import emr_maker
from feed_assets.runs import reconcile, services
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets.targets import emr_serverless, probes
from feed_assets.testing import PlainMaker
from feed_assets_tests.support.emr_doubles import WAY, EmrDouble, emr_double, environment_of
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, SUMS, given, raw_feed, rows, sums_of

raw = raw_feed()
sums = sums_of(raw)
defs = dg.Definitions(assets=[raw, sums])
"""Module-level definitions for the job."""


def killed(*_):
    raise SystemExit(137)


class World:
    """A home with an application as its only target, and the code of the job, without Spark."""

    def __init__(self, emr: EmrDouble, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.emr, self.instance, self.patch = emr, instance, monkeypatch
        self.give = given

    def drop(self, content, key=DAY):
        publish(open_board(settings()), Partition(Feed.parse(RAW), key), {"part-0.csv": content.encode()}, utc_now())

    def build(self, asset=sums, key=DAY):
        """Materialize a partition, and return the result."""
        options = {"partition_key": key, "instance": self.instance, "raise_on_error": False}
        return dg.materialize([asset], **options)

    def works(self, job):
        """Do the work of a job in this process, as its entry point does there."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment_of(job).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["job.py", job.job_driver["sparkSubmit"]["entryPointArguments"][0]])
            patch.setattr(dagster_pipes.PipesContext, "_instance", None)
            patch.setattr(emr_job, "_started", lambda own: own)
            patch.setattr(services, "spark_maker", lambda *_, **__: PlainMaker(lambda task: self.give(task)))
            emr_job.main()
        return "RUNNING"

    def begins(self, job):
        """Begin the work of a job, which then dies without a report."""
        self.patch.setattr(emr_job, "_carried_out", killed)
        with suppress(SystemExit):
            self.works(job)
        return "RUNNING"

    def updates(self, key=DAY):
        board = Blackboard.open(settings().blackboard)
        return [each for each in read.history(board, Partition(Feed.parse(SUMS), key)) if isinstance(each, Update)]

    def runs(self):
        with open_ledger(settings().ledger).read() as connection:
            return [(row.state, row.reason) for row in connection.execute(sa.select(run).order_by(run.c.started))]

    def grants(self):
        with open_ledger(settings().ledger).read() as connection:
            return connection.execute(sa.select(allocation)).all()


@pytest.fixture
def world(home, setting, monkeypatch):
    monkeypatch.setattr(emr_serverless, "_SECONDS", 300)  # of a busy machine
    monkeypatch.setattr(emr_maker, "POLL_SECONDS", 0)
    monkeypatch.setattr(utils, "DEFAULT_SLEEP_INTERVAL", 0.01)
    monkeypatch.setattr(utils, "WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL", 0)
    with emr_double(monkeypatch) as double, dg.DagsterInstance.ephemeral() as instance:
        setting(targets=json.dumps({"aws": double.target(module=__name__, conf={"spark.x": "a b"})}))
        yield World(double, instance, monkeypatch)


def test_a_job_makes_the_rows_and_the_run_publishes_them_once(world):
    world.drop(rows(1))
    world.emr.script = [*WAY, world.works, "SUCCESS"]
    result = world.build()
    assert result.success
    assert len(world.updates()) == 1
    (materialized,) = [each for each in result.get_asset_materialization_events() if each.asset_key.path[-1] == "sums"]
    assert materialized.materialization.metadata["compute target"].value == "aws"
    (job,) = world.emr.started
    submit = job.job_driver["sparkSubmit"]
    assert submit["entryPoint"] == "s3://code/job.py"
    assert "--conf spark.executor.instances=2" in submit["sparkSubmitParameters"]
    assert "'spark.x=a b'" in submit["sparkSubmitParameters"]
    assert (world.runs()[-1][0], world.grants(), world.emr.cancelled) == ("published", [], [])


def test_a_job_that_waits_for_its_workers_holds_no_executors_yet(world):
    seen = []

    def look(_job):
        seen.append([row.started for row in world.grants()])
        return "RUNNING"

    world.drop(rows(1))
    world.emr.script = ["PENDING", lambda job: look(job) and "SCHEDULED", world.works, look, "SUCCESS"]
    assert world.build().success
    assert seen[0] == [None]
    assert None not in seen[1]


LOST = {
    "failed before it began": ["SUBMITTED", "PENDING", "FAILED"],
    "cancelled in the queue": ["SUBMITTED", "QUEUED", "CANCELLED"],
    "cancelled while it ran": [*WAY, World.begins, "CANCELLED"],
    "being cancelled": [*WAY, "CANCELLING"],
    "ended without a word": [*WAY, "SUCCESS"],
    "in a state that AWS has not yet": [*WAY, "PAUSED"],
}


@pytest.mark.parametrize("case", LOST)
def test_a_job_that_is_lost_is_no_attempt_and_its_target_rests(world, case):
    world.drop(rows(1))
    world.emr.script = [each.__get__(world) if callable(each) else each for each in LOST[case]]
    assert not world.build().success
    (state, reason), (job,) = world.runs()[-1], world.emr.started
    assert (state, reason.startswith("TargetLost: the compute target aws was lost (its job")) == ("abandoned", True)
    assert job.id in reason
    answer = probes.answers(open_ledger(settings().ledger), resource_requests.targets(), utc_now())["aws"]
    assert answer.offline == target_probes.LOST
    assert (world.updates(), world.grants()) == ([], [])
    has_ended = LOST[case][-1] in ("FAILED", "CANCELLED", "SUCCESS")
    assert world.emr.cancelled == ([] if has_ended else [job.id])


def test_a_driver_that_dies_is_an_attempt_and_its_reason_is_masked(world):
    world.drop(rows(1))

    def died(job):
        job.state_details = "Job failed: password=hunter2hunter2"
        return "FAILED"

    world.emr.script = [*WAY, world.begins, died]
    world.build()
    state, reason = world.runs()[-1]
    assert (state, reason.startswith("SparkDied: the job ")) == ("failed", True)
    assert "hunter2" not in reason
    assert world.updates() == []


def test_a_job_that_aws_refuses_to_start_is_no_attempt(world, setting):
    other = world.emr.target(module=__name__, execution_role_arn="arn:aws:iam::210987654321:role/etl")
    setting(targets=json.dumps({"aws": other}))
    world.drop(rows(1))
    world.build()
    state, reason = world.runs()[-1]
    assert (state, "it took no job (AccessDeniedException)" in reason, world.emr.started) == ("abandoned", True, [])


def test_an_error_of_the_function_is_a_failed_attempt_with_its_text(world):
    world.drop(rows(13))
    world.emr.script = [*WAY, world.works, "SUCCESS"]
    world.build()
    state, reason = world.runs()[-1]
    assert (state, "13 is unlucky" in reason, reason.startswith("FunctionFailed")) == ("failed", True, True)
    assert (world.updates(), world.emr.cancelled) == ([], [])


def test_a_check_that_fails_in_the_job_refuses_the_update_here(world):
    world.drop(rows(200))
    world.emr.script = [*WAY, world.works, "SUCCESS"]
    world.build()
    state, reason = world.runs()[-1]
    assert (state, "within_n" in reason, world.updates()) == ("refused", True, [])


def test_a_job_with_other_code_makes_nothing(world):
    world.drop(rows(1))
    world.emr.script = [*WAY, world.works, "SUCCESS"]
    world.build(sums_of(raw, code_version="2"))
    state, reason = world.runs()[-1]
    assert (state, "other code of t/sums/v1.0" in reason, world.updates()) == ("abandoned", True, [])


def test_a_store_that_the_job_does_not_reach_is_the_fault_of_the_target(world):
    world.drop(rows(1))

    def away(task):
        raise BlackboardRefused("s3://lake: access denied")

    world.give = away
    world.emr.script = [*WAY, world.works, "SUCCESS"]
    world.build()
    state, reason = world.runs()[-1]
    assert (state, "BlackboardRefused: s3://lake: access denied" in reason) == ("abandoned", True)


@pytest.mark.parametrize("interrupt", [DagsterExecutionInterruptedError, KeyboardInterrupt])
@pytest.mark.parametrize("states", [1, len(WAY)])
def test_a_run_that_is_stopped_cancels_its_job(world, interrupt, states):
    def stop(_job):
        raise interrupt

    world.drop(rows(1))
    world.emr.script = [*WAY[:states], stop]
    with suppress(interrupt):
        world.build()
    (job,) = world.emr.started
    assert (world.emr.cancelled, job.state) == ([job.id], "CANCELLED")
    assert (world.runs()[-1][0], world.updates(), world.grants()) == ("abandoned", [], [])


@pytest.mark.parametrize("moment", range(len(WAY) + 2))
def test_a_job_whose_run_was_given_up_publishes_nothing_whenever_it_wakes_up(world, moment):
    def given_up(state):
        def step(job):
            reconcile.reconcile(services.Services.of(settings()), has_ended=lambda run: True)
            return state(job) if callable(state) else state

        return step

    world.drop(rows(1))
    script = [*WAY, world.works, "SUCCESS"]
    world.emr.script = [given_up(each) if number == moment else each for number, each in enumerate(script)]
    assert not world.build().success
    assert (world.runs()[-1][0], world.updates()) == ("abandoned", [])
    world.emr.script = [*WAY, world.works, "SUCCESS"]
    assert world.build().success
    assert len(world.updates()) == 1


def test_partitions_of_one_run_are_jobs_one_after_the_other(world, setting):
    setting(partitions_at_a_time=2)
    at_once = []

    def works(job):
        at_once.append(sum(each.state not in ("SUCCESS",) for each in world.emr.started))
        return world.works(job)

    for key in (DAY, NEXT_DAY):
        world.drop(rows(1), key)
    world.emr.script = [*WAY, works, "SUCCESS"] * 2
    tags = {"dagster/asset_partition_range_start": DAY, "dagster/asset_partition_range_end": NEXT_DAY}
    assert dg.materialize([sums], instance=world.instance, tags=tags).success
    assert (len(world.updates()), len(world.updates(NEXT_DAY)), at_once) == (1, 1, [1, 1])


class Silent:
    """A client of AWS that gives some answers. None is no answer."""

    def __init__(self, *states):
        self.states, self.cancelled = list(states), 0

    def start_job_run(self, **_):
        return {"applicationId": "a", "jobRunId": "j"}

    def get_job_run(self, **_):
        state = self.states.pop(0)
        if state is None:
            raise EndpointConnectionError(endpoint_url="https://aws")
        return {"jobRun": {"state": state}}

    def cancel_job_run(self, **_):
        self.cancelled += 1
        raise EndpointConnectionError(endpoint_url="https://aws")


def test_only_looks_in_a_row_without_an_answer_end_a_run(caplog):
    client, watch = Silent("RUNNING", None, "RUNNING", None, None), MagicMock()
    job = emr_maker._Job(client, watch)
    job.cancel()  # It was never started.
    job.start_job_run()
    assert [job.get_job_run()["jobRun"]["state"] for _ in range(4)] == ["RUNNING"] * 4
    with pytest.raises(EndpointConnectionError):
        job.get_job_run()
    watch.is_up.assert_called_once_with()
    job.cancel()
    assert (client.cancelled, "could not be cancelled" in caplog.text) == (1, True)
    assert "token" not in job.get_dashboard_for_job_run(jobRunId="j", applicationId="a")
