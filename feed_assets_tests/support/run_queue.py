"""Dagster's queue of runs with our dagster.yaml. A test decides when a launched run begins."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import SubmitRunContext
from dagster._core.test_utils import MockedRunLauncher
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon

from feed_assets.cli.loaded_location import prepare

WARM = """  module: feed_assets.orchestration.launcher.warm
  class: WarmRunLauncher"""
MOCKED = """  module: dagster._core.test_utils
  class: MockedRunLauncher"""


def queued_instance(home: Path) -> dg.DagsterInstance:
    """Return the instance of a home folder, whose launcher only records the runs."""
    config = prepare(home) / "dagster.yaml"
    config.write_text(config.read_text().replace(WARM, MOCKED))
    return dg.DagsterInstance.get()


class RunQueue:
    """The queue of an instance, and Dagster's daemon that launches runs from it."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.daemon = instance, QueuedRunCoordinatorDaemon(1)

    @property
    def launched(self) -> list[dg.DagsterRun]:
        """Return the launched runs, oldest first."""
        launcher: Any = self.instance.run_launcher
        assert isinstance(launcher, MockedRunLauncher)
        return launcher.queue()

    def put(self, job: dg.JobDefinition, tags: Mapping[str, str], **options: Any) -> None:
        """Submit a run as a sensor's daemon does for a request."""
        origin = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("here"), "here").get_job_origin(job.name)
        run = self.instance.create_run_for_job(job, tags={**tags}, remote_job_origin=origin, **options)  # pyright: ignore[reportArgumentType]
        self.instance.run_coordinator.submit_run(SubmitRunContext(run, workspace=None))  # pyright: ignore[reportArgumentType]

    def turn(self) -> list[dg.DagsterRun]:
        """Run one iteration of the daemon, and return the runs that it launched."""
        before = len(self.launched)
        workspace = SimpleNamespace(instance=self.instance, create_request_context=lambda: None)
        for _ in self.daemon.run_iteration(workspace):  # pyright: ignore[reportArgumentType]
            pass
        return self.launched[before:]

    def execute(self, job: dg.JobDefinition, number: int) -> bool:
        """Execute the launched run of this number to its end. Return whether it succeeded."""
        run = self.instance.get_run_by_id(self.launched[number].run_id)
        assert run
        execute_run(InMemoryJob(job), run, self.instance)
        return self.instance.get_run_by_id(run.run_id).is_success
