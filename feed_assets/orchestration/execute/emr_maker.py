"""A maker that lets a job of EMR Serverless make a run's rows. It uses the Pipes client of dagster-aws.

Importing this module loads boto3. The run stays in this process, where it pins, claims, records and publishes. The job
makes, writes and audits the rows, and reports them by a message of Dagster Pipes (ADR 142).
"""

import logging
import shlex
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import dagster as dg
from botocore.exceptions import BotoCoreError, ClientError  # pyright: ignore[reportMissingTypeStubs]
from dagster_aws.pipes import PipesEMRServerlessClient, PipesS3ContextInjector, PipesS3MessageReader

from feed_assets.core.attempts import OF_ITS_OWN
from feed_assets.core.errors import InvalidName, SparkDied, SparkUnavailable, TargetLost
from feed_assets.core.feeds import Update
from feed_assets.core.message_words import excerpt, sentence
from feed_assets.core.targets import EmrServerless
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.runs.maker import Task
from feed_assets.runs.remote_making import RemoteRows, Report, made_of, order_of
from feed_assets.runs.target_watch import LOOK_SECONDS, OFFLINE_LOOKS, TargetWatch
from feed_assets.settings import settings
from feed_assets.targets.emr_serverless import RUNNING, client_of, code_of

POLL_SECONDS = LOOK_SECONDS
"""Seconds between two checks of a job, and between two readings of its messages."""

