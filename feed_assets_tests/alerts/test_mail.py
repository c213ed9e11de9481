"""Alerts by mail, through a real mail server: what is sent, encrypted or not at all."""

import pytest
from pydantic import SecretStr

from feed_assets.alerts import channels
from feed_assets.settings import Settings
from feed_assets_tests.support.alert_channels import (
    LATER,
    NAME,
    NOW,
    OTHER,
    by_mail,
    deliver_alerts,
    logged_lines,
    undelivered_alerts,
    with_user,
)
from feed_assets_tests.support.alert_steps import raise_alert, resolve
from feed_assets_tests.support.mail_server import PASSWORD, certified, mail_server


def test_mails_report_the_opening_and_the_resolution_of_an_alert(ledger, mails):
    configured = by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "expected at 6:00 — «ordérs»", NOW)
    deliver_alerts(ledger, configured)
    resolve(ledger, NAME, LATER)
    deliver_alerts(ledger, configured, LATER)
    opened, resolved = mails.mails
    assert (opened["From"], opened["To"]) == ("lake@example.com", "ops@example.com, boss@example.com")
    assert opened["Subject"] == f"[feed_assets] opened: {NAME}"
    assert opened.get_content().split() == f"{NAME} opened at 2019-11-25 07:00 UTC: expected at 6:00 — «ordérs»".split()
    assert opened["Date"].datetime == NOW
    assert resolved["Subject"] == f"[feed_assets] resolved: {NAME}"
    assert "resolved at 2019-11-25 09:00 UTC" in resolved.get_content()
    assert len({opened["Message-ID"], resolved["Message-ID"]}) == 2


def test_a_name_with_a_line_break_or_an_encoded_one_cannot_add_a_header(ledger, mails):
    names = {
        "a\r\nBcc: thief@example.com": "a Bcc: thief@example.com",
        "a =?utf-8?q?=0D=0ABcc:_thief=40example.com?= b": "a =\u200b?utf-8?q?=0D=0ABcc:_thief=40example.com?= b",
        "a =?us-ascii?q?=80?= b": "a =\u200b?us-ascii?q?=80?= b",
    }
    for name in names:
        raise_alert(ledger, f"missing:{name}", "late", NOW)
    deliver_alerts(ledger, by_mail(f"smtp://127.0.0.1:{mails.port}"))
    assert [mail["Bcc"] for mail in mails.mails] == [None] * len(names)
    shown = {mail["Subject"] for mail in mails.mails}
    assert shown == {f"[feed_assets] opened: missing:{each}" for each in names.values()}


def test_apprise_sends_a_foreign_text_as_text_and_without_mentions(ledger, mails):
    url = f"mailto://127.0.0.1:{mails.port}/?from=lake@example.com&to=ops@example.com"
    raise_alert(ledger, NAME, "<b>late</b> 1 < 2 @everyone <!channel> <@&123> @**all** <users/all> @room", NOW)
    deliver_alerts(ledger, channels(Settings(alert_apprise=SecretStr(url))))
    (mail,) = mails.mails
    assert mail.get_content_type() == "text/plain"
    text = mail.get_content().replace("\u200b", "^")
    assert "<^b>late</b> 1 < 2 @^everyone <^!channel> <^@^&123> @^**all** <^users/all> @^room" in text


def test_mail_accepted_for_one_of_two_receivers_is_delivered_and_names_the_other(ledger, mails, caplog):
    mails.refused = ("boss@example.com",)
    configured = by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, configured)
    deliver_alerts(ledger, configured)
    assert len(mails.mails) == 1
    assert [line for _, line in logged_lines(caplog) if "boss@example.com" in line and "no such receiver" in line]


def test_refused_mail_does_not_stop_other_mails(ledger, mails, caplog):
    mails.refused_word = "orders"
    configured = by_mail(f"smtp://127.0.0.1:{mails.port}")
    raise_alert(ledger, NAME, "late", NOW)
    raise_alert(ledger, OTHER, "late", NOW)
    deliver_alerts(ledger, configured)
    assert undelivered_alerts(ledger, "mail") == [("mail", NAME, "opened")]
    assert "554" in logged_lines(caplog)[-1][1]
    mails.refused = ("ops@example.com", "boss@example.com")
    mails.refused_word = "no mail has this word"
    deliver_alerts(ledger, configured)
    assert undelivered_alerts(ledger, "mail") == [("mail", NAME, "opened")]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_a_password_goes_to_the_mail_server_encrypted(ledger, scheme, trusted):
    with mail_server(**{"starttls" if scheme == "smtp" else "tls": trusted}) as server:
        raise_alert(ledger, NAME, "late", NOW)
        deliver_alerts(ledger, by_mail(with_user(server, scheme)))
    assert len(server.mails) == 1
    assert server.encrypted == [True]
    assert server.passwords == [PASSWORD]


def test_starttls_is_used_without_a_password_when_offered(ledger, trusted):
    with mail_server(starttls=trusted) as server:
        raise_alert(ledger, NAME, "late", NOW)
        deliver_alerts(ledger, by_mail(f"smtp://127.0.0.1:{server.port}"))
    assert server.encrypted == [True]


def test_a_password_is_not_sent_in_the_clear(ledger, mails, caplog):
    raise_alert(ledger, NAME, "late", NOW)
    deliver_alerts(ledger, by_mail(with_user(mails)))
    assert (mails.mails, mails.passwords) == ([], [])
    assert "offers no STARTTLS" in logged_lines(caplog)[-1][1]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
def test_mail_server_with_an_untrusted_certificate_gets_nothing(ledger, scheme, authority, caplog):
    with mail_server(**{"starttls" if scheme == "smtp" else "tls": certified(authority)}) as server:
        raise_alert(ledger, NAME, "late", NOW)
        deliver_alerts(ledger, by_mail(with_user(server, scheme)))
    assert (server.mails, server.passwords) == ([], [])
    assert "certificate verify failed" in logged_lines(caplog)[-1][1]


def test_wrong_mail_password_is_reported_without_showing_it(ledger, trusted, caplog):
    with mail_server(starttls=trusted) as server:
        raise_alert(ledger, NAME, "late", NOW)
        deliver_alerts(ledger, by_mail(with_user(server, password="hunter2")))
    assert logged_lines(caplog)[-1][1].endswith("127.0.0.1 refused user or password (535).")
    assert "hunter2" not in "".join(line for _, line in logged_lines(caplog))
