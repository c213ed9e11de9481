"""Backfills that a run by hand began and was killed in: ended by whoever finishes its claims."""

from datetime import timedelta

import pytest

from feed_assets.core.completeness import WindowState
from feed_assets.core.members import Tracked
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import runs, updates
from feed_assets.ledger.states import backfills, windows
from feed_assets.ledger.states.reports import report
from feed_assets.runs.reconcile import reconcile
from feed_assets.runs.services import Services, this_process
from feed_assets_tests.runs.lakes import CLEAN, NOW, Lake
from feed_assets_tests.runs.test_reconcile import left_behind, no_spark

HOUR = WindowAddress(CLEAN, "", "hour", "2019-11-25-05:00")


@pytest.fixture
def lake(ledger) -> Lake:
    """A lake whose hour is all there, and was found invalid."""
    start = NOW.replace(hour=5, minute=0, second=0, microsecond=0)
    windows.declare(ledger, {CLEAN: Tracked(("hour",), "100%")}, NOW)
    report(ledger, [Report(CLEAN, "", "one", ((start, 1),), tier) for tier in ("", "served")], NOW)
    windows.report_quality(ledger, HOUR, "bots", "failed", "bots", "dq", NOW)
    return Lake(Services(Blackboard.open("memory://"), ledger, no_spark, lambda: NOW + timedelta(hours=1)))


def state(lake: Lake) -> tuple[WindowState, str | None]:
    """The hour's, and what is stale of it."""
    with lake.services.ledger.read() as connection:
        row = windows.known(connection, [HOUR])[HOUR]
    return row.state, row.stale


def begun(lake: Lake, sealed: int, process: str | None = None) -> runs.Run:
    """What a run leaves that was killed after it had begun the backfill, with so many manifests."""
    run = left_behind(lake, sealed, **({"process": process} if process else {}))
    backfills.begin(lake.services.ledger, HOUR, "by hand", run.id, NOW)
    return run


def test_what_the_run_published_is_backfilled_and_its_checks_have_to_run_again(lake):
    begun(lake, sealed=2)
    reconcile(lake.services)
    found, stale = state(lake)
    assert found is WindowState.BACKFILLED
    assert "has not run since: bots" in (stale or "")


def test_what_the_run_did_not_publish_is_invalid_again(lake):
    begun(lake, sealed=1)
    reconcile(lake.services)
    assert state(lake) == (WindowState.INVALID, None)


def test_a_run_that_was_killed_before_it_began_leaves_the_hour_as_it_is(lake):
    left_behind(lake, sealed=0)
    reconcile(lake.services)
    assert state(lake) == (WindowState.INVALID, None)


@pytest.mark.parametrize(
    ("ended", "after"), [(updates.PUBLISHED, WindowState.BACKFILLED), (updates.REFUSED, WindowState.INVALID)]
)
def test_a_run_that_was_killed_between_its_end_and_that_of_the_backfill(lake, ended, after):
    run = begun(lake, sealed=0)
    with lake.services.ledger.change() as connection:
        runs.end(connection, run.id, ended, NOW, None)
    reconcile(lake.services)
    assert state(lake)[0] is after


def test_what_a_run_makes_that_goes_on_is_left_alone(lake):
    begun(lake, sealed=0, process=this_process())
    reconcile(lake.services)
    assert state(lake)[0] is WindowState.BACKFILLING


def test_what_a_person_has_begun_is_left_alone(lake):
    backfills.begin(lake.services.ledger, HOUR, "by hand", "eve", NOW)
    reconcile(lake.services)
    assert state(lake)[0] is WindowState.BACKFILLING


def test_it_is_ended_once(lake):
    begun(lake, sealed=2)
    reconcile(lake.services)
    windows.report_quality(lake.services.ledger, HOUR, "bots", "passed", None, "dq", NOW)
    reconcile(lake.services)
    assert state(lake) == (WindowState.BACKFILLED, None)
