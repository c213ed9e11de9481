"""Alerts by apprise, through its own transport: JSON to a web server."""

import json
import logging
from time import monotonic

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from feed_assets import alerts
from feed_assets.alerts import channels
from feed_assets.core.errors import InvalidSetting
from feed_assets.ledger.alerts import RESOLVED, Notice
from feed_assets.ledger.tables import alert, alert_said
from feed_assets.settings import Settings
from feed_assets_tests.support.alert_channels import (
    LATER,
    NAME,
    NOW,
    OTHER,
    deliver_alerts,
    logged_lines,
    undelivered_alerts,
)
from feed_assets_tests.support.alert_steps import raise_alert, resolve
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.slow_servers import dripping

SOON = 30
"""Seconds within which a delivery must end on a busy machine; without a deadline it would never end."""


def by_apprise(*urls):
    """Return the channels of these URLs, without the log."""
    found = channels(Settings(alert_apprise=SecretStr(" ".join(urls))))
    return {name: channel for name, channel in found.items() if name != "log"}


def json_url(url, path="hunter2"):
    return f"{url.replace('http://', 'json://')}/{path}"


def test_alert_goes_to_each_url_once_and_again_to_a_url_that_refused(ledger, receiver, caplog):
    raise_alert(ledger, NAME, "nothing has come", NOW)
    configured = by_apprise(json_url(receiver.url), json_url(receiver.url, "hunter2-2"))
    first = next(iter(configured))
    assert first.startswith("apprise:json:")
    receiver.answers = [500, 200]
    deliver_alerts(ledger, configured)
    assert undelivered_alerts(ledger, *configured) == [(first, NAME, "opened")]
    deliver_alerts(ledger, configured, LATER)
    assert undelivered_alerts(ledger, *configured) == []
    sent = [json.loads(body) for _, body in receiver.posted]
    assert [each["type"] for each in sent] == ["warning"] * 3
    assert sent[-1]["title"] == f"[feed_assets] opened: {NAME}"
    assert "opened at 2019-11-25 07:00 UTC: nothing has come" in sent[-1]["message"]
    assert f"{first} refused the alert" in logged_lines(caplog)[0][1]


def test_reopened_alert_is_sent_again_and_resolved_alert_leaves_no_rows(ledger, receiver):
    configured = by_apprise(json_url(receiver.url))
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, configured)
    resolve(ledger, NAME, NOW)
    raise_alert(ledger, NAME, "late again", LATER)
    deliver_alerts(ledger, configured)
    resolve(ledger, NAME, LATER)
    deliver_alerts(ledger, configured)
    titles = [json.loads(body)["title"].split()[1] for _, body in receiver.posted]
    assert titles == ["opened:", "opened:", "resolved:"]
    with ledger.read() as connection:
        assert [connection.execute(sa.select(each)).all() for each in (alert, alert_said)] == [[], []]


def test_resolution_has_type_success_and_report_names_its_owners(receiver):
    (channel,) = by_apprise(json_url(receiver.url)).values()
    channel(Notice("a", NAME, NOW, RESOLVED, NOW, "late"), NOW, [])
    channel(Notice("a", "report:ads/a/v1.0| 20261127.054106", NOW, "report", NOW, "more", ("team:ads",)), NOW, [])
    resolved, report = (json.loads(body) for _, body in receiver.posted)
    assert (resolved["type"], report["type"]) == ("success", "info")
    assert report["message"].endswith("For team:ads")
    assert report["title"] == "[feed_assets] report: ads/a/v1.0 20261127.054106"


def test_apprise_url_appears_in_no_log_and_no_setting(ledger, receiver, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "apprise")
    for logger in ("connectionpool", "connection", "util.retry"):
        caplog.set_level(logging.DEBUG, f"urllib3.{logger}")
    raise_alert(ledger, NAME, "late", NOW)
    url = json_url(receiver.url.replace("http://", "http://me:hunter2@"))
    receiver.answers = [500]
    configured = by_apprise(url)
    deliver_alerts(ledger, configured)
    deliver_alerts(ledger, by_apprise("json://me:hunter2@127.0.0.1:9/hunter2"))
    (raising,) = (each.args[0].service for each in configured.values())

    def refuse(**_):
        for logger in ("connectionpool", "connection", "util.retry"):
            logging.getLogger(f"urllib3.{logger}").debug("POST %s", url)
        raise RuntimeError(url)

    monkeypatch.setattr(raising, "notify", refuse)
    deliver_alerts(ledger, configured, LATER)
    settings = Settings(alert_apprise=SecretStr(url))
    assert "refused the alert" in caplog.text
    assert "failed (RuntimeError)" in caplog.text
    assert "hunter2" not in f"{caplog.text} {settings!r} {settings.model_dump_json()} {configured}"


@each_case("urls", ["slack://hunter2", "nothing://hunter2", "hunter2", "json://h slack://hunter2"])
def test_url_unknown_to_apprise_is_refused_without_showing_it(urls):
    with pytest.raises(InvalidSetting, match=r"apprise does not support URL number \d: expected") as raised:
        by_apprise(urls)
    assert "hunter2" not in str(raised.value)


def test_missing_apprise_package_names_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    with pytest.raises(InvalidSetting, match=r"pip install 'feed-assets\[apprise\]'"):
        by_apprise("json://h")


def test_slow_apprise_server_is_left_at_its_deadline_with_one_delivery_at_a_time(ledger, monkeypatch, caplog):
    monkeypatch.setattr(alerts, "CHANNEL_SECONDS", 1)
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    with dripping(b"HTTP/1.1 200 OK\r\nX-Slow: ") as server:
        configured = by_apprise(f"json://127.0.0.1:{server.port}/hook")
        began = monotonic()
        deliver_alerts(ledger, configured)
        assert 1 <= monotonic() - began < SOON
        deliver_alerts(ledger, configured, LATER)
        assert server.callers == 1
    lines = [line for _, line in logged_lines(caplog)]
    assert "did not finish within" in lines[0]
    assert "has not finished the previous delivery" in lines[1]
    assert len(undelivered_alerts(ledger, *configured)) == 2
