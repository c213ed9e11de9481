"""The article's story of a dataset with high quality requirement, from end to end, through Dagster."""

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


def test_an_hour_that_fails_and_is_made_again():
    tested = world()
    tested.run_until_idle()
    counted(0, 15)
    tested.run_until_idle()
    counted(15, 16)
    assert made(tested.tick()) == ["anyhow 15", "intraday 15", "preagg 15"]

    # The data quality job marks hour 15 as invalid: before the report is made of its pre-aggregation.
    checked("failed", BOTS)
    assert made(tested.run_until_idle()) == []
    assert states() == INVALID
    assert {name: flag(name) for name in ("preagg", "anyhow", "intraday")} == dict.fromkeys(
        ("preagg", "anyhow", "intraday"), OF_HOUR
    )
    assert flag("preagg", "2026-01-02-14:00") is None
    waits = verdict(tested, "report")
    assert (waits.state, OF_HOUR in waits.reason) == (State.WAITS_FOR_QUALITY, True)

    # Made again by hand, by who fills the table.
    backfill("started")
    assert made(tested.run_until_idle()) == []
    assert states()["hour"] == "backfilling"
    assert (flag("preagg"), verdict(tested, "report").state) == (OF_HOUR, State.WAITS_FOR_QUALITY)
    counted(15, 16, version=1)
    backfill("done")
    assert made(tested.run_until_idle()) == ["anyhow 15"]
    assert states() == INVALID | {"hour": "backfilled"}
    assert "failed before the data were made again" in (flag("preagg") or "")

    # Its checks pass: the flags go, and what was made of it is made again.
    checked("passed", version=1)
    assert made(tested.run_until_idle()) == ["intraday 15", "preagg 15", "report 15"]
    assert states() == GOOD
    assert [flag(name) for name in ("preagg", "anyhow", "intraday", "report")] == [None] * 4
    assert told(tested)[:1] == [f"invalid: bots: {BOTS}"]
    assert f"inputs marked: {OF_HOUR}" in told(tested, "web/preagg")
    assert "inputs passed" in told(tested, "web/preagg")


def test_flows_that_come_later_wait_unless_they_do_not_mind():
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
def test_a_backfill_that_is_given_up_leaves_what_was_known(failed, after):
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


def test_nothing_is_told_twice():
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


def test_the_flag_goes_of_what_is_never_made_again_too():
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


def test_what_is_made_of_the_day_is_marked_as_what_is_made_of_its_hour():
    """The day opens again; its state alone would tell of late data, and of nothing bad."""
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
    """What hour 15 of foo was found to be, by check."""
    at = WindowAddress(FOO, "", "hour", HOUR).partition
    with open_ledger(settings().ledger).read() as connection:
        return {name: found.state for (_, name), found in quality.check_states(connection, [at]).items()}


def test_an_anomaly_starts_the_deep_checks_which_run_again_of_what_is_made_again():
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

    # 900 rows where 100 are usual: the deep check runs, and finds bots.
    counted(15, 16)
    # Who minds was requested in the same tick, and its run has seen that the hour is invalid.
    runs = [run for run in tested.run_until_idle() if run.succeeded]
    assert made(runs) == ["anyhow 15", "foo_profile 15"]
    assert quality_of_hour() == {"profile": "warned", "no_bots": "failed"}
    assert states() == INVALID
    assert "no_bots" in (flag("anyhow") or "")
    assert verdict(tested, "preagg").state is State.WAITS_FOR_QUALITY

    # Made again with as many rows as are usual, and bots among them: that nothing is off does not clear it.
    rows.clear()
    made_again(version=1)
    assert quality_of_hour()["no_bots"] == "stale"
    assert made(tested.run_until_idle()) == ["anyhow 15", "foo_profile 15"]
    assert quality_of_hour() == {"profile": "passed", "no_bots": "failed"}
    assert (states(), flag("anyhow") is None) == (INVALID, False)

    # Made again without bots.
    bots.clear()
    made_again(version=2)
    assert made(tested.run_until_idle()) == ["anyhow 15", "foo_profile 15", "preagg 15"]
    assert quality_of_hour() == {"profile": "passed", "no_bots": "passed"}
    assert states() == GOOD
    assert [flag(name) for name in ("anyhow", "preagg")] == [None] * 2


def made_again(version: int) -> None:
    """Hour 15, by who fills the table."""
    backfill("started")
    counted(15, 16, version)
    backfill("done")
