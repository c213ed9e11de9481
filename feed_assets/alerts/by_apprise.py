"""Channels through apprise (Slack, Teams, PagerDuty and many others): one channel for each URL."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from threading import Lock
from typing import Any

from pydantic import SecretStr

from feed_assets.core.errors import AlertChannelDown, AlertNotDelivered, InvalidSetting
from feed_assets.core.silent_loggers import silent
from feed_assets.ledger.alerts import OPENED, REPORTED

VARIABLE = "FEED_ASSETS_ALERT_APPRISE"

_KINDS: Mapping[str, str] = {OPENED: "warning", REPORTED: "info"}
"""Apprise's kind of notification by the state of a notice. A resolved alert has the kind `success`."""

_BUSY: dict[str, Lock] = {}
"""A lock for each channel. An overdue delivery continues in its thread. No other delivery starts until it ends."""


_MENTION = re.compile(r"@(?=[\w*&!])|<(?=[^\W\d_]|[@!#])")
"""The beginning of a mention, such as `@everyone`, `@**all**`, `<@&12>`, `<!channel>`, `<users/all>` or `<at …>`."""


def _without_mentions(text: str) -> str:
    """Return a text in which a zero-width space breaks mentions, because names and reasons may be foreign.

    Servers read mentions of persons, roles and everybody in many forms. So every form that may be one is broken.
    """
    return _MENTION.sub("\\g<0>\u200b", text)


@dataclass(frozen=True)
class Apprise:
    """The service of one URL. Its name is its kind and a digest of the URL, because kinds may repeat."""

    name: str
    service: Any = field(repr=False)

    def send(self, title: str, text: str, state: str) -> None:
        """Send a text. Raise AlertChannelDown or AlertNotDelivered if that fails."""
        lock = _BUSY.setdefault(self.name, Lock())
        if not lock.acquire(blocking=False):
            raise AlertChannelDown(f"{self.name} has not finished the previous delivery.")
        try:
            with silent():
                is_sent = self.service.notify(
                    body=_without_mentions(text),
                    title=_without_mentions(title),
                    notify_type=_KINDS.get(state, "success"),
                    body_format="text",  # By default, apprise would interpret HTML in a foreign text.
                )
        except Exception as error:  # noqa: BLE001  Any error may occur, with the URL in its text.
            raise AlertNotDelivered(f"{self.name} failed ({type(error).__name__}).") from None
        finally:
            lock.release()
        if not is_sent:
            raise AlertNotDelivered(f"{self.name} refused the alert. Try its URL: `apprise -vv -t test -b test URL`.")


def services(urls: SecretStr) -> list[Apprise]:
    """Return a service for each URL.

    The URLs are separated by spaces. Raise InvalidSetting for a URL that apprise does not support.
    """
    if find_spec("apprise") is None:
        raise InvalidSetting(f"{VARIABLE} needs more packages: `pip install 'feed-assets[apprise]'`.")
    return [_service(url, number) for number, url in enumerate(urls.get_secret_value().split(), 1)]


def _service(url: str, number: int) -> Apprise:
    import apprise  # imported here: few installations have it

    service: Any = apprise.Apprise()
    with silent():
        is_known = service.add(url)
    if not is_known:
        raise InvalidSetting(
            f"{VARIABLE}: apprise does not support URL number {number}: expected URLs of services, separated by "
            "spaces, such as slack://TokenA/TokenB/TokenC. https://appriseit.com/services shows the form of each."
        )
    kind = url.partition("://")[0].lower()
    return Apprise(f"apprise:{kind}:{sha256(url.encode()).hexdigest()[:6]}", service)
