"""The job `prune_ledger`, and the sensor `orphans`, which prunes the ledger once a day."""

from datetime import timedelta

import dagster as dg
import pytest

from feed_assets.core.events import WriteEvent
from feed_assets.ledger import event_store, old_rows, subscriptions, update_durations
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.harness_queries import evaluate_orphans
from feed_assets_tests.support.sum_projects import harness, raw_feed


@pytest.fixture
def aged(monkeypatch):
    """Return a world with old events for which nobody waits."""
    monkeypatch.setattr(update_durations, "SHOWN", 1)
    made = harness(raw_feed())
    ledger = open_ledger(settings().ledger)
    for marker in range(1, 5):
        now = utc_now() - timedelta(days=100)
        with ledger.change() as connection:
            event_store.publish(connection, WriteEvent("team/a", marker, now, f"c{marker}"), now)
            subscriptions.advance(connection, "somebody", marker)
    return made


def kept() -> int:
    with open_ledger(settings().ledger).read() as connection:
        return len(event_store.newest(connection, 10))


def run_job(world, **config) -> bool:
    given = {"ops": {"prune_old_rows": {"config": config}}} if config else {}
    job: dg.JobDefinition = world.definitions.resolve_job_def("prune_ledger")
    return job.execute_in_process(run_config=given, instance=world.instance).success


def test_prune_ledger_job_counts_old_rows_and_removes_them_only_with_apply(aged, capfd):
    assert run_job(aged)
    said = capfd.readouterr().err
    assert "3 changes older than " in said
    assert "3 events older than " in said
    assert "UTC would be removed" in said
    assert kept() == 4
    assert run_job(aged, apply=True)
    assert kept() == 1


def test_the_orphan_sensor_prunes_the_ledger_once_a_day(aged):
    assert evaluate_orphans(aged) == "6 old rows of the ledger removed"
    assert kept() == 1
    later = utc_now() + timedelta(hours=23)
    ledger = open_ledger(settings().ledger)
    with ledger.change() as connection:
        for marker in (5, 6):
            event_store.publish(
                connection, WriteEvent("team/a", marker, later, f"c{marker}"), utc_now() - timedelta(days=100)
            )
        subscriptions.advance(connection, "somebody", 6)
    assert evaluate_orphans(aged, hours=23) == "No orphans."
    assert evaluate_orphans(aged, hours=25) == "4 old rows of the ledger removed"


def test_the_orphan_sensor_goes_on_pruning_after_a_tick_out_of_time(aged, setting, monkeypatch):
    monkeypatch.setattr(old_rows, "ROWS_PER_STEP", 2)
    setting(tick_seconds=0.000001)
    for hours in range(0, 20, 2):
        evaluate_orphans(aged, hours=hours)
    assert kept() == 1
