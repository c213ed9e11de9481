"""Quality that spreads: into the windows inside a bad one, to the larger window that it keeps open, and backfills."""

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness, WindowState
from feed_assets.core.errors import IllegalTransition
from feed_assets.core.reports import INPUTS
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import log, quality
from feed_assets.ledger.states import backfills, count_reports, state_views, window_queries
from feed_assets.ledger.tables import change
from feed_assets_tests.ledger.quality_reports import ALL_DAY, DAY, HOUR, report_failed, window_fact, window_row
from feed_assets_tests.ledger.state_reports import FOO, HOUR_15, NOW, last_sequence, part, source, transitions


def passed(ledger, address=HOUR, check="no_bots"):
    return window_queries.report_quality(ledger, address, check, "passed", None, "dq", NOW)


def test_failed_check_of_an_hour_changes_nineteen_windows_at_once(complete_hour):
    """These are the hour, its six windows of 10 minutes and twelve of 5; the twentieth is the result made of it."""
    seen = last_sequence(complete_hour)
    assert report_failed(complete_hour).transitions == 19
    found = transitions(complete_hour, seen)
    assert found[0] == ("hour@2026-01-01-15:00", "complete", "invalid")
    below = [each for each in found if each[0] != "hour@2026-01-01-15:00"]
    assert {each[1:] for each in below} == {("complete", "complete_with_issue")}
    assert sorted(each[0] for each in below) == sorted(
        [f"10min@2026-01-01-15:{minute:02d}" for minute in range(0, 60, 10)]
        + [f"5min@2026-01-01-15:{minute:02d}" for minute in range(0, 60, 5)]
    )
    five = window_fact(complete_hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55"))
    assert (five.is_bad, five.why) == (True, "hour 2026-01-01-15:00 is invalid: no_bots: many bots")
    assert report_failed(complete_hour).transitions == 0
    assert passed(complete_hour).transitions == 19
    assert not window_fact(complete_hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55")).is_bad


def test_invalid_hour_reopens_its_day_and_is_named_as_the_reason(complete_day):
    seen = last_sequence(complete_day)
    report_failed(complete_day)
    assert ("day@2026-01-01", "complete", "open") in transitions(complete_day, seen)
    held = window_fact(complete_day, DAY)
    assert (held.held, held.is_bad, held.why) == (True, True, "hour 2026-01-01-15:00 is invalid: no_bots: many bots")
    assert held.pin(DAY.partition) is not None, "who ignores quality reads it"
    passed(complete_day)
    assert window_row(complete_day, DAY).state is WindowState.COMPLETE
    assert window_row(complete_day, DAY).held is None


def test_day_kept_open_only_by_an_invalid_hour_is_logged(ledger):
    """Its state stays open: a consumer that ignores quality learns of it by the change of its quality."""
    count_reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    count_reports.report(ledger, [part("part-1", dict.fromkeys(ALL_DAY[:-1], 10))], NOW)
    report_failed(ledger)
    assert window_row(ledger, DAY).held is None, "its last window is not there"
    assert not window_fact(ledger, DAY).is_bad
    seen = last_sequence(ledger)
    count_reports.report(ledger, [part("part-2", {ALL_DAY[-1]: 10})], NOW)
    with ledger.read() as connection:
        told = connection.execute(sa.select(change).where(change.c.sequence > seen, change.c.kind == log.QUALITY)).one()
    assert (told.partition, told.after, told.why) == (
        "day@2026-01-01",
        "failed",
        "hour 2026-01-01-15:00 is invalid: no_bots: many bots",
    )
    assert window_row(ledger, DAY).state is WindowState.OPEN


def test_window_completed_inside_a_bad_one_has_its_issue(complete_hour):
    report_failed(complete_hour)
    count_reports.report(complete_hour, [part("part-1", {HOUR_15[0]: 1}, version=1)], NOW)
    assert window_row(complete_hour, HOUR).state is WindowState.OPEN
    count_reports.report(complete_hour, [part("part-1", dict.fromkeys(HOUR_15, 10), version=2)], NOW)
    assert window_row(complete_hour, HOUR).state is WindowState.INVALID
    assert (
        window_row(complete_hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55")).state
        is WindowState.COMPLETE_WITH_ISSUE
    )


def test_bad_region_flags_its_own_windows_and_holds_the_whole(ledger):
    declared = Tracked.of(Completeness(), Regions({"apac": "Asia/Singapore", "emea": "UTC"}))
    window_queries.declare(ledger, {FOO: declared}, NOW)
    for region in ("apac", "emea"):
        place = f"region={region}"
        count_reports.report(ledger, source(dict.fromkeys(HOUR_15, 10), sub_partition=place), NOW)
        count_reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15, 10), sub_partition=place)], NOW)
    apac = WindowAddress(FOO, "region=apac", "hour", "2026-01-01-15:00")
    assert window_row(ledger, HOUR).state is WindowState.COMPLETE
    report_failed(ledger, apac)
    states = {
        at: window_row(ledger, WindowAddress(FOO, at, "5min", "2026-01-01-15:55")).state
        for at in ("", "region=apac", "region=emea")
    }
    assert states == {
        "": WindowState.COMPLETE_WITH_ISSUE,
        "region=apac": WindowState.COMPLETE_WITH_ISSUE,
        "region=emea": WindowState.COMPLETE,
    }
    assert window_row(ledger, HOUR).held == "hour 2026-01-01-15:00 in region=apac is invalid: no_bots: many bots"
    passed(ledger, apac)
    report_failed(ledger)
    assert window_row(ledger, WindowAddress(FOO, "region=emea", "5min", "2026-01-01-15:55")).state is (
        WindowState.COMPLETE_WITH_ISSUE
    )


