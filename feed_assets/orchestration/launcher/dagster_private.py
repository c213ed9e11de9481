"""Private names of Dagster that the launcher needs, all in one place.

A test checks these names, and fails if a newer Dagster has moved one of them.
"""

import dagster as dg
from dagster._cli.api import _execute_run_command_body  # pyright: ignore[reportPrivateUsage]
from dagster._core.instance.ref import InstanceRef
from dagster._core.launcher.base import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from dagster._core.origin import RepositoryPythonOrigin
from dagster._core.remote_representation.code_location import GrpcServerCodeLocation
from dagster._grpc.client import DagsterGrpcClient
from dagster._utils.hosted_user_process import recon_repository_from_origin
from dagster._utils.interrupts import capture_interrupts

__all__ = [
    "CheckRunHealthResult",
    "DagsterGrpcClient",
    "GrpcServerCodeLocation",
    "InstanceRef",
    "LaunchRunContext",
    "RepositoryPythonOrigin",
    "WorkerStatus",
    "capture_interrupts",
    "execute",
    "load",
    "variables",
]


def load(origin: RepositoryPythonOrigin) -> None:
    """Load a code location as a run's process does, so that forks of this process have it in memory."""
    recon_repository_from_origin(origin).get_definition().load_all_definitions()


def variables(instance: InstanceRef, location: str) -> dict[str, str]:
    """Return the environment variables that the instance adds for a code location."""
    loader = instance.secrets_loader
    return dict(loader.get_secrets_for_environment(location)) if loader else {}


def execute(run_id: str, instance: InstanceRef) -> int:
    """Execute a run as `dagster api execute_run` does. Return the exit code.

    Dagster does not start a run that is already being canceled, and would leave it in this state until a time-out. So
    this function marks such a run as canceled.
    """
    with dg.DagsterInstance.from_ref(instance) as opened:
        code = _execute_run_command_body(run_id, opened, lambda _: None, set_exit_code_on_failure=True)
        run = opened.get_run_by_id(run_id)
        if run and run.status is dg.DagsterRunStatus.CANCELING:
            opened.report_run_canceled(run)
        return code
