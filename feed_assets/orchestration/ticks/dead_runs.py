"""Search for Dagster runs whose process is dead. These runs are marked as failed.

Otherwise they would stay unfinished forever, with their partitions in progress. If a worker dies, Dagster's code server
fails its run. If the code server dies, too, only Dagster's run monitoring can fail the run, through our launcher. The
monitoring uses the same rule as this module: check the process that the run's tag or log names. A run that has not
started names no process. The monitoring (in our `dagster.yaml`) fails such a run by its age.
"""

import json
import socket
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

from feed_assets.ledger import allocations
from feed_assets.ledger.database import Ledger
from feed_assets.orchestration.decide.resource_requests import targets
from feed_assets.orchestration.decide.unfinished_runs import UNFINISHED, WITH_PROCESS
from feed_assets.orchestration.execute.makers import DRIVER
from feed_assets.orchestration.execute.patience import has_ended
from feed_assets.orchestration.ticks.run_lock import is_let_go
from feed_assets.runs.reconcile import FinishedRun, reconcile
from feed_assets.runs.services import Services, is_dead

LAUNCHED = ".dagster/grpc_info"
"""The tag of runs that Dagster launched, with the address of the code server that started the worker."""

WORKER = "feed_assets/worker"
"""The tag of runs that the warm launcher started, with run id and process."""

LOOPBACK = {"localhost", "127.0.0.1", "::1"}

CLOCK_SECONDS = 60
"""Seconds.

If a process started more than this after the log entry with its pid, it is a later one with the same pid. A smaller
difference may be clock skew.
"""


def finish_left(instance: dg.DagsterInstance, services: Services) -> tuple[FinishedRun, ...]:
    """Finish builds that ended without recording their end, and fail Dagster runs whose process is gone."""
    finished_runs = reconcile(services, has_ended=partial(has_ended, instance))
    for finished in finished_runs:
        if finished.run.dagster_run and is_dead(finished.run.process):
            fail(instance, finished.run.dagster_run, finished.run.process)
    fail_left_runs(instance)
    end_unused(instance, services.ledger, services.now())
    return finished_runs


def end_unused(instance: dg.DagsterInstance, ledger: Ledger, now: datetime) -> None:
    """Take resources of compute targets back if their run has ended, or did not begin in time.

    So a killed run blocks its resources only briefly, and so does a tick that was killed after it claimed resources for
    a run. A run in Dagster's queue has not begun: it loses its resources, and gets new ones when it starts. If it kept
    them, it might wait in the queue for another run that itself waits for these resources. A repeated call changes
    nothing.
    """
    if not targets():
        return
    with ledger.read() as connection:
        listed = allocations.in_use(connection)
    if not listed:
        return
    ids = {run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))}

    def is_unfinished(dagster_run: str) -> bool | None:
        return True if dagster_run in ids else False if instance.get_run_by_id(dagster_run) else None

    with ledger.write() as connection:
        allocations.lock(connection)
        allocations.end(connection, allocations.unused(connection, listed, is_unfinished, now))


def fail_left_runs(instance: dg.DagsterInstance) -> None:
    """Fail the runs whose process has certainly ended, so that their partitions can be built again.

    A repeated call changes nothing.
    """
    for run in instance.get_runs(dg.RunsFilter(statuses=WITH_PROCESS)):
        if process := gone(instance, run):
            fail(instance, run.run_id, process)


def fail(instance: dg.DagsterInstance, run_id: str, process: str) -> None:
    """Mark a run whose process is gone as failed, or as canceled if it was being canceled.

    Do nothing if it has ended since.
    """
    run, why = instance.get_run_by_id(run_id), f"The process of this run is gone ({process})."
    if run and run.status is dg.DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, why)
    elif run and not run.is_finished:
        instance.report_run_failed(run, why)


def gone(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """Return a run's process if it has certainly ended.

    Return None if the process is alive, on another host, or unknown.
    """
    if process := driver_of(run):
        return process if is_dead(process) else None
    if process := worker_of(run):
        return process if is_dead(process) or is_let_go(Path(instance.storage_directory()), run.run_id) else None
    if not _is_local(run.tags.get(LAUNCHED)):
        return None
    named = _named(instance, run)
    return f"pid {named[0]}" if named and _out_of_time(*named) else None


def driver_of(run: dg.DagsterRun) -> str | None:
    """Return the process of `feed-assets run` that drives a run.

    Return None for a re-execution, because its tag is only a copy of the first run's tag.
    """
    return None if run.parent_run_id else run.tags.get(DRIVER)


def worker_of(run: dg.DagsterRun) -> str | None:
    """Return the warm process of a run.

    Return None if the tag names another run: a re-execution has a copy of the first run's tag.
    """
    run_id, _, process = run.tags.get(WORKER, "").partition(" ")
    return process if run_id == run.run_id else None


def _is_local(launched: str | None) -> bool:
    """Return whether the run's worker is on this host.

    This is true if the run's code server was reached by a socket, the loopback interface, or the name of this host.
    """
    info: dict[str, Any] = json.loads(launched) if launched else {}
    return "socket" in info or info.get("host") in {*LOOPBACK, socket.gethostname()}


def _named(instance: dg.DagsterInstance, run: dg.DagsterRun) -> tuple[int, float] | None:
    """Return the pid and the time of the first log entry with a pid. The worker of the run wrote this entry."""
    for record in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        event = record.dagster_event
        pid = event.engine_event_data.metadata.get("pid") if event else None
        if pid is not None:
            return int(str(pid.value)), record.timestamp
    return None


def _out_of_time(pid: int, seen_at: float) -> bool:
    try:
        process = psutil.Process(pid)
        return process.status() == psutil.STATUS_ZOMBIE or process.create_time() > seen_at + CLOCK_SECONDS
    except psutil.NoSuchProcess:
        return True
