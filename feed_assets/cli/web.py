"""The web UI's process: the code servers and Dagster's web server as in `dagster dev`, behind our access control.

A proxy before `dagster dev` would leave Dagster's own port open to all. So Dagster's application runs in this process.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn
import yaml
from dagster import DagsterInstance, __version__
from dagster._cli.proxy_server_manager import ProxyServerManager
from dagster._core.remote_origin import CodeLocationOrigin, ManagedGrpcPythonEnvCodeLocationOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import ModuleTarget, WorkspaceFileTarget, WorkspaceLoadTarget
from dagster._utils.log import configure_loggers
from dagster_webserver.app import (
    create_app_from_workspace_process_context,  # pyright: ignore[reportUnknownVariableType]
)
from uvicorn.protocols.http.h11_impl import H11Protocol

from feed_assets.cli.front import Front
from feed_assets.cli.live import StatusPage
from feed_assets.cli.processes import NOWHERE, TOKEN, stop_once
from feed_assets.cli.project import location_of
from feed_assets.cli.project_code import attribute_for
from feed_assets.core.addresses import LOOPBACK
from feed_assets.settings import settings

CONNECTIONS = 500
"""The most open connections. With more the process would have no file left, and gRPC ends a process that has none."""

_POLL_MS = 2000
_STATEMENT_MS, _RECYCLE_SECONDS, _OVERFLOW = 15_000, 3600, 20
"""The defaults of Dagster's own command for these options."""


def serve(port: int, file: Path, name: str, host: str = LOOPBACK) -> None:
    """Serve the web UI until a signal. `name` is an attribute of `project_code`, or '' for `workspace.yaml`.

    The addresses of the code servers are written to `file`. The daemon starts later, and reads them there.
    """
    token = os.environ.pop(TOKEN)
    configure_loggers(formatter="json" if settings().logs == "json" else "colored", log_level="INFO")
    target = _of_project(name, location_of(name.partition(":")[0])) if name else workspace()
    with (
        DagsterInstance.get() as instance,
        ProxyServerManager(instance, target, code_server_log_level="WARNING") as servers,
    ):
        file.write_text(yaml.dump({"load_from": servers.get_code_server_specs()}), encoding="utf-8")
        instance.optimize_for_webserver(_STATEMENT_MS, _RECYCLE_SECONDS, _OVERFLOW)
        with WorkspaceProcessContext(instance, WorkspaceFileTarget([str(file)]), __version__) as context:
            app = create_app_from_workspace_process_context(context, live_data_poll_rate=_POLL_MS)
            front = Front(StatusPage(app, name.partition(":")[0] or None), port, token)
            uvicorn.Server(server_config(front, host, port)).run()


class BoundedConnection(H11Protocol):
    """A connection that is closed at once if `CONNECTIONS` are open. h11 bounds the head of a request: 64 KiB.

    Without bounds, anybody who reaches the port could end the process before the front has refused a request.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take the connection, or close it."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()


def server_config(front: Front, host: str, port: int) -> uvicorn.Config:
    """Return how the front is served.

    Requests are not logged, because the address of the first one has the token. Nor are malformed ones: anybody can
    send them.
    """
    return uvicorn.Config(
        front,
        host=host,
        port=port,
        http=BoundedConnection,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=5,
    )


def workspace() -> WorkspaceLoadTarget:
    """Return the code locations of `workspace.yaml`.

    `project_code` loads those that are modules. Dagster itself loads those that are files or packages.
    """
    return _Mended(["workspace.yaml"])


class _Mended(WorkspaceFileTarget):
    def create_origins(self) -> Sequence[CodeLocationOrigin]:
        return [_mended(each) for each in super().create_origins()]


def _mended(origin: CodeLocationOrigin) -> CodeLocationOrigin:
    if not isinstance(origin, ManagedGrpcPythonEnvCodeLocationOrigin):
        return origin
    named = origin.loadable_target_origin
    if named.module_name is None or named.executable_path is not None:  # Another Python may lack feed_assets.
        return origin
    name = attribute_for(named.module_name, named.attribute, named.working_directory or str(Path.cwd()))
    return _of_project(name, origin.location_name).create_origins()[0]


def _of_project(name: str, location: str) -> ModuleTarget:
    return ModuleTarget("feed_assets.cli.project_code", name, NOWHERE, location_name=location)


if __name__ == "__main__":
    stop_once()
    try:
        serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    except KeyboardInterrupt:
        sys.exit(0)
