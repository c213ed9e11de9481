"""Probe of an application of EMR Serverless: its capacity, minus the resources that its jobs request."""

import re
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any

from feed_assets.core.resources import NOTHING, Amount, bytes_of
from feed_assets.core.target_room import Probe
from feed_assets.core.targets import EmrServerless, with_overhead, worker_of_emr
from feed_assets.core.time_limits import in_time
from feed_assets.targets.json_answers import PROBE_SECONDS, NoAnswer

WAITING, RUNNING = ("SUBMITTED", "QUEUED", "PENDING", "SCHEDULED"), "RUNNING"
"""States of a job before it has its workers, and state of a job with its workers."""

MOST_JOBS = 20
"""Greatest number of jobs whose sizes are read: AWS limits calls per second. Other jobs count with default sizes."""

_SECONDS = 5.0
"""Seconds for all calls of a probe together, including the search for credentials and DNS."""

_SIZE = re.compile(r"([1-9][0-9]{0,9})\s?(?:vcpu|gb)?", re.IGNORECASE)
_CONF = re.compile(r"--conf\s+['\"]?([\w.-]+)=([^\s'\"]+)")
_DEFAULTS = {
    "spark.executor.instances": "3",
    "spark.executor.cores": "4",
    "spark.executor.memory": "14g",
    "spark.driver.cores": "4",
    "spark.driver.memory": "14g",
}
"""The defaults of EMR Serverless for a job's sizes (EMR Serverless User Guide, "Spark job properties")."""


def look(target: EmrServerless, now: datetime) -> Probe:
    """Return the free resources. Raise NoAnswer if AWS gives no answer, or the application takes no job."""
    ends = monotonic() + _SECONDS
    try:
        return in_time(lambda: _probe(target, now, ends), lambda: monotonic() > ends)
    except NoAnswer:
        raise
    except TimeoutError:
        raise NoAnswer(f"no answer in {_SECONDS:.0f} s") from None
    except Exception as error:  # noqa: BLE001  Credentials may come from a user's program, which may raise any error.
        raise NoAnswer(_in_words(error)) from None


def client_of(target: EmrServerless, service: str = "emr-serverless", *, seconds: float = 10, attempts: int = 3) -> Any:
    """Return a client of AWS in the target's region. A call may take `seconds`, and is tried `attempts` times."""
    import boto3  # pyright: ignore[reportMissingTypeStubs]  # it takes 0.3 s to load
    from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]

    retries = {"mode": "standard", "total_max_attempts": attempts}
    config = Config(connect_timeout=seconds, read_timeout=seconds, retries=retries)  # pyright: ignore[reportArgumentType]
    session: Any = boto3.Session(region_name=target.region)
    return session.client(service, config=config)


def code_of(error: BaseException) -> str | None:
    """Return AWS's code for an error. Return None if AWS gave no answer."""
    response: Any = getattr(error, "response", None)
    return response["Error"]["Code"] if response else None


def _probe(target: EmrServerless, now: datetime, ends: float) -> Probe:
    with closing(client_of(target, seconds=PROBE_SECONDS, attempts=1)) as client:
        client.meta.events.register("before-call", partial(_check_time, ends))
        application = client.get_application(applicationId=target.application_id)["application"]
        total = _size(application)
        listed = {"applicationId": target.application_id, "states": [*WAITING, RUNNING], "maxResults": 50}
        jobs = client.list_job_runs(**listed)["jobRuns"]
        named = [{"applicationId": target.application_id, "jobRunId": each["id"]} for each in jobs[:MOST_JOBS]]
        answers = [client.get_job_run(**each) for each in named]
    sizes = [_of_job(each["jobRun"]) for each in answers]
    sizes += [_of_parameters("")] * (len(jobs) - len(answers))
    waiting = sum(each["state"] in WAITING for each in jobs)
    return Probe(now, total, total - sum(sizes, NOTHING), queued=waiting)


def _check_time(ends: float, **_: Any) -> None:
    """Raise TimeoutError before a call of AWS if the time is over, so that an abandoned probe makes no further call."""
    if monotonic() > ends:
        raise TimeoutError


def _size(application: Mapping[str, Any]) -> Amount:
    """Return an application's size. Raise NoAnswer if it has no size, or takes no jobs even with auto-start."""
    state, starts = application["state"], application.get("autoStartConfiguration", {}).get("enabled", True)
    if state not in ("STARTING", "STARTED") and not (starts and state in ("CREATED", "STOPPED", "STOPPING")):
        raise NoAnswer(f"its application is {state}, expected STARTED, or CREATED with auto-start")
    limits: Mapping[str, str] = application.get("maximumCapacity") or {}
    cpu, memory = (_SIZE.fullmatch(limits.get(name, "")) for name in ("cpu", "memory"))
    if not cpu or not memory:
        raise NoAnswer("its application has no maximumCapacity of cpu and memory: set one, which is its size")
    return Amount(int(cpu[1]), int(memory[1]) << 30)


def _of_job(job: Mapping[str, Any]) -> Amount:
    try:
        return _of_parameters(job.get("jobDriver", {}).get("sparkSubmit", {}).get("sparkSubmitParameters", ""))
    except ValueError:  # The job of another program may have any text there.
        return _of_parameters("")


def _of_parameters(text: str) -> Amount:
    """Return the amount that a job's parameters request for its driver and for its executors at the start."""
    values = {**_DEFAULTS, **dict(_CONF.findall(text))}
    number = int(values["spark.executor.instances"])
    executor, driver = _worker(values, "executor"), _worker(values, "driver")
    return Amount(executor.cores * number, executor.memory * number) + driver


def _worker(values: Mapping[str, str], role: str) -> Amount:
    heap = bytes_of(values[f"spark.{role}.memory"].lower().removesuffix("b"))
    return worker_of_emr(int(values[f"spark.{role}.cores"]), with_overhead(heap))


def _in_words(error: Exception) -> str:
    """Return the kind of an error, or AWS's code for it.

    The error's text is left out, because it may contain names that only AWS's users may see.
    """
    code = code_of(error)
    return f"AWS refuses: {code}" if code else f"no answer ({type(error).__name__})"
