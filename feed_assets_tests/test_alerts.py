"""Alerts delivered to the log, to a real web server and a real mail server, which may be broken in turn."""

import json
import logging
import re
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_server
from threading import Thread
from time import monotonic
from traceback import format_exception
from urllib.parse import quote

import pytest
import trustme
from pydantic import SecretStr

from feed_assets.alerts import SECONDS, Channel, channels, deliver
from feed_assets.core.errors import AlertChannelDown, InvalidSetting
from feed_assets.ledger.alerts import OPENED, Notice, raise_alert, resolve, undelivered
from feed_assets.ledger.database import Ledger
from feed_assets.settings import Settings
from feed_assets_tests.mail_server import PASSWORD, USER, MailServer, mail_server
from feed_assets_tests.servers import free_ports

NOW = datetime(2019, 11, 25, 7, tzinfo=UTC)
LATER = NOW + timedelta(hours=2)
NAME, OTHER = "missing:sales/orders", "missing:sales/returns"
SECRET = "a long random text"


@dataclass
class Receiver:
    """A web server that notes what is posted, and answers with these statuses in turn, then with 204."""

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
            self.send_response(200)  # What a followed redirect would take for success.
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


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with web_server() as running:
        yield running


@pytest.fixture
def mails() -> Iterator[MailServer]:
    """In the clear."""
    with mail_server() as running:
        yield running


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's TLS, whose authority is trusted here as an operator would have it trusted."""
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    return certified(authority)


def certified(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def by_webhook(receiver: Receiver) -> dict[str, Channel]:
    return channels(Settings(alert_webhook=SecretStr(receiver.url), alert_secret=SecretStr(SECRET)))


def by_mail(url: str, **more) -> dict[str, Channel]:
    settings = {"alert_mail_from": "lake@example.com", "alert_mail_to": "ops@example.com, boss@example.com", **more}
    return channels(Settings(alert_smtp=SecretStr(url), **settings))


def with_user(server: MailServer, scheme: str = "smtp", password: str = PASSWORD) -> str:
    return f"{scheme}://{quote(USER)}:{quote(password, safe='')}@127.0.0.1:{server.port}"


def tell(ledger: Ledger, told: dict[str, Channel], now: datetime = NOW) -> None:
    deliver(ledger, told, now, lambda: False)


def left(ledger: Ledger, *names: str) -> list[tuple[str, str, str]]:
    with ledger.read() as connection:
        return [(each.channel, each.name, each.state) for each in undelivered(connection, names)]


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records if each.name == "feed_assets.alerts"]


def documented_check():
    """What the docs tell a receiver to do."""
    page = (Path(__file__).parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def verified" in each]
    scope = {}
    exec(code, scope)  # noqa: S102
    return scope["verified"]


def test_the_log_alone_is_always_there_and_tells_opening_and_resolution(ledger, caplog):
    caplog.set_level(logging.INFO)
    alone = channels(Settings())
    assert [*alone] == ["log"]
    raise_alert(ledger, NAME, "expected at 6:00", NOW)
    tell(ledger, alone)
    tell(ledger, alone)
    assert lines(caplog) == [(logging.WARNING, f"Alert {NAME} opened at 2019-11-25 07:00 UTC: expected at 6:00")]
    caplog.clear()
    resolve(ledger, NAME, LATER)
    tell(ledger, alone)
    tell(ledger, alone)
    said = f"Alert {NAME} resolved at 2019-11-25 09:00 UTC. It had opened at 2019-11-25 07:00 UTC: expected at 6:00"
    assert lines(caplog) == [(logging.INFO, said)]


def test_the_webhook_is_posted_what_the_docs_say_and_can_check_it_as_they_say(ledger, receiver):
    sent = datetime.now(UTC)
    raise_alert(ledger, NAME, "expected at 6:00 — «ordérs»", NOW)
    tell(ledger, by_webhook(receiver), sent)
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
def test_a_receiver_with_another_secret_refuses_it(ledger, receiver, secret):
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, by_webhook(receiver), datetime.now(UTC))
    ((signature, body),) = receiver.posted
    with pytest.raises(ValueError, match="not signed"):
        documented_check()(body, signature, secret)


def test_a_receiver_refuses_a_body_that_was_altered(ledger, receiver):
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, by_webhook(receiver), datetime.now(UTC))
    ((signature, body),) = receiver.posted
    with pytest.raises(ValueError, match="not signed"):
        documented_check()(body.replace(b"opened", b"closed"), signature, SECRET)


