"""Delivery of alerts: always to the log; to a webhook, by mail and by apprise if they are configured.

Each delivery is recorded per channel, after it has succeeded. If the process is killed before that, the alert is
delivered again with the same id. An alert is also delivered again if the channel's answer arrives too late.
"""

import json
import logging
import re
import smtplib
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial
from time import monotonic
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from feed_assets.alerts.by_apprise import Apprise, services
from feed_assets.alerts.channel_failures import due_notices, failures_of, lanes_of, record, remove, remove_solved
from feed_assets.alerts.mail_clients import MailClient, TlsMailClient
from feed_assets.core.errors import AlertChannelDown, AlertNotDelivered, InvalidSetting
from feed_assets.core.message_words import excerpt, reason_of
from feed_assets.core.time_limits import Opened, in_time, noting
from feed_assets.core.webhooks import WebhookSilent, parts_of, post_signed
from feed_assets.ledger import alerts
from feed_assets.ledger.alerts import OPENED, REPORT, REPORTED, Notice
from feed_assets.ledger.database import Ledger
from feed_assets.settings import Settings

_log = logging.getLogger(__name__)

ALERT = "alert"
"""The attribute of a log record that holds the name of its alert."""

CHANNEL_SECONDS = 5
"""Seconds that a delivery may take, from the look-up of the host's name to the end of the answer."""

FEWEST_SECONDS = 1
"""Seconds that a delivery may take even if the tick's time is over. So alerts of a late tick are delivered, too."""

_ADDRESS = re.compile(r"[^\s@<>()\[\],;:\"\\]+@[^\s@<>()\[\],;:\"\\]+")
_NO_SERVER = (
    "FEED_ASSETS_ALERT_SMTP is not a mail server: expected smtp://host, smtp://user:password@host:587 or "
    "smtps://user:password@host. User and password are ASCII. Write special characters in them as %XX."
)

Channel = Callable[[Notice, datetime, list[Opened]], None]
"""A function that delivers a notice at a time (UTC), or raises AlertNotDelivered.

It adds each connection that it opens to the list, so that the caller can end a delivery that takes too long.
"""


def channels(settings: Settings) -> dict[str, Channel]:
    """Return the configured channels by name. Raise InvalidSetting if some of a channel's settings are missing."""
    webhook, mail = _webhook(settings), _mail(settings)
    channel_by_name: dict[str, Channel | None] = {"log": _log_notice, "webhook": webhook, "mail": mail}
    return {name: channel for name, channel in channel_by_name.items() if channel} | _by_apprise(settings)


def _by_apprise(settings: Settings) -> dict[str, Channel]:
    urls = settings.alert_apprise
    return {each.name: partial(_send, each) for each in services(urls)} if urls else {}


def _send(service: Apprise, notice: Notice, _now: datetime, _: list[Opened]) -> None:
    for_whom = f"\nFor {', '.join(notice.receivers)}" if notice.receivers else ""
    service.send(_title(notice), f"{_words(notice)}{for_whom}", notice.state)


def _title(notice: Notice) -> str:
    name = notice.name.removeprefix(REPORT).replace("|", " ") if notice.state == REPORTED else notice.name
    # Python decodes "=?…?=" in a header's text, and old versions write line breaks that were encoded in it.
    return f"[feed_assets] {notice.state}: {' '.join(name.split())}".replace("=?", "=\u200b?")


def deliver(ledger: Ledger, channels: Mapping[str, Channel], now: datetime, out_of_time: Callable[[], bool]) -> None:
    """Deliver notices that were not delivered yet: at least one per channel, more until the time is over.

    If a channel refuses a notice, this is logged, and the notice is tried again after a pause. The other notices and
    channels continue. A channel that is down gets nothing until its pause is over.
    """
    with ledger.read() as connection:
        notices = alerts.undelivered(connection, channels)
        failures = failures_of(connection, channels)
    remove_solved(ledger, notices, failures)
    due = due_notices(notices, failures, now)
    for name in channels:
        failed: set[str] = set()
        for at, notice in enumerate(notice for notice in due if notice.channel == name):
            if at and out_of_time():
                break
            if notice.name in failed:  # "resolved" must not arrive before "opened".
                continue
            if error := _delivery_error(ledger, channels, notice, now, out_of_time):
                failed.add(notice.name)
                if isinstance(error, AlertChannelDown):
                    break
            else:
                remove(ledger, [failures[lane] for lane in lanes_of(notice) if lane in failures])


