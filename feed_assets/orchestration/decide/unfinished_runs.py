"""Dagster's runs that have not ended: those that wait, and those in progress."""

import dagster as dg

WITH_PROCESS = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
UNFINISHED = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, *WITH_PROCESS]


def has_unfinished(instance: dg.DagsterInstance, job: str, tag: str, value: str) -> bool:
    """Return whether a run of a job with this tag waits or is in progress."""
    runs_of_job = dg.RunsFilter(job_name=job, tags={tag: value}, statuses=UNFINISHED)
    return bool(instance.get_runs(runs_of_job, limit=1))
