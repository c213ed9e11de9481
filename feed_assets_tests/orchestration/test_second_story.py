"""The article's story of a dataset with high quality requirements, from end to end, through Dagster."""

from datetime import timedelta

import dagster as dg
import pytest

from feed_assets import Completeness, Input, Profile, checks, profiled, state_table
from feed_assets.core.completeness import WindowState
from feed_assets.core.readiness import State
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import log, quality
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.orchestration.second_story import (
    BOTS,
    FOO,
    HOUR,
    HOURS,
    NOW,
    OF_HOUR,
    RUNS,
    backfill,
    checked,
    counted,
    flag,
    give,
    made,
    reader,
    states,
    told,
    verdict,
    world,
)
from feed_assets_tests.support.sum_projects import harness

INVALID = {"hour": "invalid", "10min": "complete_with_issue", "5min": "complete_with_issue"}
GOOD = {"hour": "backfilled", "10min": "complete", "5min": "complete"}


def test_an_invalid_hour_marks_its_outputs_until_it_is_backfilled_and_passes():
    tested = world()
    tested.run_until_idle()
    counted(0, 15)
    tested.run_until_idle()
    counted(15, 16)
    assert made(tested.tick()) == ["anyhow 15", "intraday 15", "preagg 15"]

    # The data quality job marks hour 15 as invalid before the report of its pre-aggregation is made.
    checked("failed", BOTS)
    assert made(tested.run_until_idle()) == []
    assert states() == INVALID
    assert {name: flag(name) for name in ("preagg", "anyhow", "intraday")} == dict.fromkeys(
        ("preagg", "anyhow", "intraday"), OF_HOUR
    )
    assert flag("preagg", "2026-01-02-14:00") is None
    waits = verdict(tested, "report")
    assert (waits.state, OF_HOUR in waits.reason) == (State.WAITS_FOR_QUALITY, True)

    # The table's owner makes the hour again by hand.
    backfill("started")
    assert made(tested.run_until_idle()) == []
    assert states()["hour"] == "backfilling"
    assert (flag("preagg"), verdict(tested, "report").state) == (OF_HOUR, State.WAITS_FOR_QUALITY)
    counted(15, 16, version=1)
    backfill("done")
    assert made(tested.run_until_idle()) == ["anyhow 15"]
    assert states() == INVALID | {"hour": "backfilled"}
    assert "failed before the data were made again" in (flag("preagg") or "")

    # The checks pass: the flags end, and the outputs are rebuilt.
    checked("passed", version=1)
    assert made(tested.run_until_idle()) == ["intraday 15", "preagg 15", "report 15"]
    assert states() == GOOD
    assert [flag(name) for name in ("preagg", "anyhow", "intraday", "report")] == [None] * 4
    assert told(tested)[:1] == [f"invalid: bots: {BOTS}"]
    assert f"inputs marked: {OF_HOUR}" in told(tested, "web/preagg")
    assert "inputs passed" in told(tested, "web/preagg")


def test_later_readers_of_an_invalid_hour_wait_unless_they_ignore_quality():
    tested = world()
    tested.run_until_idle()
    counted(0, 16)
    checked("failed", BOTS)
    assert set(made(tested.run_until_idle())) & {"anyhow 15", "intraday 15", "preagg 15"} == {"anyhow 15"}
    assert flag("anyhow") == OF_HOUR
    assert verdict(tested, "intraday").state is State.WAITS_FOR_QUALITY
    assert tested.run_until_idle() == []


def test_a_check_that_fails_again_makes_the_hour_invalid_again():
    tested = world()
    tested.run_until_idle()
    counted(0, 16)
    tested.run_until_idle()
    checked("failed", BOTS)
    backfill("started")
    backfill("done")
    checked("failed", "still bots", version=1)
    tested.run_until_idle()
    assert states() == INVALID
    assert flag("preagg") == f"hour {HOUR} of web/foo is invalid: bots: still bots"


@pytest.mark.parametrize(("failed", "after"), [(True, WindowState.INVALID), (False, WindowState.COMPLETE)])
def test_a_failed_backfill_restores_the_state_before_it(failed, after):
    tested = world()
    tested.run_until_idle()
    counted(0, 16)
    tested.run_until_idle()
    if failed:
        checked("failed", BOTS)
    backfill("started")
    backfill("failed", "no disk left")
    tested.run_until_idle()
    assert states()["hour"] == after
    assert flag("preagg") == (OF_HOUR if failed else None)


def test_a_second_tick_after_a_failed_check_writes_nothing():
    tested = world()
    tested.run_until_idle()
    counted(0, 16)
    tested.run_until_idle()
    checked("failed", BOTS)
    tested.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        before = log.last(connection)
    tested.run_until_idle()
    with open_ledger(settings().ledger).read() as connection:
        assert log.last(connection) == before


