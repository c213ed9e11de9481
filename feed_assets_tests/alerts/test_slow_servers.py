"""Servers that drip: a delivery has one deadline for all of it, and a tick its own for all deliveries."""

import gc
import os
from collections.abc import Callable
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from threading import enumerate as all_threads
from time import monotonic
from uuid import UUID

import pytest
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from pydantic import SecretStr

from feed_assets import alerts
from feed_assets.alerts import FEWEST_SECONDS, Channel, channels, deliver
from feed_assets.core.errors import SinkUnavailable
from feed_assets.settings import Settings
from feed_assets.sources import openlineage
from feed_assets.sources.openlineage import OpenLineageSink
from feed_assets_tests.support.alert_channels import (
    LATER,
    NAME,
    NOW,
    OTHER,
    Receiver,
    by_mail,
    by_webhook,
    deliver_alerts,
    logged_lines,
    undelivered_alerts,
)
from feed_assets_tests.support.alert_steps import raise_alert
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.slow_servers import dripping, flooding

HEADERS = b"HTTP/1.1 200 OK\r\nX-Slow: "
GREETING = b"220-"
SECONDS = 1
"""Limit of one delivery in these tests."""

SOON = 30
"""Seconds within which a delivery must end on a busy machine; without a deadline it would never end."""


@pytest.fixture(autouse=True)
def soon_over(monkeypatch):
    monkeypatch.setattr(alerts, "CHANNEL_SECONDS", SECONDS)


def to_webhook(port: int) -> dict[str, Channel]:
    return by_webhook(Receiver(f"http://127.0.0.1:{port}/hook"))


def to_mail(port: int) -> dict[str, Channel]:
    return by_mail(f"smtp://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("make", "beginning", "channel"), [(to_webhook, HEADERS, "webhook"), (to_mail, GREETING, "mail")]
)
def test_slow_alert_server_is_left_at_its_deadline_and_disconnected(
    ledger, caplog, make: Callable[[int], dict[str, Channel]], beginning, channel
):
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    with dripping(beginning) as server:
        began = monotonic()
        deliver_alerts(ledger, make(server.port))
        took = monotonic() - began
        assert server.gone.wait(5)
    assert SECONDS <= took < SOON
    assert server.callers == 1
    assert undelivered_alerts(ledger, channel) == [(channel, NAME, "opened"), (channel, OTHER, "opened")]
    assert "did not finish within" in logged_lines(caplog)[-1][1]


MUCH = 32 << 20
"""More bytes than a client's limit and the buffers of both sides together."""
MOVED = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n"
FLOODS = {
    "refusals of a webhook": (to_webhook, b"POST", b"HTTP/1.1 500 no\r\n\r\n", b"0" * 65536, "answered with 500"),
    "redirects of a webhook": (to_webhook, b"POST", MOVED + b"\r\n", b"0" * 65536, "answered with 302"),
    "first heads": (to_webhook, b"POST", b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4096, "no answer (ConnectionError)"),
    "greetings": (to_mail, b"EHLO", b"", b"250-" + b"x" * 4000 + b"\r\n", "the answer is larger than 2 MiB"),
    "refusals of a mail": (to_mail, b"RCPT", b"", b"550-" + b"x" * 4000 + b"\r\n", "the answer is larger than 2 MiB"),
}


@pytest.mark.parametrize("case", FLOODS)
def test_alert_server_that_answers_without_end_fills_no_memory(ledger, caplog, monkeypatch, case):
    make, command, head, block, why = FLOODS[case]
    monkeypatch.setattr(alerts, "CHANNEL_SECONDS", SOON)
    raise_alert(ledger, NAME, "late", NOW)
    with flooding(command, head, block) as server:
        deliver_alerts(ledger, make(server.port))
    assert server.sent < MUCH
    assert why in logged_lines(caplog)[-1][1]