def _delivery_error(
    ledger: Ledger, channels: Mapping[str, Channel], notice: Notice, now: datetime, out_of_time: Callable[[], bool]
) -> AlertNotDelivered | None:
    """Deliver a notice to its channel and record it. Record and return the error if the delivery fails."""
    try:
        _in_time(channels[notice.channel], notice, now, out_of_time)
    except AlertNotDelivered as error:
        _log.warning("Alert %s, %s, is not delivered and will be tried again: %s", notice.name, notice.state, error)
        record(ledger, notice, error, now)
        return error
    alerts.delivered(ledger, notice, channels)
    return None


def _in_time(channel: Channel, notice: Notice, now: datetime, out_of_time: Callable[[], bool]) -> None:
    """Deliver a notice. Raise AlertChannelDown if the delivery takes too long: further deliveries would, too."""
    began, opened = monotonic(), list[Opened]()

    def is_over() -> bool:
        took = monotonic() - began
        return took > CHANNEL_SECONDS or (took > FEWEST_SECONDS and out_of_time())

    try:
        in_time(partial(channel, notice, now, opened), is_over, opened)
    except TimeoutError:
        took = round(monotonic() - began)
        raise AlertChannelDown(f"the {notice.channel} did not finish within {took} s.") from None


def _words(notice: Notice) -> str:
    since = f"{notice.opened:%Y-%m-%d %H:%M} UTC"
    if notice.state == REPORTED:
        return f"at {since}: {notice.reason}"
    if notice.state == OPENED:
        return f"opened at {since}: {notice.reason}"
    return f"resolved at {notice.at:%Y-%m-%d %H:%M} UTC. It had opened at {since}: {notice.reason}"


def _log_notice(notice: Notice, _now: datetime, _: list[Opened]) -> None:
    kind = "Report" if notice.state == REPORTED else "Alert"
    level = logging.WARNING if notice.state == OPENED else logging.INFO
    _log.log(level, "%s %s %s", kind, notice.name, _words(notice), extra={ALERT: notice.name})


@dataclass(frozen=True)
class _Webhook:
    """A channel that posts a signed body. docs/operations.md shows how the receiver checks the signature."""

    url: SecretStr
    secret: SecretStr
    host: str

    def __call__(self, notice: Notice, now: datetime, opened: list[Opened]) -> None:
        try:
            status = post_signed(
                self.url,
                self.secret,
                _body(notice, now),
                content_type="application/json",
                seconds=CHANNEL_SECONDS,
                opened=opened,
            )
        except WebhookSilent as error:
            raise AlertChannelDown(f"the webhook at {self.host} {error}.") from None
        if not 200 <= status < 300:
            raise AlertNotDelivered(f"the webhook at {self.host} answered with {status}, expected 2xx.")


def _webhook(settings: Settings) -> _Webhook | None:
    url, secret = settings.alert_webhook, settings.alert_secret
    if not url:
        return None
    if not secret:
        raise InvalidSetting(
            "FEED_ASSETS_ALERT_WEBHOOK is set and FEED_ASSETS_ALERT_SECRET is not: expected the key that signs the "
            "alerts. Set it to a long random text, and give it to the receiver."
        )
    parts = parts_of(url, "https", "http")
    if not parts:
        raise InvalidSetting("FEED_ASSETS_ALERT_WEBHOOK is not a URL to post to: expected https://host/path.")
    return _Webhook(url, secret, str(parts.hostname))


def _body(notice: Notice, now: datetime) -> bytes:
    body: dict[str, Any] = {"id": notice.id, "name": notice.name, "state": notice.state, "reason": notice.reason}
    body |= {"receivers": notice.receivers} if notice.receivers else {}
    return json.dumps({**body, "at": notice.at.isoformat(), "sent": now.isoformat()}).encode()


