"""The web UI's process: the code servers and Dagster's web server as in `dagster dev`, behind our access control.

A proxy before `dagster dev` would leave Dagster's own port open to all. So Dagster's application runs in this process.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h11
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
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import http11

from feed_assets.cli.code_servers import kept_alive
from feed_assets.cli.front import Front
from feed_assets.cli.live import StatusPage
from feed_assets.cli.processes import NOWHERE, TOKEN, stop_once
from feed_assets.cli.project import location_of
from feed_assets.cli.project_code import attribute_for
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.limits import HEADERS
from feed_assets.settings import settings

CONNECTIONS = 500
"""The most open connections. With more, the process would have no free file, and gRPC ends such a process."""

_PIECE = 16_384
"""Bytes that h11 gets at a time, and its limit for an incomplete head. h11 does not limit a complete head."""

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
        served = WorkspaceFileTarget([str(file)])
        with (
            kept_alive(served.create_origins()),
            WorkspaceProcessContext(instance, served, __version__) as context,
        ):
            app = create_app_from_workspace_process_context(context, live_data_poll_rate=_POLL_MS)
            front = Front(StatusPage(app, name.partition(":")[0] or None), port, token)
            uvicorn.Server(server_config(front, host, port)).run()


class _BoundedHttp(h11.Connection):
    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and len(event.headers) > HEADERS:
            raise h11.RemoteProtocolError(f"found {len(event.headers)} headers, expected at most {HEADERS}")
        return event


class BoundedConnection(H11Protocol):
    """A connection with bounds: at most `CONNECTIONS` are open, and a head has at most 32 KiB and `HEADERS` headers.

    Without bounds, anybody who reaches the port could end the process before the front has refused a request.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _BoundedHttp(h11.SERVER, _PIECE)

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take the connection, or close it if too many are open."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse arrived bytes in pieces, unless the connection ends or becomes a WebSocket meanwhile."""
        for start in range(0, len(data), _PIECE):
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                break
            super().data_received(data[start : start + _PIECE])

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Begin a WebSocket. Close the connection if its handshake is malformed: uvicorn would never answer it."""
        super().handle_websocket_upgrade(event)
        websocket: Any = self.transport.get_protocol()
        if not websocket.handshake_initiated:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request. Close the connection if it has an answer already, such as a refusal.

        The application sees a disconnect. Otherwise its own answer would be one too many, and uvicorn would log that.
        """
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose client waits for the answer to its handshake, as the standard demands."""

    def data_received(self, data: bytes) -> None:
        """Parse arrived bytes. Close the connection if it is refused, or if its handshake has no answer yet.

        uvicorn has no state for such bytes: it would fail with a stack trace.
        """
        if self.transport.is_closing() or (self.handshake_initiated and not self.handshake_complete):
            self.disconnected = True
            self.transport.abort()
        else:
            super().data_received(data)


def server_config(front: Front, host: str, port: int) -> uvicorn.Config:
    """Return uvicorn's configuration to serve the front.

    Requests are not logged, because the address of the first one has the token. Malformed requests are not logged
    either, because anybody can send them.
    """
    http11.MAX_LINE_LENGTH = 2 * _PIECE  # The same limit as for a page's head: browsers send the cookies of all ports.
    return uvicorn.Config(
        front,
        host=host,
        port=port,
        http=BoundedConnection,
        ws=BoundedWebSocket,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=5,
    )


def workspace() -> WorkspaceLoadTarget:
    """Return the code locations of `workspace.yaml`.

    `project_code` loads a location that is a module. Dagster itself loads a location that is a file or a package.
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
