"""Figures for Prometheus as text, and the server of `feed-assets metrics --port`."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import SHUT_RD
from threading import Timer
from typing import TYPE_CHECKING, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from feed_assets.cli.connector import stopped_by_signals
from feed_assets.cli.gauges import figures
from feed_assets.core.errors import InvalidSetting
from feed_assets.home import say
from feed_assets.settings import settings

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.registry import Collector

READ_SECONDS = 5.0
"""Seconds that a client may be silent, and that its whole request may take.

Requests are answered one at a time, so they never start many queries at once.

Whoever may reach the port can delay other readers of the figures, and nothing else.
"""

PATH = "/metrics"


def serve(host: str, port: int) -> None:
    """Serve the figures until a signal arrives. Raise InvalidSetting if no server can listen at this address."""
    settings()  # Read them before the first line is printed: they say whether lines are JSON.
    with listening(host, port) as server:
        say(f"metrics are at http://{host}:{server.server_port}{PATH}")
        stopping = stopped_by_signals()
        while not stopping.is_set():
            server.handle_request()


def text_of_metrics() -> str:
    """Return all figures in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast("Collector", _Gauges()))
    return generate_latest(registry).decode()


class _Gauges:
    """A collector of prometheus_client. It reads all figures anew each time."""

    def collect(self) -> "Iterator[Metric]":
        for each in figures(datetime.now(UTC)):
            metric = GaugeMetricFamily(f"feed_assets_{each.name}", each.text, labels=each.labels)
            for labels, value in each.values:
                metric.add_metric(labels, value)
            yield metric

    def describe(self) -> "list[Metric]":
        """Return no names, so that registering reads nothing."""
        return []


class _Server(HTTPServer):
    timeout = 1.0  # A signal to stop is seen after this time.

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 (as http.server calls it)
        """Write a line in place of a stack trace. Write nothing if the client has gone."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            say(f"metrics: a request was not answered: {error}", level="warning")


class _Answer(BaseHTTPRequestHandler):
    timeout = READ_SECONDS

    def handle(self) -> None:
        """Answer a request. End the connection if the request takes too long, even if single bytes still arrive."""
        self._deadline = Timer(READ_SECONDS, self._end)
        self._deadline.start()
        try:
            super().handle()
        finally:
            self._deadline.cancel()

    def _end(self) -> None:
        with suppress(OSError):  # The client may be gone.
            self.connection.shutdown(SHUT_RD)

    def do_GET(self) -> None:
        self._deadline.cancel()
        is_known = self.path == PATH
        body = text_of_metrics().encode() if is_known else f"The figures are at {PATH}.\n".encode()
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name in http.server)
        """Log no requests."""


def listening(host: str, port: int) -> HTTPServer:
    """Return a server at an address. Raise InvalidSetting if nothing can listen there."""
    try:
        return _Server((host, port), _Answer)
    except OSError as error:
        raise InvalidSetting(
            f"nothing can listen at {host}:{port} ({error}): choose another --port or --host."
        ) from error