@dataclass(frozen=True)
class _Mail:
    """A channel that sends a mail for each notice."""

    host: str
    port: int
    tls: bool
    user: str
    password: SecretStr
    sender: str
    to: tuple[str, ...]

    def __call__(self, notice: Notice, now: datetime, opened: list[Opened]) -> None:
        try:
            with self._session(opened) as smtp:
                refused = smtp.send_message(self._message(notice, now))
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused, smtplib.SMTPDataError) as error:
            raise AlertNotDelivered(f"{self.host} refused the mail: {excerpt(str(error))}") from error
        except smtplib.SMTPAuthenticationError as error:  # some servers repeat the password in their answer
            raise AlertChannelDown(f"{self.host} refused user or password ({error.smtp_code}).") from None
        except UnicodeError as error:
            raise AlertNotDelivered(f"the mail cannot be written: {error}") from error
        except OSError as error:
            raise AlertChannelDown(f"cannot send mail through {self.host}: {excerpt(reason_of(error))}") from error
        if refused:
            text = excerpt(str(refused))
            _log.warning("Alert %s, %s: %s refused these receivers: %s", notice.name, notice.state, self.host, text)

    @contextmanager
    def _session(self, opened: list[Opened]) -> Generator[smtplib.SMTP]:
        trusted = ssl.create_default_context()
        connect = noting(TlsMailClient if self.tls else MailClient, opened)
        options: dict[str, Any] = {"context": trusted} if self.tls else {}
        with closing(connect(self.host, self.port, timeout=CHANNEL_SECONDS, **options)) as smtp:
            self._secure(smtp, trusted)
            yield smtp
            with suppress(OSError):  # the mail is delivered, whatever the server answers to QUIT
                smtp.quit()

    def _secure(self, smtp: smtplib.SMTP, trusted: ssl.SSLContext) -> None:
        """Encrypt if the server supports it, and log in. Never send a password unencrypted."""
        smtp.ehlo_or_helo_if_needed()
        encrypted = self.tls or smtp.has_extn("starttls")
        if encrypted and not self.tls:
            smtp.starttls(context=trusted)
        if self.user and not encrypted:
            raise AlertChannelDown(f"{self.host} offers no STARTTLS, and the password is not sent unencrypted.")
        if self.user:
            smtp.login(self.user, self.password.get_secret_value())

    def _message(self, notice: Notice, now: datetime) -> EmailMessage:
        message = EmailMessage()
        message["Subject"] = _title(notice)
        teams = [each for each in notice.receivers if _ADDRESS.fullmatch(each) and "=?" not in each]
        message["From"], message["To"] = self.sender, ", ".join(dict.fromkeys([*self.to, *teams]))
        message["Date"], message["Message-ID"] = format_datetime(now), f"<{notice.id}@feed-assets>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(f"{notice.name}\n{_words(notice)}\n")
        return message


def _mail(settings: Settings) -> _Mail | None:
    url, sender, to = settings.alert_smtp, settings.alert_mail_from, settings.alert_mail_to
    if not url and not sender and not to:
        return None
    if not url or not sender or not to:
        raise InvalidSetting(
            "only some of FEED_ASSETS_ALERT_SMTP, FEED_ASSETS_ALERT_MAIL_FROM and FEED_ASSETS_ALERT_MAIL_TO are set: "
            "expected all three, or none."
        )
    if wrong := [address for address in (sender, *to) if not _ADDRESS.fullmatch(address)]:
        raise InvalidSetting(f"{wrong[0]!r} is not a mail address: see FEED_ASSETS_ALERT_MAIL_FROM and _TO.")
    parts = parts_of(url, "smtp", "smtps")
    # If a password has an unescaped `/` or `#`, the parser ends the host there. The "host" is then part of a secret: do
    # not use it.
    if not parts or parts.path.strip("/") or parts.query or parts.fragment:
        raise InvalidSetting(_NO_SERVER)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if bool(user) != bool(password) or not f"{user}{password}".isascii():
        raise InvalidSetting(_NO_SERVER)
    tls = parts.scheme == "smtps"
    port = parts.port or (smtplib.SMTP_SSL_PORT if tls else smtplib.SMTP_PORT)
    return _Mail(str(parts.hostname), port, tls, user=user, password=SecretStr(password), sender=sender, to=to)
