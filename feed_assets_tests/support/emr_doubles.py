"""EMR Serverless and S3 of moto. A job's states follow a script, and its work is done when it is first RUNNING."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.emrserverless.models import JobRun, emrserverless_backends

AWS = {"core": {"mock_credentials": False}}
REGION, BUCKET = "eu-west-1", "messages"
ROLE = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/etl"
WAY = ("SUBMITTED", "QUEUED", "PENDING", "SCHEDULED", "RUNNING")
"""The states of a job until it runs."""

_ENV = re.compile(r"--conf spark\.emr-serverless\.driverEnv\.(\w+)=(\S+)")


@dataclass
class EmrDouble:
    """An application, its jobs, and the script of the next one: states, or functions that are called in their place."""

    backend: Any
    application: Any
    script: list[str | Callable[[JobRun], str]] = field(default_factory=list)
    started: list[JobRun] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def target(self, **more: Any) -> dict[str, Any]:
        """Return the target's declaration."""
        where = {"application_id": self.application.id, "execution_role_arn": ROLE, "bucket": BUCKET, "region": REGION}
        script = {"entry_point": "s3://code/job.py", "module": "some.project"}
        return {"kind": "emr-serverless", **where, **script, **more}

    def start(self, parameters: str = "", state: str = "RUNNING") -> JobRun:
        """Start somebody's job, which stays in a state."""
        driver = {"sparkSubmit": {"entryPoint": "s3://x/y.py", "sparkSubmitParameters": parameters}}
        job = self.backend.start_job_run(
            self.application.id, "token", ROLE, driver, None, None, execution_timeout_minutes=None, name="other"
        )
        job.state = state
        return job


def environment_of(job: JobRun) -> dict[str, str]:
    """Return the environment that the job's parameters give its driver."""
    return dict(_ENV.findall(job.job_driver["sparkSubmit"]["sparkSubmitParameters"]))


@contextmanager
def emr_double(monkeypatch: pytest.MonkeyPatch, cpu: str = "16 vCPU", memory: str = "64 GB") -> Iterator[EmrDouble]:
    """Run an application, and a bucket for messages, until the block ends. boto3 still reaches other servers."""
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "DEFAULT_REGION": REGION}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws(config=AWS), pytest.MonkeyPatch.context() as patch:
        s3 = boto3.client("s3", region_name=REGION, endpoint_url=f"https://s3.{REGION}.amazonaws.com")
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        client = boto3.client("emr-serverless", region_name=REGION)
        size = {"cpu": cpu, "memory": memory}
        made = client.create_application(releaseLabel="emr-7.9.0", type="SPARK", name="etl", maximumCapacity=size)
        backend = emrserverless_backends[DEFAULT_ACCOUNT_ID][REGION]
        double = EmrDouble(backend, backend.applications[made["applicationId"]])
        backend.job_runs[double.application.id] = double.started  # moto knows no application before its first job.
        _follow_the_script(backend, double, patch)
        yield double


def _follow_the_script(backend: Any, double: EmrDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    get, cancel = backend.get_job_run, backend.cancel_job_run

    def get_job_run(application_id: str, job_run_id: str) -> JobRun:
        job = get(application_id, job_run_id)
        if double.script:
            step = double.script.pop(0)
            job.state = step(job) if callable(step) else step
        return job

    def cancel_job_run(application_id: str, job_run_id: str) -> tuple[str, str]:
        double.cancelled.append(job_run_id)
        return cancel(application_id, job_run_id)

    monkeypatch.setattr(backend, "get_job_run", get_job_run)
    monkeypatch.setattr(backend, "cancel_job_run", cancel_job_run)
