"""`feed-assets ready`: whether one service works, as an exit code for systemd, compose and Kubernetes."""

import os
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

import typer

from feed_assets.cli.terminal import echo
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import InvalidName
from feed_assets.heartbeats import NotReady, check
from feed_assets.home import home

SECONDS = 15.0
"""Seconds within which a server must answer."""

HEARTBEAT_SECONDS = 120.0
"""Age of a heartbeat of Dagster's daemon from which it no longer counts. It gives one each half minute."""

WEB, CODE, DAEMON = "web", "code", "daemon"
PORTS = {WEB: 3000, CODE: 4000}


def ready(
    service: Annotated[
        str,
        typer.Argument(
            metavar="SERVICE",
            help="connector, loader-NAME, daemon, web or code on this host, or http://HOST:PORT/PATH that answers.",
        ),
    ],
    port: Annotated[int | None, typer.Option(help="Port of the web UI (3000) or the code server (4000).")] = None,
) -> None:
    """Check whether a service works. The exit code is 1 and the reason is on stderr if it does not, or not yet.

    Connector, loaders and daemon give a sign of life in the home, so the command needs the same DAGSTER_HOME.
    """
    if service == WEB:
        at = port or PORTS[WEB]
        _answers(f"http://{LOOPBACK}:{at}/server_info", {"Cookie": f"feed_assets_{at}={_token()}"})
    elif service == CODE:
        _has_loaded(port or PORTS[CODE])
    elif service == DAEMON:
        _has_heartbeats(datetime.now(UTC).timestamp())
    elif "://" in service:
        _answers(service, {})
    else:
        check(home(), service, datetime.now(UTC).timestamp())
    echo(f"{service} works")


def _token() -> str:
    from feed_assets.cli.web_server import token_of_settings

    return token_of_settings()


def _has_loaded(port: int) -> None:
    """Raise NotReady unless a code server has loaded its code. Its own health check passes without."""
    from dagster._api.list_repositories import sync_list_repositories_grpc
    from dagster._core.errors import DagsterUserCodeProcessError, DagsterUserCodeUnreachableError
    from dagster._grpc.client import DagsterGrpcClient

    address = f"the code server at {LOOPBACK}:{port}"
    try:
        sync_list_repositories_grpc(DagsterGrpcClient(host=LOOPBACK, port=port))
    except DagsterUserCodeUnreachableError as error:
        raise NotReady(f"{address} does not answer: expected its repositories. Start it, or see its log.") from error
    except DagsterUserCodeProcessError as error:
        infos = error.user_code_process_error_infos
        first = str(infos[0].message).strip().splitlines()[0] if infos else str(error)
        raise NotReady(
            f"{address} could not load its code ({first}): expected definitions. Correct it and restart the server."
        ) from error


def _has_heartbeats(now: float) -> None:
    """Raise NotReady unless all parts of the daemon gave a heartbeat within `HEARTBEAT_SECONDS`."""
    import dagster as dg

    if not (home() / "dagster.yaml").exists():
        raise NotReady(
            f"{home()} has no Dagster instance: expected its dagster.yaml. Set DAGSTER_HOME as the daemon has it."
        )
    os.environ["DAGSTER_HOME"] = str(home())
    with dg.DagsterInstance.get() as instance:
        beats, parts = instance.get_daemon_heartbeats(), instance.get_required_daemon_types()
    oldest = now - HEARTBEAT_SECONDS
    if silent := sorted(name for name in parts if name not in beats or beats[name].timestamp < oldest):
        raise NotReady(
            f"the daemon gave no heartbeat of {', '.join(silent)} for {HEARTBEAT_SECONDS:g} s: expected one each half "
            "minute. Start it, or see its log."
        )


def _answers(url: str, headers: dict[str, str]) -> None:
    """Raise NotReady unless a server answers a GET of an `http://` URL with 200. Redirects are not followed."""
    from http.client import HTTPConnection, HTTPException  # few commands need it

    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidName(
            f"{url!r} is no service: expected connector, loader-NAME, {DAEMON}, {WEB}, {CODE} or http://HOST:PORT/PATH."
        )
    server = HTTPConnection(parts.hostname, parts.port or 80, timeout=SECONDS)
    try:
        server.request("GET", f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}", headers=headers)
        status = server.getresponse().status
    except (OSError, HTTPException) as error:
        raise NotReady(f"{url} does not answer ({error}): expected 200 within {SECONDS:g} s. See its log.") from error
    finally:
        server.close()
    if status != 200:
        raise NotReady(f"{url} answered {status}: expected 200. See its log.")