@pytest.mark.parametrize("age", [timedelta(minutes=6), timedelta(minutes=-6)])
def test_a_receiver_refuses_what_is_played_again_later(ledger, receiver, age):
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, by_webhook(receiver), datetime.now(UTC) - age)
    ((signature, body),) = receiver.posted
    with pytest.raises(ValueError, match="five minutes"):
        documented_check()(body, signature, SECRET)


@pytest.mark.parametrize("status", [500, 404, 429, 301, 303, 307])
def test_an_answer_that_is_no_success_is_logged_and_tried_again_with_the_same_id(ledger, receiver, status, caplog):
    told = by_webhook(receiver)
    receiver.answers = [status]
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, told)
    said = f"Alert {NAME}, opened, is not delivered and tried again: "
    assert lines(caplog)[1][1] == f"{said}the webhook at 127.0.0.1 answered with {status}, expected 2xx."
    tell(ledger, told)
    tell(ledger, told)
    assert receiver.states == [(NAME, "opened")] * 2
    assert len(set(receiver.ids)) == 1


def test_a_receiver_that_was_away_hears_later_that_it_opened_and_then_that_it_is_resolved(ledger, receiver):
    told = by_webhook(receiver)
    receiver.answers = [503, 503]
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, told)
    resolve(ledger, NAME, LATER)
    tell(ledger, told)
    assert receiver.states == [(NAME, "opened")] * 2
    tell(ledger, told)
    assert receiver.states[2:] == [(NAME, "opened"), (NAME, "resolved")]
    assert left(ledger, *told) == []


def test_an_alert_that_the_receiver_does_not_take_does_not_stop_the_others(ledger, receiver):
    receiver.answers = [400]
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    tell(ledger, by_webhook(receiver))
    assert left(ledger, "webhook") == [("webhook", NAME, "opened")]


def test_a_channel_that_is_down_is_asked_once_and_does_not_stop_the_others(ledger, mails, caplog):
    nowhere = Receiver(f"http://127.0.0.1:{free_ports(1)[0]}/hook")
    told = by_webhook(nowhere) | by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    tell(ledger, told)
    assert left(ledger, *told) == [("webhook", NAME, "opened"), ("webhook", OTHER, "opened")]
    assert len(mails.mails) == 2
    problems = [line for _, line in lines(caplog) if "not delivered" in line]
    assert len(problems) == 1
    assert problems[0].endswith("the webhook at 127.0.0.1 gave no answer (ConnectionError).")
    tell(ledger, told)
    assert len(mails.mails) == 2


def test_a_mail_server_that_is_down_does_not_stop_the_webhook(ledger, receiver, caplog):
    told = by_webhook(receiver) | by_mail(f"smtp://127.0.0.1:{free_ports(1)[0]}")
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, told)
    tell(ledger, told)
    assert left(ledger, *told) == [("mail", NAME, "opened")]
    assert receiver.states == [(NAME, "opened")]
    assert "ConnectionRefusedError" in lines(caplog)[-1][1]


def test_servers_that_never_answer_are_waited_for_a_short_time():
    notice = Notice("any", NAME, NOW, OPENED, NOW, "late")
    with create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as threads:
        port = silent.getsockname()[1]
        both = by_webhook(Receiver(f"http://127.0.0.1:{port}")) | by_mail(f"smtp://127.0.0.1:{port}")
        began = monotonic()
        calls = [threads.submit(both[name], notice, NOW) for name in ("webhook", "mail")]
        for call in calls:
            with pytest.raises(AlertChannelDown, match=r"(?i)timeout|timed out"):
                call.result(timeout=3 * SECONDS)
    assert monotonic() - began >= SECONDS - 1


def test_a_kill_between_delivery_and_noting_repeats_the_delivery_with_the_same_id(ledger, receiver):
    class Killed(BaseException):
        pass

    told = by_webhook(receiver)

    def deliver_and_die(notice: Notice, now: datetime) -> None:
        told["webhook"](notice, now)
        raise Killed

    raise_alert(ledger, NAME, "late", NOW)
    with pytest.raises(Killed):
        tell(ledger, told | {"webhook": deliver_and_die})
    assert left(ledger, *told) == [("webhook", NAME, "opened")]
    tell(ledger, told)
    assert receiver.states == [(NAME, "opened")] * 2
    assert len(set(receiver.ids)) == 1
    assert left(ledger, *told) == []


