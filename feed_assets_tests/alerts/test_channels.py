"""Channels that the settings define, and settings that are refused."""

import pytest
from pydantic import SecretStr

from feed_assets.alerts import channels
from feed_assets.core.errors import InvalidSetting
from feed_assets.settings import Settings
from feed_assets_tests.support.alert_channels import by_mail
from feed_assets_tests.support.each_case import each_case


def test_settings_and_channels_show_no_secret(mails):
    secrets = {"alert_webhook": "http://h/hunter2", "alert_secret": "hunter2"}
    mail = {"alert_smtp": "smtp://me:hunter2@h", "alert_mail_from": "a@b", "alert_mail_to": "c@d"}
    settings = Settings(**secrets, **mail)
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump_json()} {channels(settings)}"


MAIL = {"alert_mail_from": "a@b", "alert_mail_to": "c@d"}


@each_case(
    ("given", "said"),
    [
        ({"alert_webhook": "https://h/hunter2"}, "FEED_ASSETS_ALERT_SECRET is not: expected the key"),
        ({"alert_webhook": "https://h/hunter2", "alert_secret": ""}, "FEED_ASSETS_ALERT_SECRET is not"),
        ({"alert_webhook": "h/hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK: expected"),
        ({"alert_webhook": "file:///hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK: expected"),
        ({"alert_webhook": "http://me:hunter2@h/x", "alert_secret": "s"}, "which would be sent unencrypted"),
        ({"alert_webhook": "http://hunter2@h", "alert_secret": "s"}, "which would be sent unencrypted"),
        ({"alert_webhook": "http://me:hunter/2@h", "alert_secret": "s"}, "which would be sent unencrypted"),
        ({"alert_webhook": "https://[hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is not a URL"),
        ({"alert_webhook": "https://h:hunter2", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is not a URL"),
        ({"alert_webhook": "https://h/hunter2\n", "alert_secret": "s"}, "FEED_ASSETS_ALERT_WEBHOOK is not a URL"),
        ({"alert_smtp": "smtp://h"}, "expected all three, or none"),
        (MAIL, "expected all three, or none"),
        ({"alert_smtp": "smtp://h", "alert_mail_from": "a@b"}, "expected all three, or none"),
        (
            {"alert_smtp": "smtp://me:hunter2@h", **MAIL, "alert_mail_to": "c@d,nobody"},
            "'nobody' is not a mail address",
        ),
        ({"alert_smtp": "smtp://h", **MAIL, "alert_mail_from": "a@b\nBcc: c@d"}, "is not a mail address"),
        ({"alert_smtp": "http://me:hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP: expected"),
        ({"alert_smtp": "smtp://me:hunter2", **MAIL}, "FEED_ASSETS_ALERT_SMTP is not a mail server"),
        ({"alert_smtp": "smtp://me:12#hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is not a mail server"),
        ({"alert_smtp": "smtp://me:12/hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is not a mail server"),
        ({"alert_smtp": "smtp://me:12?hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is not a mail server"),
        ({"alert_smtp": "smtp://hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is not a mail server"),
        ({"alert_smtp": "smtp://:hunter2@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is not a mail server"),
        ({"alert_smtp": "smtp://me:hunter2%C3%A9@h", **MAIL}, "FEED_ASSETS_ALERT_SMTP is not a mail server"),
    ],
)
def test_incomplete_channel_settings_are_refused_without_showing_secrets(given, said):
    with pytest.raises(InvalidSetting, match=said) as raised:
        channels(Settings(**given))
    assert "hunter2" not in str(raised.value)
    assert raised.value.__context__ is None or raised.value.__suppress_context__


def test_empty_environment_variables_count_as_unset():
    assert [*channels(Settings(alert_webhook=SecretStr(""), alert_smtp=SecretStr(""), alert_mail_from=""))] == ["log"]


def test_mail_ports_default_to_25_and_465():
    assert "port=25," in repr(by_mail("smtp://h")["mail"])
    assert "port=465," in repr(by_mail("smtps://h")["mail"])


def test_list_settings_are_read_from_comma_separated_variables(monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_ALERT_MAIL_TO", "ops@example.com, boss@example.com,")
    monkeypatch.setenv("FEED_ASSETS_ADS_CAMPAIGNS", "men,women,all")
    settings = Settings()
    assert settings.alert_mail_to == ("ops@example.com", "boss@example.com")
    assert settings.ads_campaigns == ("men", "women", "all")