def test_a_long_refusal_of_a_mail_is_logged_in_short(ledger, caplog):
    raise_alert(ledger, NAME, "late", NOW)
    lines = (b"550-" + b"x" * 4000 + b"\r\n") * 100 + b"550 no\r\n"
    with flooding(b"RCPT", lines, b"") as server:
        deliver_alerts(ledger, to_mail(server.port))
    assert "refused the mail" in logged_lines(caplog)[-1][1]
    assert len(logged_lines(caplog)[-1][1]) < 2000


@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
def test_slow_proxy_and_slow_tls_server_are_left_at_their_deadline(ledger, trusted, monkeypatch):
    raise_alert(ledger, NAME, "late", NOW)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", os.environ["SSL_CERT_FILE"])
    with dripping(HEADERS, trusted) as server:
        deliver_alerts(ledger, by_webhook(Receiver(f"https://127.0.0.1:{server.port}/hook")))
        assert server.gone.wait(5)
    with dripping(HEADERS) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        deliver_alerts(ledger, by_webhook(Receiver("https://webhook.example/hook")), LATER)
        assert proxy.gone.wait(5)
        assert proxy.callers == 1
    # Python leaves a socket open that is reset before its TLS begins. Its warning belongs here, not to a later test.
    wait_until(lambda: not any("_settle" in each.name for each in all_threads()), "the deliveries to end")
    gc.collect()


def test_expired_tick_leaves_each_channel_the_minimum_seconds(ledger, monkeypatch):
    monkeypatch.setattr(alerts, "CHANNEL_SECONDS", SOON)
    raise_alert(ledger, NAME, "late", NOW)
    with dripping(HEADERS) as web, dripping(GREETING) as mail:
        began = monotonic()
        deliver(ledger, to_webhook(web.port) | to_mail(mail.port), NOW, lambda: True)
        took = monotonic() - began
    assert 2 * FEWEST_SECONDS <= took < SOON
    assert (web.callers, mail.callers) == (1, 1)


def test_a_delivery_ends_with_the_time_of_the_tick(ledger, monkeypatch):
    monkeypatch.setattr(alerts, "CHANNEL_SECONDS", SOON)
    raise_alert(ledger, NAME, "late", NOW)
    with dripping(HEADERS) as web:
        began = monotonic()
        deliver(ledger, to_webhook(web.port), NOW, lambda: monotonic() > began + 1.5)
        assert 1.5 <= monotonic() - began < SOON


def test_netrc_credentials_are_not_sent_to_the_webhook(ledger, tmp_path, monkeypatch):
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append(self.headers["Authorization"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format, *args):  # noqa: A002
            pass

    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        raise_alert(ledger, NAME, "late", NOW)
        url = SecretStr(f"http://127.0.0.1:{server.server_port}/hook")
        deliver_alerts(ledger, channels(Settings(alert_webhook=url, alert_secret=SecretStr("key"))))
        server.shutdown()
        thread.join()
    assert seen == [None]


ENDLESS = {
    "accepted": (b"HTTP/1.1 200 OK\r\n\r\n", nullcontext()),
    "moved": (
        b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n",
        pytest.raises(SinkUnavailable, match=r"302, expected 2xx\.$"),
    ),
    "refused": (
        b"HTTP/1.1 500 a\0b\r\n\r\n",
        pytest.raises(SinkUnavailable, match=r"answered with 500, expected 2xx\.$"),
    ),
}


@each_case("case", ENDLESS)
def test_an_endpoint_that_answers_without_end_fills_no_memory(monkeypatch, case):
    head, outcome = ENDLESS[case]
    started = {"eventType": RunState.START, "eventTime": "2026-01-02T00:00:00Z", "producer": "https://acme.org"}
    event = RunEvent(run=Run(str(UUID(int=1))), job=Job("t", "t/sums"), **started)
    monkeypatch.setattr(openlineage, "EVENT_SECONDS", 30)
    with flooding(b"POST", head, b"0" * 65536) as server, outcome:
        OpenLineageSink(f"openlineage+http://127.0.0.1:{server.port}").publish([(1, event)])
    assert server.sent < 32 << 20
