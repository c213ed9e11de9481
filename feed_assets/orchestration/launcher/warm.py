"""The run launcher that starts runs warm: each a fork of a process that has loaded the code location already.

What it cannot start so, it starts as Dagster does. Its runs are told from those by a tag that names their process.
"""

import signal
import sys
from contextlib import suppress
from threading import Lock
from typing import Any

import dagster as dg
import psutil

from feed_assets.orchestration.launcher.dagsters import (
    CheckRunHealthResult,
    GrpcServerCodeLocation,
    LaunchRunContext,
    WorkerStatus,
)
from feed_assets.orchestration.launcher.parent import Load
from feed_assets.orchestration.launcher.parents import Fork, NoParent, Parent, Unloadable, server_behind
from feed_assets.orchestration.ticks.left_runs import WORKER, gone, worker_of
from feed_assets.runs.services import is_dead, living


class WarmRunLauncher(dg.DefaultRunLauncher):
    """Dagster's default launcher, without the seconds that a process takes to load the code location for each run."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parents: dict[str, Parent | Unloadable] = {}
        self._starting = Lock()

    def launch_run(self, context: LaunchRunContext) -> None:
        """Begin a run: warm if it can be, else as Dagster does. No fork begins a run before its tag is written."""
        run = context.dagster_run
        try:
            fork = self._fork(context)
        except NoParent as why:
            self._say(run, f"The process of this run is not warm: {why}.")
            super().launch_run(context)
            return
        self._instance.add_run_tags(run.run_id, {WORKER: f"{run.run_id} {fork.name}"})
        fork.go()

    def _fork(self, context: LaunchRunContext) -> Fork:
        """A process for a run, of another parent if the one that there was has ended. Raises NoParent."""
        parent = self._parent(context)
        with suppress(NoParent):
            return parent.fork(context.dagster_run.run_id)
        return self._parent(context).fork(context.dagster_run.run_id)

    def _parent(self, context: LaunchRunContext) -> Parent:
        """The parent of what the code server has loaded now. Raises NoParent."""
        location, wanted = self._wanted(context)
        load = _load_of(location, wanted)
        with self._starting:
            kept = self._parents.get(wanted.location)
            if not kept or kept.load != load or kept.has_ended:
                if kept:
                    kept.end()
                kept = self._parents[wanted.location] = _started(load, location, wanted)
        if isinstance(kept, Unloadable):
            raise NoParent(kept.why)
        return kept

    def _wanted(self, context: LaunchRunContext) -> tuple[GrpcServerCodeLocation, Load]:
        run, workspace = context.dagster_run, context.workspace
        if sys.platform != "linux":
            raise NoParent("processes are forked safely on Linux only")
        if workspace is None or run.remote_job_origin is None or run.job_code_origin is None:
            raise NoParent("it does not say which code location it is of")
        location = workspace.get_code_location(run.remote_job_origin.location_name)
        if not isinstance(location, GrpcServerCodeLocation):
            raise NoParent("its code location has no server")
        origin = run.job_code_origin.repository_origin
        return location, Load(self._instance.get_ref(), origin, location.name)

    def terminate(self, run_id: str) -> bool:
        """Interrupt a run, as a code server does its own; whether it ends."""
        run = self._instance.get_run_by_id(run_id)
        worker = worker_of(run) if run and not run.is_finished else None
        if run is None or worker is None:
            return super().terminate(run_id)
        self._instance.report_run_canceling(run)
        if process := living(worker):
            process.send_signal(signal.SIGINT)
        elif is_dead(worker):
            self._instance.report_run_canceled(run)
        else:
            self._say(run, f"Its process cannot be reached from this host: {worker}.")
            return False
        return True

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Dagster's monitoring may ask."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the process of a run is surely gone; of a cold one, too, whose code server may have ended."""
        if process := gone(self._instance, run):
            return CheckRunHealthResult(WorkerStatus.FAILED, f"its process is gone ({process})")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def dispose(self) -> None:
        """End the parents; runs go on."""
        with self._starting:
            while self._parents:
                self._parents.popitem()[1].end()

    def _say(self, run: dg.DagsterRun, words: str) -> None:
        self._instance.report_engine_event(words, run, cls=type(self))


def _load_of(location: GrpcServerCodeLocation, wanted: Load) -> str:
    """What tells this load of a code location from those before and after: its server says so at each reload."""
    return f"{location.client.get_server_id()} {wanted.origin.get_id()}"


def _started(load: str, location: GrpcServerCodeLocation, wanted: Load) -> Parent | Unloadable:
    """A parent that has loaded nothing older than what the code server has."""
    try:
        parent = Parent.start(load, server_behind(location.client), wanted)
    except NoParent as why:
        return Unloadable(load, str(why))
    except (OSError, psutil.Error) as error:
        return Unloadable(load, f"no process can be started as the code server was ({error})")
    if _load_of(location, wanted) == load:
        return parent
    parent.end()
    return Unloadable(load, "the code location was loaded again meanwhile")