def test_a_backfill_of_an_invalid_hour_keeps_its_flags_until_the_checks_pass(complete_day):
    report_failed(complete_day)
    backfills.begin(complete_day, HOUR, "bots filtered", "ada", NOW)
    assert window_row(complete_day, HOUR).state is WindowState.BACKFILLING
    assert not window_fact(complete_day, DAY).held, "its data are not there"
    seen = last_sequence(complete_day)
    backfills.finish(complete_day, HOUR, "bots filtered", "ada", NOW)
    assert transitions(complete_day, seen) == [("hour@2026-01-01-15:00", "backfilling", "backfilled")]
    assert window_fact(complete_day, HOUR).is_bad
    assert "failed before the data were made again" in window_fact(complete_day, DAY).why
    five = WindowAddress(FOO, "", "5min", "2026-01-01-15:55")
    assert window_row(complete_day, five).state is WindowState.COMPLETE_WITH_ISSUE
    passed(complete_day)
    assert (window_row(complete_day, HOUR).state, window_fact(complete_day, HOUR).is_bad) == (
        WindowState.BACKFILLED,
        False,
    )
    assert window_row(complete_day, five).state is WindowState.COMPLETE
    assert window_row(complete_day, DAY).state is WindowState.COMPLETE


def test_a_check_that_fails_again_after_a_backfill_makes_it_invalid(complete_day):
    report_failed(complete_day)
    backfills.begin(complete_day, HOUR, "again", "ada", NOW)
    backfills.finish(complete_day, HOUR, "again", "ada", NOW)
    report_failed(complete_day)
    assert window_row(complete_day, HOUR).state is WindowState.INVALID


def test_abandoned_backfill_restores_the_state_before(complete_day):
    report_failed(complete_day)
    backfills.begin(complete_day, HOUR, "again", "ada", NOW)
    backfills.give_up(complete_day, HOUR, "no space", "ada", NOW)
    assert window_row(complete_day, HOUR).state is WindowState.INVALID
    assert backfills.give_up(complete_day, HOUR, "no space", "ada", NOW).known == 1
    passed(complete_day)
    backfills.begin(complete_day, HOUR, "again", "ada", NOW)
    backfills.finish(complete_day, HOUR, "again", "ada", NOW)
    backfills.begin(complete_day, HOUR, "once more", "ada", NOW)
    backfills.give_up(complete_day, HOUR, "no space", "ada", NOW)
    assert window_row(complete_day, HOUR).state is WindowState.COMPLETE, (
        "it was backfilled: docs say that this is not remembered"
    )


def test_unbegun_backfill_cannot_finish_and_an_open_window_cannot_begin_one(complete_hour):
    with pytest.raises(IllegalTransition, match="is complete and cannot become backfilled: after complete come open"):
        backfills.finish(complete_hour, HOUR, "again", "ada", NOW)
    with pytest.raises(IllegalTransition, match="is open and cannot become backfilling"):
        backfills.begin(complete_hour, DAY, "again", "ada", NOW)


def test_slower_writer_of_a_transition_is_refused(complete_day):
    report_failed(complete_day)
    backfills.begin(complete_day, HOUR, "again", "ada", NOW, WindowState.INVALID)
    with pytest.raises(IllegalTransition, match="is backfilling, expected invalid"):
        backfills.begin(complete_day, HOUR, "again", "bob", NOW, WindowState.INVALID)
    assert backfills.begin(complete_day, HOUR, "again", "bob", NOW).known == 1