_ENDED = ("SUCCESS", "FAILED", "CANCELLED")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmrMaker:
    """A maker of rows on EMR Serverless.

    `conf` is the job's Spark configuration, and `profile` is the name of the run's Spark profile.
    """

    context: dg.AssetExecutionContext
    target: EmrServerless
    watch: TargetWatch
    conf: Mapping[str, str]
    profile: str | None = None

    @contextmanager
    def make(self, task: Task, board: Blackboard) -> Generator[RemoteRows]:  # noqa: ARG002
        """Run a job that makes, writes and audits the rows. Yield its report of them.

        The job opens the dataset's blackboard by its name, in its own settings.
        Raise the error that the job reports. Raise SparkDied if the job began and failed without a report. Raise
        TargetLost if the job is lost in another way, for example before it began.
        """
        job = _Job(client_of(self.target), self.watch)
        failure, report = self._run(job, {**order_of(task, settings().blackboard), "profile": self.profile})
        if report is None:
            raise self._without_report(job, failure) from failure
        try:
            rows = made_of(report, task)
        except TargetLost as lost:
            raise self.watch.lost(f"its job could not make the rows: {str(lost).rstrip('.')}") from None
        except (InvalidName, LookupError, TypeError, ValueError) as error:
            raise self.watch.lost(f"its job's report cannot be read ({type(error).__name__})") from None
        yield rows

    def measure(self, board: Blackboard, update: Update) -> tuple[int, str]:  # noqa: ARG002
        """Raise SparkUnavailable always, because the commands that measure updates start their own Spark."""
        raise SparkUnavailable("updates are not measured on EMR Serverless: expected another maker. Measure them here.")

    def _run(self, job: "_Job", order: Mapping[str, Any]) -> tuple[Exception | SystemExit | None, Report | None]:
        """Run the job to its end. Cancel the job if this run is stopped, or if the job cannot be observed any more."""
        s3 = client_of(self.target, "s3")
        reader = _Messages(bucket=self.target.bucket, client=s3, interval=POLL_SECONDS)
        injector = PipesS3ContextInjector(bucket=self.target.bucket, client=s3)
        pipes: Any = _Client(job, injector, reader, forward_termination=False, poll_interval=POLL_SECONDS)  # pyright: ignore[reportArgumentType]
        failure = None
        try:
            pipes.run(
                context=self.context.op_execution_context,
                start_job_run_params=self._parameters(order),
                extras={**order},
            )
        except OF_ITS_OWN as error:
            failure = error
        finally:
            job.cancel()
        job.has_begun = reader.has_begun
        return failure, reader.report

    def _parameters(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of the job.

        They have no secrets, because everybody who may read the EMR application sees them.
        """
        conf = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in sorted(self.conf.items()))
        submit = {"entryPoint": self.target.entry_point, "entryPointArguments": [self.target.module]}
        return {
            "applicationId": self.target.application_id,
            "executionRoleArn": self.target.execution_role_arn,
            "name": f"feed_assets {order['feed']}"[:256],
            "jobDriver": {"sparkSubmit": {**submit, "sparkSubmitParameters": conf}},
        }

    def _without_report(self, job: "_Job", failure: BaseException | None) -> BaseException:
        is_of_aws = isinstance(failure, BotoCoreError | ClientError)
        if failure and not job.id and not is_of_aws:
            return failure
        if job.state == "FAILED" and job.has_begun:
            return SparkDied(
                f"the job {job.id} on {self.watch.name} ended without a report: {sentence(job.details)} Expected "
                "that its driver, with 5 GB, lives to its end. Look at the job's log: a function should bring few rows "
                "to the driver."
            )
        when = "without a report" if job.has_begun else "before it began"
        ended = f"its job {job.id} ended as {job.state} {when}: {job.details}" if job.id else "it took no job"
        why = f" ({_in_words(failure)})" if failure and is_of_aws else ""
        return self.watch.lost(f"{ended}{why}".rstrip(". "))


class _Job:
    """A client of EMR Serverless for one job. It stores the job's last state, and can cancel the job.

    If a request for the state fails, it returns the last state. Only OFFLINE_LOOKS failures in a row raise an error.
    """

    def __init__(self, client: Any, watch: TargetWatch) -> None:
        self._client, self._watch = client, watch
        self._ids: dict[str, str] = {}
        self._answer: dict[str, Any] = {"jobRun": {"state": "SUBMITTED"}}
        self._silent, self._is_up = 0, False
        self.has_begun = False

    @property
    def id(self) -> str | None:
        return self._ids.get("jobRunId")

    @property
    def state(self) -> str:
        return self._answer["jobRun"]["state"]

    @property
    def details(self) -> str:
        return excerpt(self._answer["jobRun"].get("stateDetails") or "AWS names no reason")

    def start_job_run(self, **parameters: Any) -> dict[str, Any]:
        """Start the job. If botocore repeats the request, it sends the same token, so there is only one job."""
        answer = self._client.start_job_run(**parameters)
        self._ids = {name: answer[name] for name in ("applicationId", "jobRunId")}
        return answer

    def get_job_run(self, **ids: str) -> dict[str, Any]:
        """Return the state of the job. If AWS does not answer, return the last known state."""
        try:
            self._answer = self._client.get_job_run(**ids)
            self._silent = 0
        except (BotoCoreError, ClientError):
            self._silent += 1
            if self._silent >= OFFLINE_LOOKS:
                raise
        if self.state == RUNNING and not self._is_up:
            self._watch.is_up()
            self._is_up = True
        return self._answer

    def get_dashboard_for_job_run(self, **ids: str) -> str:
        """Return a text in place of AWS's URL. The URL has a token, and the caller writes the result to a log."""
        return f"the job {ids['jobRunId']} in AWS's console"

    def cancel(self) -> None:
        """Cancel the job unless it has ended. If AWS does not answer, the job ends by itself. It publishes nothing."""
        if not self._ids or self.state in _ENDED:
            return
        try:
            self._client.cancel_job_run(**self._ids)
        except (BotoCoreError, ClientError) as error:
            _log.warning("the job %s of EMR Serverless could not be cancelled: %s", self.id, _in_words(error))


class _Messages(PipesS3MessageReader):
    """The messages of a job. They remain readable after the job has failed."""

    _handler: Any = None

    @property
    def expected_writer_count(self) -> int:
        """Return 1, because only the driver writes. Dagster's own property logs a preview warning in each run."""
        return 1

    @contextmanager
    def read_messages(self, handler: Any) -> Generator[Any]:
        self._handler = handler
        with super().read_messages(handler) as params:
            yield params

    @property
    def has_begun(self) -> bool:
        return self._handler is not None and self._handler.received_opened_message

    @property
    def report(self) -> Report | None:
        """Return the last report of the job."""
        reports = self._handler.get_custom_messages() if self._handler else ()
        return reports[-1] if reports else None


class _Client(PipesEMRServerlessClient):
    """Dagster's client, without its warning about message readers that do not read CloudWatch."""

    def _read_messages(self, context: Any, session: Any, response: Any) -> None:
        """Do nothing, because the thread of `_Messages` reads the messages."""


def _in_words(error: BaseException) -> str:
    return code_of(error) or type(error).__name__
