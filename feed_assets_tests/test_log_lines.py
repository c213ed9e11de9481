"""Lines of services: for people as before, and as one JSON object each if the settings say so."""

import json
import logging
from datetime import datetime, timedelta, timezone

import pytest

from feed_assets import log_lines
from feed_assets.cli import errors_in_a_line
from feed_assets.core.errors import InvalidName
from feed_assets.home import say
from feed_assets.settings import settings
from feed_assets_tests.support.each_case import each_case

NOON = datetime(2026, 1, 2, 14, tzinfo=timezone(timedelta(hours=2)))


@pytest.fixture
def as_json(home, monkeypatch):
    """Set the form of lines to JSON for the command `feed-assets connector run`."""
    monkeypatch.setenv("FEED_ASSETS_LOGS", "json")
    monkeypatch.setattr("sys.argv", ["/opt/bin/feed-assets", "connector", "run"])
    settings.cache_clear()
    yield
    settings.cache_clear()
    log_lines.as_text()


def lines_of(capsys) -> list[dict[str, str]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


@each_case(
    ("message", "written"),
    [
        ("plain", "plain"),
        ("two\nlines", "two\nlines"),
        ("\x1b]0;title\x07\x9b\u2028\u202e\x00", "\\x1b]0;title\\x07\\x9b\\u2028\\u202e\\x00"),
        ("\ud800 é", "\\ud800 é"),
        ("postgresql://me:hidden@host/d", "postgresql://me:***@host/d"),
        ("sasl.password=hidden", "sasl.password=***"),
        ('"}\n{"level": "forged"', '"}\n{"level": "forged"'),
    ],
)
def test_a_json_line_is_one_ascii_line_without_secrets_and_control_characters(message, written):
    line = log_lines.json_line(NOON, "WARNING", "loader\x1b", message)
    assert line.isascii()
    assert line.splitlines(keepends=True) == [line]
    expected = {"time": "2026-01-02T12:00:00.000+00:00", "level": "warning", "service": "loader\\x1b"}
    assert json.loads(line) == {**expected, "message": written}


def test_the_setting_makes_json_of_each_line_of_a_service(as_json, capsys, caplog):
    settings()
    say("a line", level="warning")
    logging.getLogger("feed_assets.intake.flush").error("of %s", "a logger")
    with pytest.raises(SystemExit), errors_in_a_line():
        raise InvalidName("wrong")
    lines = lines_of(capsys)
    assert [(each["level"], each["message"]) for each in lines] == [
        ("warning", "a line"),
        ("error", "of a logger"),
        ("error", "wrong"),
    ]
    assert {each["service"] for each in lines} == {"connector"}
    assert caplog.records == [], "handlers of Dagster's processes would write the lines of loggers again"
    assert all(datetime.fromisoformat(each["time"]).utcoffset() is not None for each in lines)


def test_an_error_before_the_settings_were_read_is_json_too_with_its_stack_trace(as_json, capsys):
    with pytest.raises(SystemExit), errors_in_a_line():
        raise InvalidName("wrong")
    assert [each["message"] for each in lines_of(capsys)] == ["wrong"]
    try:
        {}["password=hidden"]
    except KeyError:
        logging.getLogger("feed_assets.runs").exception("failed")
    (line,) = lines_of(capsys)
    assert line["message"].startswith("failed\nTraceback (most recent call last):")
    assert "KeyError: 'password=***" in line["message"]


def test_without_the_setting_lines_stay_as_they_are_for_people(home, capsys):
    settings()
    say("a line\x1b")
    assert capsys.readouterr().err == "feed-assets: a line\\x1b\n"


@each_case(
    ("arguments", "service"),
    [
        (["/opt/venv/bin/feed-assets", "-v", "receive", "--port", "1"], "receive"),
        (["/opt/venv/bin/dagster-daemon", "run"], "dagster-daemon"),
        (["feed-assets"], "feed-assets"),
        ([], "python"),
    ],
)
def test_the_service_is_the_subcommand_or_the_program(arguments, service):
    assert log_lines.service_of(arguments) == service
