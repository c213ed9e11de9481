"""`feed-assets ledger prune`, as a user types it."""

import json
from datetime import timedelta

import pytest
from typer.testing import CliRunner

from feed_assets.cli import app
from feed_assets.core.events import WriteEvent
from feed_assets.ledger import event_store, subscriptions, update_durations
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings


@pytest.fixture(autouse=True)
def ledger(home, monkeypatch):
    """Record three consumed events of a hundred days ago, and one of today."""
    monkeypatch.setattr(update_durations, "SHOWN", 1)
    opened = open_ledger(settings().ledger)
    for marker, age in enumerate((100, 100, 100, 0), 1):
        now = utc_now() - timedelta(days=age)
        with opened.change() as connection:
            event_store.publish(connection, WriteEvent("team/a", marker, now, f"c{marker}"), now)
            subscriptions.advance(connection, "somebody", marker - 1)
    return opened


def prune(*options: str) -> str:
    return CliRunner().invoke(app, ["ledger", "prune", *options], catch_exceptions=False).stdout


def kept(ledger) -> int:
    with ledger.read() as connection:
        return len(event_store.newest(connection, 10))


def test_ledger_prune_lists_rows_and_removes_them_only_with_apply(ledger):
    header, row, note = prune().splitlines()
    assert header.split() == ["before", "changes", "events", "rejects", "reports", "reports_before", "applied"]
    assert row.split()[3:7] == ["3", "3", "0", "0"]
    assert note == "6 rows would be removed: add --apply"
    assert kept(ledger) == 4
    assert prune("--apply").splitlines()[-1] == "6 rows removed"
    assert kept(ledger) == 1
    assert prune().splitlines()[-1] == "0 rows would be removed: add --apply"


def test_ledger_prune_names_the_subscriber_that_still_needs_old_changes(ledger):
    with ledger.write() as connection:
        subscriptions.subscribe(connection, [("ads/x/v1", "team/a")])
    assert prune().splitlines()[-1] == (
        "0 rows would be removed: add --apply; changes stay for a subscriber: ads/x/v1 of team/a has read up to number "
        "0 only"
    )
    found = json.loads(prune("--json"))
    assert (found["events"], found["applied"]) == (0, False)
    assert found["held_by"] == "ads/x/v1 of team/a has read up to number 0 only"


def test_the_age_of_pruned_rows_is_a_setting(ledger, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_LOG_DAYS", "101")
    settings.cache_clear()
    assert prune().splitlines()[-1].startswith("0 rows")
