"""A code location of plain Dagster on its own code server, and its runs, started by the launcher of the home."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import __version__
from dagster._cli.job import _create_run
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import GrpcServerTarget

from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.processes import free_port, is_free
from feed_assets_tests.support.servers import stop, wait_until

MODULE = "a_project"
PROJECT = """
import json, os, signal, sys, time
from pathlib import Path
import dagster as dg

LOADED_BY, VERSION = os.getpid(), {version}
{more}

@dg.op
def tell(context):
    found = {{"pid": os.getpid(), "parent": os.getppid(), "loaded by": LOADED_BY, "version": VERSION,
        "cwd": os.getcwd(), "marker": os.environ.get("MARKER"),
        "buries": signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL}}
    path = Path(os.environ["TOLD"], context.run_id)
    path.with_suffix(".new").write_text(json.dumps(found))
    path.with_suffix(".new").rename(path)

@dg.op
def wait(context, _before):
    while True:
        time.sleep(0.05)

@dg.job(executor_def=dg.in_process_executor)
def quick():
    tell()

@dg.job(executor_def=dg.in_process_executor)
def endless():
    wait(tell())

{defs}
"""
ONE = "defs = dg.Definitions(jobs=[quick, endless])"
SECONDS = 120


@dataclass
class Location:
    """A code location, its server, and reports of its runs."""

    folder: Path
    port: int
    instance: dg.DagsterInstance
    process: WorkspaceProcessContext
    server: "subprocess.Popen[bytes] | None" = None
    env: dict[str, str] | None = None

    def write(self, version: int, more: str = "") -> None:
        write(self.folder, version, more)

    def workspace(self) -> WorkspaceRequestContext:
        return self.process.create_request_context()

    def is_reached(self) -> bool:
        """Return True if the workspace reaches the current server."""
        self.process.refresh_workspace()
        return self.workspace().get_location_entry(MODULE).code_location is not None

    def reload(self) -> None:
        """Reload the location like the button of the UI."""
        self.process.reload_code_location(MODULE)

    def launch(self, job: str = "quick", repository: int = 0) -> str:
        """Launch a run; return its id."""
        run = self.create(job, repository)
        self.instance.launch_run(run.run_id, self.workspace())
        return run.run_id

    def create(self, job: str = "quick", repository: int = 0) -> dg.DagsterRun:
        """Create a run that is not launched yet."""
        location = self.workspace().get_code_location(MODULE)
        found = [*location.get_repositories().values()][repository]
        return _create_run(self.instance, location, found, found.get_full_job(job), {}, {}, None, None)

    def told(self, run_id: str) -> dict[str, Any]:
        """Return the report of the run's op."""
        path = self.folder / "told" / run_id
        wait_until(path.exists, f"run {run_id}; see {self.folder}", SECONDS)
        return json.loads(path.read_text())

    def run(self, repository: int = 0) -> dict[str, Any]:
        """Launch a run, wait for its end, and return its report."""
        run_id = self.launch(repository=repository)
        assert self.end(run_id) is dg.DagsterRunStatus.SUCCESS
        return self.told(run_id)

    def end(self, run_id: str) -> dg.DagsterRunStatus:
        """Return the final state of a run."""
        wait_until(lambda: self.status(run_id) in ENDS, f"run {run_id}; see {self.folder}", SECONDS)
        return self.status(run_id)

    def status(self, run_id: str) -> dg.DagsterRunStatus:
        return self.instance.get_run_by_id(run_id).status

    def said(self, run_id: str) -> list[str]:
        """Return the messages of a run's log."""
        return [each.message or "" for log in self.instance.all_logs(run_id) if (each := log.dagster_event)]


ENDS = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED}


def write(folder: Path, version: int, more: str = "", defs: str = ONE) -> None:
    (folder / f"{MODULE}.py").write_text(PROJECT.format(version=version, more=more, defs=defs))


def begin(folder: Path, port: int, env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the code server."""
    command = [sys.executable, "-m", "dagster", "code-server", "start", "-h", "127.0.0.1", "-p", str(port)]
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [*command, "-m", MODULE], cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_until(lambda: not is_free(port), f"the code server; see {folder}", SECONDS)
    except TimeoutError:
        stop(server)
        raise
    return server


@contextmanager
def served(folder: Path, home: Path, env: dict[str, str], more: str = "", defs: str = ONE) -> Iterator[Location]:
    """Serve the location until the block ends."""
    (folder / "told").mkdir(parents=True)
    write(folder, 1, more, defs)
    port, env = free_port(), {**env, "DAGSTER_HOME": str(prepare(home)), "TOLD": str(folder / "told")}
    server = begin(folder, port, env)
    try:
        with reached(folder, port) as location:
            location.server, location.env = server, env
            yield location
            server = location.server
    finally:
        stop(server)


@contextmanager
def reached(folder: Path, port: int) -> Iterator[Location]:
    """Provide the location of a server that another process has started."""
    target = GrpcServerTarget("127.0.0.1", port, None, MODULE)
    with dg.DagsterInstance.get() as instance, WorkspaceProcessContext(instance, target, __version__) as process:
        yield Location(folder, port, instance, process)
