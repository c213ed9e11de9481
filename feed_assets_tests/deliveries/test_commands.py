"""`feed-assets subscriptions`: what waits, and what a person does about it."""

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.delivery_targets import Statement, Subscription
from feed_assets.core.errors import DeliveryRefused, DeliveryTargetDown, InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.deliveries import outbox, owners, positions
from feed_assets.deliveries.outbox import Delivery
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def change(lane, sequence):
    event = {"time": f"2026-01-01T00:00:0{sequence}+00:00", "data": {"transition": "published"}}
    return Delivery("cache", lane, sequence, event, due=NOW)


@pytest.fixture
def ledger(home):
    """Return a ledger in which two partitions wait for a person, one of them with a change behind it."""
    opened = open_ledger(settings().ledger)
    with opened.write() as connection:
        positions.advance(connection, "cache", Feed.parse("t/sums/v1.0"), None, 0)
        outbox.put(connection, [change("2026-01-01", 1), change("2026-01-02", 2), change("2026-01-01", 3)])
        for _ in range(outbox.REFUSALS):
            for head in outbox.heads(connection, "cache", NOW + timedelta(days=1)):
                outbox.failed(connection, head, NOW, DeliveryRefused("it answered with 404."))
    yield opened
    opened.engine.dispose()


PROJECT = """
import dagster as dg
from feed_assets import Statement, foreign_feed, on_change, with_automation

days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-06")
sums = foreign_feed("t/sums/v1.0", partitions_def=days, schema="k string")
total = on_change(sums, name="cache", to=Statement("SELECT 1", "main"))
defs = with_automation(dg.Definitions(assets=[sums, total]))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return the name of a module with a subscription, whose warehouse is missing."""
    (tmp_path / "with_totals.py").write_text(PROJECT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "with_totals", raising=False)
    return "with_totals"


def test_run_ends_with_code_3_while_changes_wait_for_a_person_and_with_1_while_they_are_tried_again(ledger, project):
    ended = CliRunner().invoke(app, ["run", "--until-idle", "-m", project])
    assert ended.exit_code == 3
    (line,) = [each for each in ended.stdout.splitlines() if each.startswith("WAITS")]
    assert line.startswith(
        "WAITS   subscription cache: the subscription cache waits for a person: it answered with 404."
    )
    assert "feed-assets subscriptions retry cache" in line
    assert "feed-assets build --failed" not in ended.stdout
    run("retry", "cache")
    ended = CliRunner().invoke(app, ["run", "--until-idle", "-m", project])
    assert ended.exit_code == 1
    (line,) = [each for each in ended.stdout.splitlines() if each.startswith("AGAIN")]
    assert line.startswith("AGAIN   subscription cache: the subscription cache is behind: ")
    assert "DEBUG" not in ended.output
    with pytest.raises(InvalidName, match="the subscription cache is declared, and its last tick was at"):
        run("drop", "cache", "--all")
    with ledger.read() as connection:
        lanes = [each.lane for each in outbox.waiting(connection, "cache")]
    for lane in lanes:
        run("drop", "cache", lane)
    assert CliRunner().invoke(app, ["run", "--until-idle", "-m", project]).exit_code == 0


def run(*arguments):
    result = CliRunner().invoke(app, ["subscriptions", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


def waiting(ledger):
    with ledger.read() as connection:
        return [each.sequence for each in outbox.heads(connection, "cache", datetime.now(UTC))]


def test_the_list_shows_what_waits_for_each_subscription_and_for_a_person(ledger):
    (row,) = run("ls")
    assert (row["subscription"], row["waiting"], row["dead"]) == ("cache", 3, 2)
    assert (row["since"], row["last_tick"]) == ("2026-01-01T00:00:01+00:00", None)
    declared = Subscription("cache", Feed.parse("t/sums/v1.0"), ("published",), Statement("SELECT 1", "main"))
    owners.check(ledger, declared, "shop", NOW)
    assert run("ls")[0]["last_tick"] == "2026-01-01T00:00:00Z"
    assert [(each["partition"], each["person"], each["error"]) for each in run("ls", "cache")] == [
        ("2026-01-01", True, "it answered with 404."),
        ("2026-01-02", True, "it answered with 404."),
    ]


def test_the_list_of_a_subscription_has_the_last_error_of_each_partition_that_waits(ledger):
    with ledger.write() as connection:
        outbox.put(connection, [change("2026-01-03", 4), change("2026-01-04", 5)])
        head = outbox.first(connection, "cache", "2026-01-03")
        outbox.failed(connection, head, NOW, DeliveryTargetDown("it answered with 500."))
        head = outbox.first(connection, "cache", "2026-01-03")
        outbox.failed(connection, head, NOW, DeliveryTargetDown("it gave no answer."))
    rows = run("ls", "cache")
    assert [(each["partition"], each["person"], each["tries"]) for each in rows] == [
        ("2026-01-01", True, 5),
        ("2026-01-02", True, 5),
        ("2026-01-03", False, 2),
    ]
    assert (rows[2]["error"], rows[2]["due"]) == ("it gave no answer.", "2026-01-01T00:00:10Z")
    (row,) = run("ls")
    assert row["error"] == "it answered with 404."


def test_a_person_retries_one_partition_or_all(ledger):
    assert run("retry", "cache", "2026-01-02") == {"subscription": "cache", "retried": 1}
    assert waiting(ledger) == [2]
    assert run("retry", "cache") == {"subscription": "cache", "retried": 1}
    assert sorted(waiting(ledger)) == [1, 2]


def test_a_dropped_change_lets_the_changes_behind_it_go_on(ledger):
    assert run("drop", "cache", "2026-01-01") == {"subscription": "cache", "dropped": 1}
    assert waiting(ledger) == [3]
    with pytest.raises(InvalidName, match="found 2026-01-02 and --all: expected one of them"):
        run("drop", "cache", "2026-01-02", "--all")
    with ledger.write() as connection:
        outbox.put(connection, [change("2026-01-01", 4)])
    assert run("drop", "cache", "2026-01-01") == {"subscription": "cache", "dropped": 1}
    assert waiting(ledger) == [4], "a change that is still tried can be dropped by its partition"
    alerts.keep(ledger, "undelivered", {"t/sums/v1.0|cache|person": "it waits"}, NOW)
    assert run("drop", "cache", "--all") == {"subscription": "cache", "dropped": 2}
    with ledger.read() as connection:
        assert alerts.open_alerts(connection) == ()
    assert run("ls") == []


def test_wrong_names_are_refused_with_those_that_exist(ledger):
    with pytest.raises(InvalidName, match="no subscription cash: expected cache"):
        run("retry", "cash")
    with pytest.raises(InvalidName, match="nothing in 2026-01-03 of the subscription cache waits for a person"):
        run("drop", "cache", "2026-01-03")
