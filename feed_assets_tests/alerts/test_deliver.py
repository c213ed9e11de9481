"""Alerts delivered to the log and to a real web server, which may be broken in turn."""

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server
from time import monotonic
from traceback import format_exception

import pytest

from feed_assets import alerts
from feed_assets.alerts import channels, deliver
from feed_assets.core.errors import AlertChannelDown
from feed_assets.core.time_limits import Opened
from feed_assets.deliveries.outbox import FIRST_PAUSE, LONGEST_PAUSE
from feed_assets.ledger.alerts import OPENED, Notice
from feed_assets.settings import Settings
from feed_assets_tests.support.alert_channels import (
    LATER,
    NAME,
    NOW,
    OTHER,
    SECRET,
    Receiver,
    by_mail,
    by_webhook,
    deliver_alerts,
    logged_lines,
    undelivered_alerts,
)
from feed_assets_tests.support.alert_steps import raise_alert, resolve
from feed_assets_tests.support.servers import free_ports


def documented_check():
    """Return the check of a webhook's signature that the docs give to receivers."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def verified" in each]
    scope = {}
    exec(code, scope)  # noqa: S102
    return scope["verified"]


def test_log_channel_always_exists_and_reports_opening_and_resolution(ledger, caplog):
    caplog.set_level(logging.INFO)
    alone = channels(Settings())
    assert [*alone] == ["log"]
    raise_alert(ledger, NAME, "expected at 6:00", NOW)
    deliver_alerts(ledger, alone)
    deliver_alerts(ledger, alone)
    assert logged_lines(caplog) == [(logging.WARNING, f"Alert {NAME} opened at 2019-11-25 07:00 UTC: expected at 6:00")]
    caplog.clear()
    resolve(ledger, NAME, LATER)
    deliver_alerts(ledger, alone)
    deliver_alerts(ledger, alone)
    said = f"Alert {NAME} resolved at 2019-11-25 09:00 UTC. It had opened at 2019-11-25 07:00 UTC: expected at 6:00"
    assert logged_lines(caplog) == [(logging.INFO, said)]


def test_webhook_body_and_signature_are_as_documented(ledger, receiver):
    sent = datetime.now(UTC)
    raise_alert(ledger, NAME, "expected at 6:00 — «ordérs»", NOW)
    deliver_alerts(ledger, by_webhook(receiver), sent)
    ((signature, body),) = receiver.posted
    assert documented_check()(body, signature, SECRET) == {
        "id": receiver.ids[0],
        "name": NAME,
        "state": "opened",
        "reason": "expected at 6:00 — «ordérs»",
        "at": "2019-11-25T07:00:00+00:00",
        "sent": sent.isoformat(),
    }


@pytest.mark.parametrize("secret", ["another", ""])
def test_webhook_receiver_with_another_secret_refuses_the_body(ledger, receiver, secret):
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, by_webhook(receiver), datetime.now(UTC))
    ((signature, body),) = receiver.posted
    with pytest.raises(ValueError, match="not signed"):
        documented_check()(body, signature, secret)


def test_webhook_receiver_refuses_an_altered_body(ledger, receiver):
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, by_webhook(receiver), datetime.now(UTC))
    ((signature, body),) = receiver.posted
    with pytest.raises(ValueError, match="not signed"):
        documented_check()(body.replace(b"opened", b"closed"), signature, SECRET)


@pytest.mark.parametrize("age", [timedelta(minutes=6), timedelta(minutes=-6)])
def test_webhook_receiver_refuses_a_replay_after_five_minutes(ledger, receiver, age):
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, by_webhook(receiver), datetime.now(UTC) - age)
    ((signature, body),) = receiver.posted
    with pytest.raises(ValueError, match="five minutes"):
        documented_check()(body, signature, SECRET)


@pytest.mark.parametrize("status", [500, 404, 429, 301, 303, 307])
def test_failed_delivery_is_logged_and_retried_with_the_same_id(ledger, receiver, status, caplog):
    configured = by_webhook(receiver)
    receiver.answers = [status]
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, configured)
    said = f"Alert {NAME}, opened, is not delivered and will be tried again: "
    assert logged_lines(caplog)[1][1] == f"{said}the webhook at 127.0.0.1 answered with {status}, expected 2xx."
    deliver_alerts(ledger, configured, NOW + FIRST_PAUSE - timedelta(seconds=1))
    assert len(receiver.posted) == 1
    for _ in range(2):
        deliver_alerts(ledger, configured, NOW + FIRST_PAUSE)
    assert receiver.states == [(NAME, "opened")] * 2
    assert len(set(receiver.ids)) == 1


def test_receiver_that_was_down_gets_the_opening_and_then_the_resolution(ledger, receiver):
    configured = by_webhook(receiver)
    receiver.answers = [503, 503]
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, configured)
    resolve(ledger, NAME, LATER)
    deliver_alerts(ledger, configured, LATER)
    assert receiver.states == [(NAME, "opened")] * 2
    deliver_alerts(ledger, configured, LATER + LONGEST_PAUSE)
    assert receiver.states[2:] == [(NAME, "opened"), (NAME, "resolved")]
    assert undelivered_alerts(ledger, *configured) == []


def test_alert_refused_by_the_receiver_does_not_stop_other_alerts(ledger, receiver):
    receiver.answers = [400]
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    deliver_alerts(ledger, by_webhook(receiver))
    assert undelivered_alerts(ledger, "webhook") == [("webhook", NAME, "opened")]


def test_channel_that_is_down_is_tried_once_and_does_not_stop_other_channels(ledger, mails, caplog):
    nowhere = Receiver(f"http://127.0.0.1:{free_ports(1)[0]}/hook")
    configured = by_webhook(nowhere) | by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    deliver_alerts(ledger, configured)
    assert undelivered_alerts(ledger, *configured) == [("webhook", NAME, "opened"), ("webhook", OTHER, "opened")]
    assert len(mails.mails) == 2
    problems = [line for _, line in logged_lines(caplog) if "not delivered" in line]
    assert len(problems) == 1
    assert problems[0].endswith("the webhook at 127.0.0.1 gave no answer (ConnectionError).")
    deliver_alerts(ledger, configured)
    assert len(mails.mails) == 2


def test_a_mail_server_that_is_down_does_not_stop_the_webhook(ledger, receiver, caplog):
    configured = by_webhook(receiver) | by_mail(f"smtp://127.0.0.1:{free_ports(1)[0]}")
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, configured)
    deliver_alerts(ledger, configured)
    assert undelivered_alerts(ledger, *configured) == [("mail", NAME, "opened")]
    assert receiver.states == [(NAME, "opened")]
    assert "ConnectionRefusedError" in logged_lines(caplog)[-1][1]


def test_silent_alert_servers_end_in_a_timeout(monkeypatch):
    monkeypatch.setattr(alerts, "CHANNEL_SECONDS", 1)
    notice = Notice("any", NAME, NOW, OPENED, NOW, "late")
    with create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as threads:
        port = silent.getsockname()[1]
        both = by_webhook(Receiver(f"http://127.0.0.1:{port}")) | by_mail(f"smtp://127.0.0.1:{port}")
        began = monotonic()
        calls = [threads.submit(both[name], notice, NOW, []) for name in ("webhook", "mail")]
        for call in calls:
            with pytest.raises(AlertChannelDown, match=r"(?i)timeout|timed out"):
                call.result(timeout=60)
    assert monotonic() - began >= alerts.CHANNEL_SECONDS


def test_kill_after_delivery_repeats_it_with_the_same_id(ledger, receiver):
    class Killed(BaseException):
        pass

    configured = by_webhook(receiver)

    def deliver_and_die(notice: Notice, now: datetime, opened: list[Opened]) -> None:
        configured["webhook"](notice, now, opened)
        raise Killed

    raise_alert(ledger, NAME, "late", NOW)
    with pytest.raises(Killed):
        deliver_alerts(ledger, configured | {"webhook": deliver_and_die})
    assert undelivered_alerts(ledger, *configured) == [("webhook", NAME, "opened")]
    deliver_alerts(ledger, configured)
    assert receiver.states == [(NAME, "opened")] * 2
    assert len(set(receiver.ids)) == 1
    assert undelivered_alerts(ledger, *configured) == []


def test_expired_tick_delivers_one_alert_per_channel_and_the_rest_later(ledger, receiver, caplog):
    configured = by_webhook(receiver)
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    deliver(ledger, configured, NOW, lambda: True)
    assert (len(receiver.posted), len(logged_lines(caplog))) == (1, 1)
    deliver(ledger, configured, NOW, lambda: True)
    assert undelivered_alerts(ledger, *configured) == []
    assert receiver.states == [(NAME, "opened"), (OTHER, "opened")]


def test_secret_in_the_webhook_url_appears_in_no_log(ledger, caplog):
    caplog.set_level(logging.INFO)
    url = f"http://127.0.0.1:{free_ports(1)[0]}/key-in-the-path?token=hunter2"
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, by_webhook(Receiver(url)))
    assert "gave no answer" in caplog.text
    assert "hunter2" not in caplog.text
    assert "key-in-the-path" not in caplog.text


def test_secret_in_the_webhook_url_appears_in_no_traceback():
    url = f"http://127.0.0.1:{free_ports(1)[0]}/key-in-the-path"
    with pytest.raises(AlertChannelDown) as raised:
        by_webhook(Receiver(url))["webhook"](Notice("webhook", NAME, NOW, OPENED, NOW, "late"), NOW, [])
    configured = "".join(format_exception(raised.value))
    assert "gave no answer" in configured
    assert "key-in-the-path" not in configured