def test_when_the_time_is_over_each_channel_says_one_thing_and_the_rest_the_next_times(ledger, receiver, caplog):
    told = by_webhook(receiver)
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    deliver(ledger, told, NOW, lambda: True)
    assert (len(receiver.posted), len(lines(caplog))) == (1, 1)
    deliver(ledger, told, NOW, lambda: True)
    assert left(ledger, *told) == []
    assert receiver.states == [(NAME, "opened"), (OTHER, "opened")]


def test_a_mail_says_what_is_wrong_and_then_that_it_is_over(ledger, mails):
    told = by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "expected at 6:00 — «ordérs»", NOW)
    tell(ledger, told)
    resolve(ledger, NAME, LATER)
    tell(ledger, told, LATER)
    opened, resolved = mails.mails
    assert (opened["From"], opened["To"]) == ("lake@example.com", "ops@example.com, boss@example.com")
    assert opened["Subject"] == f"[feed_assets] opened: {NAME}"
    assert opened.get_content().split() == f"{NAME} opened at 2019-11-25 07:00 UTC: expected at 6:00 — «ordérs»".split()
    assert opened["Date"].datetime == NOW
    assert resolved["Subject"] == f"[feed_assets] resolved: {NAME}"
    assert "resolved at 2019-11-25 09:00 UTC" in resolved.get_content()
    assert len({opened["Message-ID"], resolved["Message-ID"]}) == 2


def test_a_name_with_a_line_break_cannot_add_a_header(ledger, mails):
    raise_alert(ledger, "missing:a\r\nBcc: thief@example.com", "late", NOW)
    tell(ledger, by_mail(f"smtp://127.0.0.1:{mails.port}"))
    (mail,) = mails.mails
    assert mail["Bcc"] is None
    assert mail["Subject"] == "[feed_assets] opened: missing:a Bcc: thief@example.com"


def test_a_mail_that_one_receiver_of_two_gets_is_delivered_and_the_other_is_named(ledger, mails, caplog):
    mails.refused = ("boss@example.com",)
    told = by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, told)
    tell(ledger, told)
    assert len(mails.mails) == 1
    assert [line for _, line in lines(caplog) if "boss@example.com" in line and "no such receiver" in line]


def test_a_mail_that_the_server_refuses_does_not_stop_the_others(ledger, mails, caplog):
    mails.refused_word = "orders"
    told = by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    tell(ledger, told)
    assert left(ledger, "mail") == [("mail", NAME, "opened")]
    assert "554" in lines(caplog)[-1][1]
    mails.refused = ("ops@example.com", "boss@example.com")
    mails.refused_word = "no mail has this word"
    tell(ledger, told)
    assert left(ledger, "mail") == [("mail", NAME, "opened")]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_password_goes_to_the_mail_server_encrypted(ledger, scheme, trusted):
    with mail_server(**{"starttls" if scheme == "smtp" else "tls": trusted}) as server:
        raise_alert(ledger, NAME, "late", NOW)
        tell(ledger, by_mail(with_user(server, scheme)))
    assert len(server.mails) == 1
    assert server.encrypted == [True]
    assert server.passwords == [PASSWORD]


def test_starttls_is_used_where_it_is_offered_without_a_password_too(ledger, trusted):
    with mail_server(starttls=trusted) as server:
        raise_alert(ledger, NAME, "late", NOW)
        tell(ledger, by_mail(f"smtp://127.0.0.1:{server.port}"))
    assert server.encrypted == [True]


def test_a_password_is_not_sent_in_the_clear(ledger, mails, caplog):
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, by_mail(with_user(mails)))
    assert (mails.mails, mails.passwords) == ([], [])
    assert "offers no STARTTLS" in lines(caplog)[-1][1]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_mail_server_whose_certificate_nobody_trusts_gets_nothing(ledger, scheme, authority, caplog):
    with mail_server(**{"starttls" if scheme == "smtp" else "tls": certified(authority)}) as server:
        raise_alert(ledger, NAME, "late", NOW)
        tell(ledger, by_mail(with_user(server, scheme)))
    assert (server.mails, server.passwords) == ([], [])
    assert "certificate verify failed" in lines(caplog)[-1][1]


def test_a_wrong_password_is_told_without_it_though_the_server_says_it_again(ledger, trusted, caplog):
    with mail_server(starttls=trusted) as server:
        raise_alert(ledger, NAME, "late", NOW)
        tell(ledger, by_mail(with_user(server, password="hunter2")))
    assert lines(caplog)[-1][1].endswith("127.0.0.1 refused user or password (535).")
    assert "hunter2" not in "".join(line for _, line in lines(caplog))


