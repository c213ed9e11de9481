"""`feed-assets ready`: whether one service works, as an exit code for systemd, compose and Kubernetes."""

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

WEB = "web"


def ready(
    service: Annotated[
        str,
        typer.Argument(
            metavar="SERVICE", help="connector, loader-NAME or web on this host, or http://HOST:PORT/PATH that answers."
        ),
    ],
    port: Annotated[int, typer.Option(help="Port of the web UI.")] = 3000,
) -> None:
    """Check whether a service works. The exit code is 1 and the reason is on stderr if it does not, or not yet.

    Connector and loaders give a sign of life in the home folder, so the command needs the same DAGSTER_HOME.
    """
    if service == WEB:
        _answers(f"http://{LOOPBACK}:{port}/server_info", {"Cookie": f"feed_assets_{port}={_token()}"})
    elif "://" in service:
        _answers(service, {})
    else:
        check(home(), service, datetime.now(UTC).timestamp())
    echo(f"{service} works")


def _token() -> str:
    from feed_assets.cli.web_server import token_of_settings

    return token_of_settings()


def _answers(url: str, headers: dict[str, str]) -> None:
    """Raise NotReady unless a server answers a GET of an `http://` URL with 200. Redirects are not followed."""
    from http.client import HTTPConnection, HTTPException  # few commands need it

    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidName(f"{url!r} is no service: expected connector, loader-NAME, {WEB} or http://HOST:PORT/PATH.")
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
