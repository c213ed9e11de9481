"""A web server for alerts, and shortcuts to configure channels and to deliver."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import quote

import pytest
from pydantic import SecretStr

from feed_assets.alerts import Channel, channels, deliver
from feed_assets.ledger.alerts import undelivered
from feed_assets.ledger.database import Ledger
from feed_assets.settings import Settings
from feed_assets_tests.support.mail_server import PASSWORD, USER, MailServer

NOW = datetime(2019, 11, 25, 7, tzinfo=UTC)
LATER = NOW + timedelta(hours=2)
NAME, OTHER = "missing:sales/orders", "missing:sales/returns"
SECRET = "a long random text"


@dataclass
class Receiver:
    """A web server that records each POST. It answers with these statuses in turn, then with 204."""

    url: str
    posted: list[tuple[str, bytes]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)

    @property
    def states(self) -> list[tuple[str, str]]:
        return [(alert["name"], alert["state"]) for alert in map(json.loads, (body for _, body in self.posted))]

    @property
    def ids(self) -> list[str]:
        return [json.loads(body)["id"] for _, body in self.posted]


@contextmanager
def web_server() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.posted.append((self.headers["X-Feed-Assets-Signature"], body))
            self.send_response(receiver.answers.pop(0) if receiver.answers else 204)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            self.send_response(200)  # A client that follows the redirect would take this for success.
            self.end_headers()

        def log_message(self, format, *args):  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}/hook")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()


def by_webhook(receiver: Receiver) -> dict[str, Channel]:
    return channels(Settings(alert_webhook=SecretStr(receiver.url), alert_secret=SecretStr(SECRET)))


def by_mail(url: str, **more) -> dict[str, Channel]:
    settings = {"alert_mail_from": "lake@example.com", "alert_mail_to": "ops@example.com, boss@example.com", **more}
    return channels(Settings(alert_smtp=SecretStr(url), **settings))


def with_user(server: MailServer, scheme: str = "smtp", password: str = PASSWORD) -> str:
    return f"{scheme}://{quote(USER)}:{quote(password, safe='')}@127.0.0.1:{server.port}"


def deliver_alerts(ledger: Ledger, configured: dict[str, Channel], now: datetime = NOW) -> None:
    deliver(ledger, configured, now, lambda: False)


def undelivered_alerts(ledger: Ledger, *names: str) -> list[tuple[str, str, str]]:
    with ledger.read() as connection:
        return [(each.channel, each.name, each.state) for each in undelivered(connection, names)]


def logged_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records if each.name == "feed_assets.alerts"]