def test_what_is_in_the_webhooks_url_is_in_no_log(ledger, caplog):
    caplog.set_level(logging.INFO)
    url = f"http://me:hunter2@127.0.0.1:{free_ports(1)[0]}/key-in-the-path?token=hunter2"
    raise_alert(ledger, NAME, "late", NOW)
    tell(ledger, by_webhook(Receiver(url)))
    assert "gave no answer" in caplog.text
    assert "hunter2" not in caplog.text
    assert "key-in-the-path" not in caplog.text


def test_what_is_in_the_webhooks_url_is_in_no_traceback():
    url = f"http://127.0.0.1:{free_ports(1)[0]}/key-in-the-path"
    with pytest.raises(AlertChannelDown) as raised:
        by_webhook(Receiver(url))["webhook"](Notice("webhook", NAME, NOW, OPENED, NOW, "late"), NOW)
    told = "".join(format_exception(raised.value))
    assert "gave no answer" in told
    assert "key-in-the-path" not in told


def test_no_secret_is_shown_by_settings_and_channels(mails):
    secrets = {"alert_webhook": "http://h/hunter2", "alert_secret": "hunter2"}
    mail = {"alert_smtp": "smtp://me:hunter2@h", "alert_mail_from": "a@b", "alert_mail_to": "c@d"}
    settings = Settings(**secrets, **mail)
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump_json()} {channels(settings)}"


MAIL = {"alert_mail_from": "a@b", "alert_mail_to": "c@d"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"alert_webhook": "https://h/hunter2"}, "FEED_ASSETS_ALERT_SECRET is not: expected the key"),
        ({"alert_webhook": "https://h/hunter2", "alert_secret": ""}, "FEED_ASSETS_ALERT_SECRET is not"),
        ({"alert_webhook": "h/hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is no URL"),
        ({"alert_webhook": "file:///hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is no URL"),
        ({"alert_webhook": "https://[hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is no URL"),
        ({"alert_webhook": "https://h:hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is no URL"),
        ({"alert_webhook": "https://h/hunter2\n", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is no URL"),
        ({"alert_smtp": "smtp://h"}, "expected all three, or none"),
        (MAIL, "expected all three, or none"),
        ({"alert_smtp": "smtp://h", "alert_mail_from": "a@b"}, "expected all three, or none"),
        ({"alert_smtp": "smtp://me:hunter2@h", **MAIL, "alert_mail_to": "c@d,nobody"}, "'nobody' is no mail address"),
        ({"alert_smtp": "smtp://h", **MAIL, "alert_mail_from": "a@b\nBcc: c@d"}, "is no mail address"),
        ({"alert_smtp": "http://me:hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
        ({"alert_smtp": "smtp://me:hunter2", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
        ({"alert_smtp": "smtp://me:12#hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
        ({"alert_smtp": "smtp://me:12/hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
        ({"alert_smtp": "smtp://me:12?hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
        ({"alert_smtp": "smtp://hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
        ({"alert_smtp": "smtp://:hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
        ({"alert_smtp": "smtp://me:hunter2%C3%A9@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is no mail server"),
    ],
)
def test_a_channel_that_is_configured_by_half_is_refused_and_told_without_its_secrets(given, said):
    with pytest.raises(InvalidSetting, match=said) as raised:
        channels(Settings(**given))
    assert "hunter2" not in str(raised.value)
    assert raised.value.__context__ is None or raised.value.__suppress_context__


def test_what_is_empty_in_the_environment_is_not_set():
    assert [*channels(Settings(alert_webhook=SecretStr(""), alert_smtp=SecretStr(""), alert_mail_from=""))] == ["log"]


def test_ports_are_the_usual_ones_where_none_is_given():
    assert "port=25," in repr(by_mail("smtp://h")["mail"])
    assert "port=465," in repr(by_mail("smtps://h")["mail"])


def test_lists_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_ALERT_MAIL_TO", "ops@example.com, boss@example.com,")
    monkeypatch.setenv("FEED_ASSETS_ADS_CAMPAIGNS", "men,women,all")
    settings = Settings()
    assert settings.alert_mail_to == ("ops@example.com", "boss@example.com")
    assert settings.ads_campaigns == ("men", "women", "all")
