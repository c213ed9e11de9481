"""`feed-assets ready`: whether one service works, as an exit code for systemd, compose and Kubernetes."""

from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from secrets import compare_digest, token_hex
from time import monotonic
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from feed_assets.cli.terminal import echo
from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import InvalidName
from feed_assets.core.limits import excerpt
from feed_assets.core.time_limits import in_time
from feed_assets.heartbeats import NotReady, check
from feed_assets.home import home

if TYPE_CHECKING:
    from http.client import HTTPConnection

SECONDS = 15.0
"""Seconds within which a server must answer, also one that sends its answer byte by byte."""

HEARTBEAT_SECONDS = 120.0
"""Age from which a heartbeat of Dagster's daemon no longer counts. The daemon gives one every half minute."""

WEB, CODE, DAEMON = "web", "code", "daemon"
PORTS = {WEB: 3000, CODE: 4000}

_ERROR_BYTES = 400
"""The most bytes of an error that a message quotes, because the error may contain whatever a server has sent."""

_BODY_BYTES = 100
"""Bytes of an answer's body that are read. A proof is shorter."""


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
        _web_answers(port or PORTS[WEB])
    elif service == CODE:
        _has_loaded(port or PORTS[CODE])
    elif service == DAEMON:
        _has_heartbeats(datetime.now(UTC).timestamp())
    elif "://" in service:
        _url_answers(service)
    else:
        check(home(), service, datetime.now(UTC).timestamp())
    echo(f"{service} works")


def _web_answers(port: int) -> None:
    """Raise NotReady unless the web UI answers a request with its token. No other server gets the token.

    While the web UI is down, any user of this machine can listen at its port. So the server first proves that it has
    the token. Only then is the token sent, over the same connection.
    """
    from http.client import HTTPConnection  # few commands need it

    from feed_assets.cli.front import PROOF, cookie_name, proof
    from feed_assets.cli.web_server import token_of_settings

    token, challenge = token_of_settings(), token_hex(32)
    server = HTTPConnection(LOOPBACK, port, timeout=SECONDS)
    with closing(server):
        _, answer = _answer(server, f"{PROOF}?challenge={challenge}", {})
        if not compare_digest(answer.strip(), proof(LOOPBACK, port, token, challenge=challenge).encode()):
            raise NotReady(
                f"what answers on port {port} of {LOOPBACK} does not prove that it has FEED_ASSETS_UI_TOKEN: expected "
                "`feed-assets web` with the same token and version. See which process listens there (`ss -ltnp`)."
            )
        server.auto_open = 0  # A new connection may lead to another process.
        _expect_ok(server, "/server_info", {"Cookie": f"{cookie_name(port)}={token}"})


def _has_loaded(port: int) -> None:
    """Raise NotReady unless a code server has loaded its code. The server's own health check does not require this."""
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
    from feed_assets.cli.loaded_location import found_instance

    if (opened := found_instance(home())) is None:
        raise NotReady(
            f"{home()} has no Dagster instance: expected its dagster.yaml. Set DAGSTER_HOME as the daemon has it."
        )
    with opened as instance:
        beats, parts = instance.get_daemon_heartbeats(), instance.get_required_daemon_types()
    oldest = now - HEARTBEAT_SECONDS
    if silent := sorted(name for name in parts if name not in beats or beats[name].timestamp < oldest):
        raise NotReady(
            f"the daemon gave no heartbeat of {', '.join(silent)} for {HEARTBEAT_SECONDS:g} s: expected one each half "
            "minute. Start it, or see its log."
        )


def _url_answers(url: str) -> None:
    """Raise NotReady unless a server answers a GET of an `http://` URL with 200. Redirects are not followed."""
    from http.client import HTTPConnection

    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidName(
            f"{url!r} is no service: expected connector, loader-NAME, {DAEMON}, {WEB}, {CODE} or http://HOST:PORT/PATH."
        )
    with closing(HTTPConnection(parts.hostname, parts.port or 80, timeout=SECONDS)) as server:
        _expect_ok(server, f"{parts.path or '/'}{'?' * bool(parts.query)}{parts.query}", {})


def _expect_ok(server: "HTTPConnection", path: str, headers: dict[str, str]) -> None:
    if (status := _answer(server, path, headers)[0]) != 200:
        raise NotReady(f"{_url(server, path)} answered {status}: expected 200. See its log.")


def _answer(server: "HTTPConnection", path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """Return the status of an answer, and the beginning of its body."""
    from http.client import HTTPException

    ends = monotonic() + SECONDS
    try:
        return in_time(partial(_read, server, path, headers), lambda: monotonic() >= ends, [server])
    except (OSError, HTTPException) as error:
        why = f"does not answer ({excerpt(str(error), _ERROR_BYTES)})"
        raise NotReady(f"{_url(server, path)} {why}: expected 200 within {SECONDS:g} s. See its log.") from error


def _read(server: "HTTPConnection", path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    server.request("GET", path, headers=headers)
    answer = server.getresponse()
    return answer.status, answer.read(_BODY_BYTES)


def _url(server: "HTTPConnection", path: str) -> str:
    """Return the URL for a message. Its query may have a secret of the operator."""
    return f"http://{server.host}:{server.port}{path.partition('?')[0]}"
