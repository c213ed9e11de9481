"""Signed requests to webhooks. docs/operations.md shows how a receiver checks the signature."""

import hashlib
import hmac
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from feed_assets.core.time_limits import Opened

if TYPE_CHECKING:
    import requests

SIGNATURE = "X-Feed-Assets-Signature"
"""The header with `sha256=` and the HMAC-SHA256 of the body in hexadecimal digits."""

_FOR_LATER = (408, 425, 429)
"""Statuses that ask for a later try, besides those of 500 and more."""


def is_outage(status: int) -> bool:
    """Return whether a status asks for a later try. Other statuses outside of 2xx refuse the request."""
    return status >= 500 or status in _FOR_LATER


class WebhookSilent(Exception):
    """The server of a webhook did not answer. The message has no part of the URL, which may contain secrets.

    `is_of_url` is True if no request was sent, because the URL (or the user or password in it) cannot be used.
    """

    def __init__(self, kind: str, *, is_of_url: bool = False) -> None:
        super().__init__(f"gave no answer ({kind})")
        self.kind, self.is_of_url = kind, is_of_url


def parts_of(url: SecretStr, *schemes: str) -> SplitResult | None:
    """Return the parts of a URL. Return None if it is invalid or has another scheme.

    The caller gets no reason, because any part of the URL may be a password.
    """
    text = url.get_secret_value()
    with suppress(ValueError):  # urlsplit failed, or the port is no number
        parts = urlsplit(text)
        if parts.scheme in schemes and parts.hostname and parts.port != 0 and text.isprintable():
            return parts
    return None


def post_signed(
    url: SecretStr, secret: SecretStr, body: bytes, *, content_type: str, seconds: float, opened: list[Opened]
) -> int:
    """Post a body with its signature, and return the status of the answer. Raise WebhookSilent if there is none.

    Redirects are not followed: they would turn the POST into a GET without the body. The answer's body is not read.
    """
    from requests import RequestException  # imported here, because most processes never post
    from urllib3.exceptions import LocationParseError

    signature = hmac.new(secret.get_secret_value().encode(), body, hashlib.sha256).hexdigest()
    headers = {"Content-Type": content_type, SIGNATURE: f"sha256={signature}"}
    options: dict[str, Any] = {"headers": headers, "allow_redirects": False, "stream": True, "timeout": seconds}
    try:
        with _session(url, opened) as session, session.post(url.get_secret_value(), body, **options) as answer:
            return answer.status_code
    except (RequestException, LocationParseError, UnicodeError) as error:  # the error's text contains the whole URL
        is_of_url = isinstance(error, ValueError | UnicodeError | LocationParseError)
        raise WebhookSilent(type(error).__name__, is_of_url=is_of_url) from None


def _session(url: SecretStr, opened: list[Opened]) -> "requests.Session":
    from requests.utils import get_auth_from_url

    from feed_assets.core.http_sessions import listing_session

    session, user_and_password = listing_session(opened), get_auth_from_url(url.get_secret_value())
    session.auth = user_and_password if any(user_and_password) else session.auth
    return session
