"""Delivery to a webhook: a CloudEvent in JSON, with a signature."""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from feed_assets.core.delivery_targets import Webhook
from feed_assets.core.errors import (
    DeliveryRefused,
    DeliveryTargetDown,
    InvalidDefinition,
    InvalidSetting,
    SecretUnavailable,
)
from feed_assets.core.time_limits import Opened, in_time
from feed_assets.core.webhooks import WebhookSilent, is_outage, parts_of, post_signed
from feed_assets.secret_stores import resolved
from feed_assets.settings import declared_text

_ADVICE = {"SSLError": "check that its certificate is valid for this host, and that this machine trusts it"}
"""Advice by the kind of an error of a request."""


def post_event(webhook: Webhook, event: Mapping[str, Any], now: datetime) -> None:
    """Post an event. `now` (UTC) is added as `sent`, so that a receiver can refuse an old request.

    Raise DeliveryTargetDown if the server or AWS does not answer or asks for a later try, DeliveryRefused for another
    status, and InvalidSetting for a missing or empty variable, or a URL that cannot be posted to.
    """
    url, secret = _url(webhook), _value("secret", webhook.secret, "the key that signs the events")
    host = _host(url)
    opened, began = list[Opened](), monotonic()
    body = json.dumps({**event, "sent": now.isoformat()}).encode()
    form = "application/cloudevents+json"
    call = partial(post_signed, url, secret, body, content_type=form, seconds=webhook.seconds, opened=opened)
    try:
        status = in_time(call, lambda: monotonic() - began > webhook.seconds, opened)
    except WebhookSilent as error:
        if error.is_of_url:
            raise _unusable(webhook) from None
        advice = _ADVICE.get(error.kind, "check the URL's host and port, and that the receiver runs")
        raise DeliveryTargetDown(f"the webhook at {host} {error}: {advice}.") from None
    except TimeoutError:
        raise DeliveryTargetDown(f"the webhook at {host} gave no answer within {webhook.seconds} s.") from None
    if is_outage(status):
        raise DeliveryTargetDown(f"the webhook at {host} answered with {status}: it is tried again.")
    if not 200 <= status < 300:
        raise DeliveryRefused(f"the webhook at {host} answered with {status}, expected 2xx.")


def _url(webhook: Webhook) -> SecretStr:
    url = _value("url", webhook.url, "the URL to post to")
    parts = parts_of(url, "https", "http")
    if not parts:
        raise _unusable(webhook)
    if parts.scheme == "http" and (parts.username or parts.password):
        raise InvalidSetting(
            f"{webhook.url} has a user or password for http, which sends them unencrypted: expected https://host/path."
        )
    return url


def _host(url: SecretStr) -> str:
    """Return the host of a valid URL, with the port if the URL has one."""
    parts = urlsplit(url.get_secret_value())
    return f"{parts.hostname}:{parts.port}" if parts.port else f"{parts.hostname}"


def _unusable(webhook: Webhook) -> InvalidSetting:
    return InvalidSetting(f"{webhook.url} is not a URL to post to: expected https://host/path.")


def _value(option: str, reference: str, expected: str) -> SecretStr:
    """Return the value of `env:NAME`, or the secret of AWS that it refers to.

    Raise InvalidSetting if there is no value, and DeliveryTargetDown if AWS does not give it.
    """
    name = reference.removeprefix("env:")
    try:
        value = resolved(name, declared_text(reference))
    except InvalidDefinition:
        raise InvalidSetting(
            f"the environment has no variable {name}, which the {option} of Webhook names: expected {expected}. Set it."
        ) from None
    except SecretUnavailable as error:
        raise DeliveryTargetDown(str(error)) from error
    if not value.strip():
        raise InvalidSetting(f"the variable {name} is empty: expected {expected}. Set it, and give it to the receiver.")
    return SecretStr(value)
