"""Requests to webhooks: their signature, and the settings and answers that are refused."""

import hashlib
import hmac
import json
import socket
from datetime import UTC, datetime
from threading import Thread
from urllib.parse import urlsplit

import pytest

from feed_assets import (
    secret_stores,
)
from feed_assets.core.errors import DeliveryTargetDown, InvalidSetting, in_short
from feed_assets.deliveries import webhook
from feed_assets_tests.deliveries.subscribed import HOOK, alerts, subscribed
from feed_assets_tests.support.alert_channels import SECRET
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import DAY, RAW


def test_a_post_is_signed_and_says_when_it_was_sent(hook):
    world = subscribed(("cache", HOOK))
    world.drop(RAW, DAY, "k,n\na,1\n")
    world.run_until_idle()
    ((signature, body),) = hook.posted
    assert signature == "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert datetime.fromisoformat(json.loads(body)["sent"]).tzinfo is not None


def test_a_url_with_a_password_is_in_no_message(hook, monkeypatch):
    monkeypatch.setenv("CACHE_URL", f"{hook.url}?token=pass-word-2")
    hook.answers += [404]
    world = subscribed(("cache", HOOK))
    world.drop(RAW, DAY, "k,n\na,1\n")
    world.run_until_idle()
    (alert,) = alerts()
    assert f"the webhook at {urlsplit(hook.url).netloc} answered with 404, expected 2xx." in alert
    assert "pass-word" not in alert


@each_case(
    ("variables", "error", "message"),
    [
        ({"CACHE_SECRET": ""}, InvalidSetting, "the variable CACHE_SECRET is empty: expected the key that signs the"),
        ({"CACHE_SECRET": " "}, InvalidSetting, "the variable CACHE_SECRET is empty: expected the key that signs the"),
        (
            {"CACHE_SECRET": None},
            InvalidSetting,
            "no variable CACHE_SECRET, which the secret of Webhook names: expected the key that signs the events. Set",
        ),
        ({"CACHE_URL": "http://me:pass-word@h/"}, InvalidSetting, "has a user or password for http, which sends them"),
        (
            {"CACHE_URL": "ftp://h/"},
            InvalidSetting,
            "env:CACHE_URL is not a URL to post to: expected https://host/path.",
        ),
        ({"CACHE_URL": "http://cache..internal/"}, InvalidSetting, "env:CACHE_URL is not a URL to post to"),
        (
            {"CACHE_URL": "https://pass\u20acword:x@127.0.0.1:1/"},
            InvalidSetting,
            "env:CACHE_URL is not a URL to post to",
        ),
        ({"CACHE_URL": "http://*.x/"}, InvalidSetting, "env:CACHE_URL is not a URL to post to"),
        (
            {"CACHE_URL": "http://127.0.0.1:1/"},
            DeliveryTargetDown,
            "127.0.0.1:1 gave no answer (ConnectionError): check",
        ),
        ({"CACHE_SECRET": "aws-ssm:/key"}, DeliveryTargetDown, "CACHE_SECRET is 'aws-ssm:/key', and AWS does not give"),
    ],
)
def test_a_webhook_without_a_usable_url_and_key_gets_nothing(variables, error, message, monkeypatch):
    def refuse(_reference):
        raise ValueError("ResourceNotFound")

    monkeypatch.setattr(secret_stores, "_read", refuse)
    for name, value in {"CACHE_URL": "http://127.0.0.1:1/", "CACHE_SECRET": SECRET, **variables}.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises(error) as refused:
        webhook.post_event(HOOK, {}, datetime(2026, 1, 1, tzinfo=UTC))
    assert message in in_short(refused.value)
    assert "word" not in in_short(refused.value).replace("password", "")


def test_a_malformed_answer_of_a_webhook_puts_no_part_of_its_url_into_a_log(monkeypatch, caplog):
    """urllib3 logs the whole path and query of a URL if a header of the answer is malformed."""
    monkeypatch.setenv("CACHE_SECRET", SECRET)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nno header\r\n\r\n")

        server = Thread(target=answer)
        server.start()
        monkeypatch.setenv("CACHE_URL", f"http://127.0.0.1:{listener.getsockname()[1]}/pass-word-1?token=pass-word-2")
        with caplog.at_level("DEBUG"):
            webhook.post_event(HOOK, {"id": "1"}, datetime.now(UTC))
        server.join()
    assert "pass-word" not in caplog.text
