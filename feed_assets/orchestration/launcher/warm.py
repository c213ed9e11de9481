"""The run launcher that starts runs warm: each run is a fork of a process that has already loaded the code location.

The launcher starts all other runs as Dagster does. Warm runs have a tag with their process.
"""

import signal
import sys
from contextlib import suppress
from threading import Lock, Timer
from time import monotonic
from typing import Any

import dagster as dg
import psutil

from feed_assets.orchestration.launcher.dagster_private import (
    CheckRunHealthResult,
    GrpcServerCodeLocation,
    LaunchRunContext,
    WorkerStatus,
)
from feed_assets.orchestration.launcher.parent import Load
from feed_assets.orchestration.launcher.parents import LAUNCH_SECONDS, Fork, NoParent, Parent, Unloadable, server_behind
from feed_assets.orchestration.ticks.dead_runs import WORKER, gone, worker_of
from feed_assets.runs.services import living

NONE = "none"
"""The value of the process tag if a run has no warm process after all.

The tag gets this value because Dagster cannot remove a tag.
"""


class WarmRunLauncher(dg.DefaultRunLauncher):
    """Dagster's default launcher, but without loading the code location for each run, which takes seconds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parents: dict[tuple[str, str], Parent | Unloadable] = {}  # by location and repository origin
        self._starting = Lock()

    def launch_run(self, context: LaunchRunContext) -> None:
        """Start a run: as a fork if possible, otherwise as Dagster does."""
        run = context.dagster_run
        try:
            self._begin(run, self._fork(context))
        except NoParent as why:
            self._say(run, f"The process of this run is not warm: {why}.")
            super().launch_run(context)

    def _begin(self, run: dg.DagsterRun, fork: Fork) -> None:
        """Write the tag with the run's process, then let the fork start the run.

        Raise NoParent if the fork has ended.
        """
        self._instance.add_run_tags(run.run_id, {WORKER: f"{run.run_id} {fork.name}"})
        try:
            fork.go()
        except NoParent:
            # Otherwise the tag would name a process that has ended, and the run would seem dead.
            self._instance.add_run_tags(run.run_id, {WORKER: NONE})
            raise

    def _fork(self, context: LaunchRunContext) -> Fork:
        """Fork a process for a run from the parent, which has loaded the code location.

        If the parent has ended, start a new parent. Raise NoParent if that fails, too.
        """
        run_id, until = context.dagster_run.run_id, monotonic() + LAUNCH_SECONDS
        parent = self._parent(context, until)
        with suppress(NoParent):
            return parent.fork(run_id, until)
        return self._parent(context, until).fork(run_id, until)

    def _parent(self, context: LaunchRunContext, until: float) -> Parent:
        """Return a parent, a process that forks runs, with the same code as the code server has now.

        Raise NoParent if no parent can be started.
        """
        location, load_request = self._load_request(context)
        load, key = location.client.get_server_id(LAUNCH_SECONDS), (load_request.location, load_request.origin.get_id())
        with self._starting:
            self._end_all_but(load, load_request.location)
            if key not in self._parents:
                self._parents[key] = _started(load, location, load_request, until)
            kept = self._parents[key]
        if isinstance(kept, Unloadable):
            raise NoParent(kept.why)
        return kept

    def _end_all_but(self, load: str, location: str) -> None:
        """Drop parents of a location that have ended, or that have loaded another state of its code than `load`.

        Also drop failed loads of another state of the code, and failed loads that are tried again now.
        """
        for key, each in [*self._parents.items()]:
            if key[0] == location and (each.load != load or each.has_ended):
                self._parents.pop(key).end()

    def _load_request(self, context: LaunchRunContext) -> tuple[GrpcServerCodeLocation, Load]:
        run, workspace = context.dagster_run, context.workspace
        if sys.platform != "linux":
            raise NoParent("processes are forked safely on Linux only")
        if workspace is None or run.remote_job_origin is None or run.job_code_origin is None:
            raise NoParent("the run does not name its code location")
        location = workspace.get_code_location(run.remote_job_origin.location_name)
        if not isinstance(location, GrpcServerCodeLocation):
            raise NoParent("the run's code location has no server")
        origin = run.job_code_origin.repository_origin
        return location, Load(self._instance.get_ref(), origin, location.name)

    def terminate(self, run_id: str) -> bool:
        """Interrupt a run, as a code server does.

        Return whether this ends the run. A hanging process is killed later.
        """
        run = self._instance.get_run_by_id(run_id)
        worker = worker_of(run) if run and not run.is_finished else None
        if run is None or worker is None:
            return super().terminate(run_id)
        self._instance.report_run_canceling(run)
        if process := living(worker):
            process.send_signal(signal.SIGINT)
            self._kill_later(process)
        elif gone(self._instance, run):
            self._instance.report_run_canceled(run)
        else:
            self._say(run, f"The process of this run cannot be reached from this host: {worker}.")
            return False
        return True

    def _kill_later(self, process: psutil.Process) -> None:
        """Kill a process that still runs when Dagster's monitoring marks its run as canceled.

        After that moment, Dagster may start another run of the same partition.
        """
        if seconds := self._instance.run_monitoring_cancel_timeout_seconds:
            timer = Timer(seconds, _kill, [process])
            timer.daemon = True
            timer.start()

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Return True, so that Dagster's monitoring calls `check_run_worker_health`."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Return whether the process of a run is gone for certain.

        This also works for a cold run whose code server has ended.
        """
        if process := gone(self._instance, run):
            return CheckRunHealthResult(WorkerStatus.FAILED, f"the process of the run is gone ({process})")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def dispose(self) -> None:
        """End the parents. Runs continue."""
        with self._starting:
            while self._parents:
                self._parents.popitem()[1].end()

    def _say(self, run: dg.DagsterRun, words: str) -> None:
        self._instance.report_engine_event(words, run, cls=type(self))


def _kill(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()


def _started(load: str, location: GrpcServerCodeLocation, load_request: Load, until: float) -> Parent | Unloadable:
    """Return a parent that has loaded the same code as the server, or the reason why there is none.

    Each load of the code has a new id, so an unchanged id shows that both have the same code.
    """
    try:
        server = server_behind(location.client, load_request.origin.executable_path)
        parent = Parent.start(load, server, load_request, until)
    except NoParent as why:
        return Unloadable(load, str(why))
    except (OSError, psutil.Error) as error:
        return Unloadable(load, f"no process can be started like the code server ({error})")
    if location.client.get_server_id(LAUNCH_SECONDS) == load:
        return parent
    parent.end()
    return Unloadable(load, "the code location was loaded again meanwhile")
