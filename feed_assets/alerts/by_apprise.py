"""Channels through apprise (Slack, Teams, PagerDuty and many others): one channel for each URL."""

import logging
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from threading import Lock
from typing import Any

from pydantic import SecretStr

from feed_assets.core.errors import AlertChannelDown, AlertNotDelivered, InvalidSetting
from feed_assets.ledger.alerts import OPENED, REPORTED

VARIABLE = "FEED_ASSETS_ALERT_APPRISE"

_KINDS: Mapping[str, str] = {OPENED: "warning", REPORTED: "info"}
"""Apprise's kind of notification by the state of a notice. A resolved alert has the kind `success`."""

_BUSY: dict[str, Lock] = {}
"""A lock for each channel. A delivery that takes too long continues in its thread: no other one may start meanwhile."""


_MENTION = re.compile(r"@(?=everyone\b|here\b|channel\b|all\b)|<(?=[!@#])", re.IGNORECASE)
"""The beginning of a mention that notifies everybody, as Discord (`@everyone`) and Slack (`<!channel>`) read it."""


def _without_mentions(text: str) -> str:
    """Return a text in which a zero-width space breaks mentions, because names and reasons may be foreign."""
    return _MENTION.sub("\\g<0>\u200b", text)


@dataclass(frozen=True)
class Apprise:
    """The service of one URL. Its name is the kind of service and a digest of the URL: two may have the same kind."""

    name: str
    service: Any = field(repr=False)

    def send(self, title: str, text: str, state: str) -> None:
        """Send a text. Raise AlertChannelDown or AlertNotDelivered if that fails."""
        lock = _BUSY.setdefault(self.name, Lock())
        if not lock.acquire(blocking=False):
            raise AlertChannelDown(f"{self.name} has not finished the previous delivery.")
        try:
            with _silent():
                is_sent = self.service.notify(
                    body=_without_mentions(text),
                    title=_without_mentions(title),
                    notify_type=_KINDS.get(state, "success"),
                    body_format="text",  # Without it, apprise would send HTML of a foreign text as HTML.
                )
        except Exception as error:  # noqa: BLE001  Any error may occur, with the URL in its text.
            raise AlertNotDelivered(f"{self.name} failed ({type(error).__name__}).") from None
        finally:
            lock.release()
        if not is_sent:
            raise AlertNotDelivered(f"{self.name} refused the alert. Try its URL: `apprise -vv -t test -b test URL`.")


def services(urls: SecretStr) -> list[Apprise]:
    """Return the services of URLs, separated by spaces. Raise InvalidSetting for one that apprise does not support."""
    if find_spec("apprise") is None:
        raise InvalidSetting(f"{VARIABLE} needs more packages: `pip install 'feed-assets[apprise]'`.")
    return [_service(url, number) for number, url in enumerate(urls.get_secret_value().split(), 1)]


def _service(url: str, number: int) -> Apprise:
    import apprise  # imported here: few installations have it

    service: Any = apprise.Apprise()
    with _silent():
        is_known = service.add(url)
    if not is_known:
        raise InvalidSetting(
            f"{VARIABLE}: apprise does not support URL number {number}: expected URLs of services, separated by "
            "spaces, such as slack://TokenA/TokenB/TokenC. https://appriseit.com/services shows the form of each."
        )
    kind = url.partition("://")[0].lower()
    return Apprise(f"apprise:{kind}:{sha256(url.encode()).hexdigest()[:6]}", service)


_IS_SILENT = ContextVar("_IS_SILENT", default=False)
"""True during a delivery, also in the threads to which apprise hands it."""


_LOGGERS = ("apprise", "urllib3.connectionpool", "urllib3.connection", "urllib3.util.retry")
"""The loggers of a delivery: apprise's, and those of urllib3, which log the paths of URLs at DEBUG."""


class _OursAreSilent(logging.Filter):
    """A filter that drops the log lines of our deliveries: they contain URLs and answers, which may be secret."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return not _IS_SILENT.get()


_OURS_ARE_SILENT = _OursAreSilent()


@contextmanager
def _silent() -> Generator[None]:
    """Suppress log lines of deliveries until the block ends."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_OURS_ARE_SILENT)  # logging adds a filter at most once
    token = _IS_SILENT.set(True)
    try:
        yield
    finally:
        _IS_SILENT.reset(token)