def test_the_flag_of_an_output_that_is_never_reprocessed_ends_too():
    RUNS.clear()
    foo = state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))
    tested = harness(foo, reader("kept", HOURS, foo, reprocess="never"), give=give, now=lambda: NOW)
    tested.run_until_idle()
    counted(0, 15)
    counted(15, 16)
    tested.run_until_idle()
    checked("failed", BOTS)
    backfill("started")
    counted(15, 16, version=1)
    backfill("done")
    tested.run_until_idle()
    assert "failed before the data were made again" in (flag("kept") or "")
    checked("passed", version=1)
    assert made(tested.run_until_idle()) == []
    assert (flag("kept"), verdict(tested, "kept").state) == (None, State.CURRENT)


def test_a_bad_hour_also_marks_outputs_of_its_day():
    """The day opens again. Its state alone would look like late data, and not like bad data."""
    RUNS.clear()
    foo = state_table("web/foo", partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))
    days = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-03")
    daily = reader("daily", days, foo)
    tested = harness(foo, daily, reader("below", days, daily), give=give, now=lambda: NOW + timedelta(hours=9))
    tested.run_until_idle()
    counted(0, 24)
    assert [run.assets for run in tested.tick()] == [("web/daily",)]
    checked("failed", BOTS)
    assert tested.run_until_idle() == []
    assert flag("daily", "2026-01-02") == f"day 2026-01-02 of web/foo is open: {OF_HOUR.replace(' of web/foo', '')}"
    checked("passed", version=1)
    assert [run.assets for run in tested.run_until_idle()] == [("web/below",)]
    assert flag("daily", "2026-01-02") is None


NO_BOTS = checks.Check("no_bots", "no row may be of a bot", lambda found: found == 0, "count_if(is_bot)")
FROM_EIGHT = dg.HourlyPartitionsDefinition("2026-01-02-08:00")
PROFILED = Profile(baseline="7 partitions")


def quality_of_hour() -> dict[str, str]:
    """Return the state of each check of hour 15 of foo."""
    at = WindowAddress(FOO, "", "hour", HOUR).partition
    with open_ledger(settings().ledger).read() as connection:
        return {name: found.state for (_, name), found in quality.check_states(connection, [at]).items()}


def test_an_anomaly_starts_deep_checks_that_run_again_after_each_backfill():
    RUNS.clear()
    rows, bots = {HOUR: 900.0}, {HOUR: 41.0}

    def measured(task) -> Given:
        if not task.recipe.is_companion:
            return give(task)
        found = {"no_bots": bots[task.output.key]} if task.output.key in bots else {}
        return Given(measures={"rows": rows.get(task.output.key, 100.0)}, failed=found)

    foo = state_table("web/foo", partitions_def=FROM_EIGHT, completeness=Completeness(tiers=("kafka",)))
    companion = profiled(foo, PROFILED, deep_checks=[NO_BOTS], rows=lambda span: span)
    preagg = reader("preagg", FROM_EIGHT, foo)
    anyhow = reader("anyhow", FROM_EIGHT, Input(foo, ignore_quality_issue=True))
    tested = harness(foo, companion, preagg, anyhow, give=measured, now=lambda: NOW)
    tested.run_until_idle()
    counted(8, 15)
    tested.run_until_idle()

    # There are 900 rows instead of 100: the deep check runs and finds bots.
    counted(15, 16)
    # The reader that waits for quality was requested in the same tick; its run has seen the invalid hour.
    runs = [run for run in tested.run_until_idle() if run.succeeded]
    assert made(runs) == ["anyhow 15", "foo_profile 15"]
    assert quality_of_hour() == {"profile": "warned", "no_bots": "failed"}
    assert states() == INVALID
    assert "no_bots" in (flag("anyhow") or "")
    assert verdict(tested, "preagg").state is State.WAITS_FOR_QUALITY

    # The hour is made again with 100 rows, bots among them: a normal count does not clear it.
    rows.clear()
    made_again(version=1)
    assert quality_of_hour()["no_bots"] == "stale"
    assert made(tested.run_until_idle()) == ["anyhow 15", "foo_profile 15"]
    assert quality_of_hour() == {"profile": "passed", "no_bots": "failed"}
    assert (states(), flag("anyhow") is None) == (INVALID, False)

    # The hour is made again without bots.
    bots.clear()
    made_again(version=2)
    assert made(tested.run_until_idle()) == ["anyhow 15", "foo_profile 15", "preagg 15"]
    assert quality_of_hour() == {"profile": "passed", "no_bots": "passed"}
    assert states() == GOOD
    assert [flag(name) for name in ("anyhow", "preagg")] == [None] * 2


def made_again(version: int) -> None:
    """Report hour 15 again, as the table's owner does."""
    backfill("started")
    counted(15, 16, version)
    backfill("done")
