"""Backfills whose manual run was killed: the process that finishes its claims ends them."""

import os
import signal
from dataclasses import replace
from datetime import timedelta

import pytest

from feed_assets.core.completeness import WindowState
from feed_assets.core.feeds import Partition
from feed_assets.core.reports import Report
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import runs, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import backfills, window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.runs.build import build
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.reconcile import reconcile
from feed_assets.runs.services import Services, this_process
from feed_assets.testing import PlainMaker
from feed_assets_tests.runs.killed_run import left_behind, no_spark
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, RAW, Lake

HOUR = WindowAddress(CLEAN, "", "hour", "2019-11-25-05:00")


@pytest.fixture
def lake(ledger) -> Lake:
    """Return a lake whose hour was judged invalid."""
    return invalid(Lake(Services(Blackboard.open("memory://"), ledger, no_spark, lambda: NOW + timedelta(hours=1))))


def invalid(lake: Lake) -> Lake:
    """Make the hour complete, then invalid."""
    ledger, start = lake.services.ledger, NOW.replace(hour=5, minute=0, second=0, microsecond=0)
    window_queries.declare(ledger, {CLEAN: Tracked(("hour",), "100%")}, NOW)
    report(ledger, [Report(CLEAN, "", "one", ((start, 1),), tier) for tier in ("", "served")], NOW)
    window_queries.report_quality(ledger, HOUR, "bots", "failed", "bots", "dq", NOW)
    return lake


def state(lake: Lake) -> tuple[WindowState, str | None]:
    """Return state and stale data of the hour."""
    with lake.services.ledger.read() as connection:
        row = window_queries.stored_windows(connection, [HOUR])[HOUR]
    return row.state, row.stale


def begun(lake: Lake, sealed: int, process: str | None = None) -> runs.Run:
    """Leave a run that was killed after it had begun the backfill, with `sealed` manifests."""
    run = left_behind(lake, sealed, **({"process": process} if process else {}))
    backfills.begin(lake.services.ledger, HOUR, "by hand", run.id, NOW)
    return run


def test_a_window_published_by_a_killed_run_is_backfilled_with_stale_checks(lake):
    begun(lake, sealed=2)
    reconcile(lake.services)
    found, stale = state(lake)
    assert found is WindowState.BACKFILLED
    assert "has not run since: bots" in (stale or "")


def test_a_window_not_published_by_a_killed_run_is_invalid_again(lake):
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


def test_a_backfill_of_a_living_run_is_left_alone(lake):
    begun(lake, sealed=0, process=this_process())
    reconcile(lake.services)
    assert state(lake)[0] is WindowState.BACKFILLING


def test_a_backfill_begun_by_a_person_is_left_alone(lake):
    backfills.begin(lake.services.ledger, HOUR, "by hand", "eve", NOW)
    reconcile(lake.services)
    assert state(lake)[0] is WindowState.BACKFILLING


def test_a_backfill_is_ended_once(lake):
    begun(lake, sealed=2)
    reconcile(lake.services)
    window_queries.report_quality(lake.services.ledger, HOUR, "bots", "passed", None, "dq", NOW)
    reconcile(lake.services)
    assert state(lake) == (WindowState.BACKFILLED, None)


def made_again(services: Services) -> None:
    """Build by hand a day that fills the hour with similar data."""
    recipe = Recipe(CLEAN, (RecipeInput("raw", RAW),), lambda raw: raw)
    build(recipe, Partition(CLEAN, DAY), {"raw": [Partition(RAW, DAY)]}, services, made_again=[HOUR])


def test_a_backfill_begins_after_its_update_is_claimed(lake):
    lake.drop("1")
    seen: list[tuple[str, WindowState]] = []
    listening = replace(lake.services, maker=PlainMaker, on_step=lambda step: seen.append((step, state(lake)[0])))
    made_again(listening)
    begun = [step for step, _ in seen].index("backfills begun")
    assert seen[begun - 1] == ("claimed in the ledger", WindowState.INVALID)
    assert {found for _, found in seen[:begun]} == {WindowState.INVALID}
    assert {found for _, found in seen[begun:]} == {WindowState.BACKFILLING}
    assert state(lake)[0] is WindowState.BACKFILLED


def make_and_die(board_url: str, ledger_url: str, last: str) -> None:
    """Make it again, and be killed right after a step."""

    def die(step: str) -> None:
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

    board, ledger = Blackboard.open(board_url), open_ledger(ledger_url)
    made_again(Services(board, ledger, PlainMaker, lambda: NOW + timedelta(hours=1), die))


@pytest.mark.parametrize(
    ("last", "killed_in", "after"),
    [
        ("claimed in the ledger", WindowState.INVALID, WindowState.INVALID),
        ("backfills begun", WindowState.BACKFILLING, WindowState.INVALID),
        (f"manifest of {CLEAN} written", WindowState.BACKFILLING, WindowState.BACKFILLED),
        ("published", WindowState.BACKFILLING, WindowState.BACKFILLED),
    ],
)
def test_a_backfill_killed_after_any_step_is_ended_by_reconcile(ledger, tmp_path, forker, last, killed_in, after):
    url = (tmp_path / "lake").as_uri()
    services = Services(Blackboard.open(url, create=True), ledger, no_spark, lambda: NOW + timedelta(hours=1))
    lake = invalid(Lake(services))
    lake.drop("1")
    assert forker.run(make_and_die, url, str(ledger.engine.url), last) == -signal.SIGKILL
    assert state(lake)[0] is killed_in
    reconcile(services)
    assert state(lake)[0] is after