def test_a_mark_by_lineage_is_an_issue_and_no_failure(complete_hour):
    window_queries.report_quality(complete_hour, HOUR, INPUTS, quality.MARKED, "made of a bad one", "spread", NOW)
    assert window_row(complete_hour, HOUR).state is WindowState.COMPLETE_WITH_ISSUE
    assert window_fact(complete_hour, HOUR).why == "made of a bad one"
    assert window_row(complete_hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55")).state is WindowState.COMPLETE
    window_queries.report_quality(complete_hour, HOUR, INPUTS, quality.PASSED, None, "spread", NOW)
    assert window_row(complete_hour, HOUR).state is WindowState.COMPLETE


def test_data_version_of_a_window_depends_on_its_reports_alone(complete_hour):
    before = window_fact(complete_hour, HOUR).pin(HOUR.partition).version
    report_failed(complete_hour)
    passed(complete_hour)
    assert window_fact(complete_hour, HOUR).pin(HOUR.partition).version == before
    count_reports.report(complete_hour, source({HOUR_15[0]: 10}, version=3), NOW)
    assert window_fact(complete_hour, HOUR).pin(HOUR.partition).version == before, "of the source nobody reads rows"
    count_reports.report(complete_hour, [part("part-1", dict.fromkeys(HOUR_15, 10), version=1)], NOW)
    assert window_fact(complete_hour, HOUR).pin(HOUR.partition).version == before, (
        "nobody is told of it before its state changes"
    )
    report_failed(complete_hour)
    other = window_fact(complete_hour, HOUR).pin(HOUR.partition).version
    assert other != before
    count_reports.report(complete_hour, [part("part-2", {HOUR_15[0]: 0})], NOW)
    count_reports.report(complete_hour, [part("part-2", {}, version=1)], NOW)
    passed(complete_hour)
    assert window_fact(complete_hour, HOUR).pin(HOUR.partition).version == other


def test_an_hour_and_a_window_in_it_that_both_failed_are_both_invalid(complete_hour):
    five = WindowAddress(FOO, "", "5min", "2026-01-01-15:55")
    report_failed(complete_hour, five, reason="few")
    assert window_row(complete_hour, HOUR).held == "5min 2026-01-01-15:55 is invalid: no_bots: few"
    report_failed(complete_hour)
    assert (window_row(complete_hour, HOUR).state, window_row(complete_hour, five).state) == (
        WindowState.INVALID,
        WindowState.INVALID,
    )
    passed(complete_hour, five)
    assert window_row(complete_hour, five).state is WindowState.COMPLETE_WITH_ISSUE
    passed(complete_hour)
    assert (window_row(complete_hour, HOUR).state, window_row(complete_hour, five).state) == (
        WindowState.COMPLETE,
        WindowState.COMPLETE,
    )


def test_accepted_day_reopens_when_a_check_inside_it_fails(ledger):
    count_reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    count_reports.report(ledger, [part("part-1", dict.fromkeys(ALL_DAY[:-12], 10))], NOW)
    window_queries.accept(ledger, DAY, "hour 23 was lost", "ada", NOW)
    assert window_row(ledger, DAY).state is WindowState.COMPLETE
    report_failed(ledger)
    assert (window_row(ledger, DAY).state, window_fact(ledger, DAY).is_bad) == (WindowState.OPEN, True)
    assert window_fact(ledger, DAY).why == "hour 2026-01-01-15:00 is invalid: no_bots: many bots"
    passed(ledger)
    assert (window_row(ledger, DAY).state, window_fact(ledger, DAY).is_bad) == (WindowState.COMPLETE, False)


FIVE = WindowAddress(FOO, "", "5min", "2026-01-01-15:00")


@pytest.mark.parametrize("accepted_first", [True, False])
def test_accepted_day_is_held_by_a_bad_window_in_an_incomplete_hour(ledger, accepted_first):
    steps = [
        lambda: window_queries.accept(ledger, DAY, "the rest was lost", "ada", NOW),
        lambda: report_failed(ledger, FIVE),
    ]
    count_reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    count_reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15[:-1], 10))], NOW)
    for step in steps if accepted_first else steps[::-1]:
        step()
    assert (window_row(ledger, HOUR).state, window_row(ledger, HOUR).held) == (WindowState.OPEN, None)
    assert (window_row(ledger, DAY).state, window_fact(ledger, DAY).is_bad) == (WindowState.OPEN, True)
    assert window_fact(ledger, DAY).why == "5min 2026-01-01-15:00 is invalid: no_bots: many bots"
    with ledger.read() as connection:
        (told,) = state_views.explained(connection, FOO, "day@2026-01-01", 1)
    assert told.why == "5min 2026-01-01-15:00 is invalid: no_bots: many bots"
    passed(ledger, FIVE)
    assert (window_row(ledger, DAY).state, window_fact(ledger, DAY).is_bad) == (WindowState.COMPLETE, False)


def test_reason_of_a_held_day_names_every_bad_hour(complete_day):
    report_failed(complete_day)
    report_failed(complete_day, WindowAddress(FOO, "", "hour", "2026-01-01-16:00"), reason="all wrong")
    assert (
        window_fact(complete_day, DAY).why
        == "hour 2026-01-01-15:00 is invalid: no_bots: many bots; and hour 2026-01-01-16:00"
    )


def test_window_in_backfill_is_explained_as_such(complete_day):
    backfills.begin(complete_day, HOUR, "again", "ada", NOW)
    said = "its backfill began at 2026-01-01 17:00 UTC; `feed-assets state transitions` says who began it"
    assert window_fact(complete_day, HOUR).phrase == f"is backfilling: {said}"
    assert window_fact(complete_day, DAY).phrase == f"is open: hour 2026-01-01-15:00 is backfilling: {said}"
