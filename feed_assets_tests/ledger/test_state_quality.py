"""Quality that spreads: down into what lies in a bad window, up to what nothing else keeps open, and backfills."""

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness, WindowState
from feed_assets.core.errors import IllegalTransition
from feed_assets.core.inputs import WindowInput
from feed_assets.core.members import Regions, Tracked
from feed_assets.core.reports import INPUTS
from feed_assets.core.spans import Span
from feed_assets.core.windows import WindowAddress, window_at
from feed_assets.ledger import log, quality
from feed_assets.ledger.states import backfills, reports, shown, windows
from feed_assets.ledger.tables import change
from feed_assets.ledger.window_facts import known_windows
from feed_assets_tests.ledger.test_states import FOO, HOUR_15, NOW, last, part, source, transitions

HOUR = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
DAY = WindowAddress(FOO, "", "day", "2026-01-01")
ALL_DAY = [datetime(2026, 1, 1, hour, minute, tzinfo=UTC) for hour in range(24) for minute in range(0, 60, 5)]


def failed(ledger, address=HOUR, check="no_bots", reason="many bots"):
    return windows.report_quality(ledger, address, check, "failed", reason, "dq", NOW)


def passed(ledger, address=HOUR, check="no_bots"):
    return windows.report_quality(ledger, address, check, "passed", None, "dq", NOW)


def row(ledger, address):
    with ledger.read() as connection:
        return windows.known(connection, [address])[address]


def fact(ledger, address):
    window = window_at(address.grain, address.key, "UTC")
    needed = WindowInput(Span(address.dataset, address.sub_partition, window.start, window.end, (window,)))
    with ledger.read() as connection:
        return known_windows(connection, [needed])[address.partition]


@pytest.fixture
def hour(ledger):
    """Hour 15 complete, and nothing else of the day."""
    reports.report(ledger, source(dict.fromkeys(HOUR_15, 10)), NOW)
    reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15, 10))], NOW)
    return ledger


@pytest.fixture
def day(ledger):
    reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    reports.report(ledger, [part("part-1", dict.fromkeys(ALL_DAY, 10))], NOW)
    return ledger


def test_the_second_story_nineteen_windows_change_at_once(hour):
    """The hour, its six windows of 10 minutes and twelve of 5; the twentieth is the result that was made of it."""
    seen = last(hour)
    assert failed(hour).transitions == 19
    found = transitions(hour, seen)
    assert found[0] == ("hour@2026-01-01-15:00", "complete", "invalid")
    below = [each for each in found if each[0] != "hour@2026-01-01-15:00"]
    assert {each[1:] for each in below} == {("complete", "complete_with_issue")}
    assert sorted(each[0] for each in below) == sorted(
        [f"10min@2026-01-01-15:{minute:02d}" for minute in range(0, 60, 10)]
        + [f"5min@2026-01-01-15:{minute:02d}" for minute in range(0, 60, 5)]
    )
    five = fact(hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55"))
    assert (five.is_bad, five.why) == (True, "hour 2026-01-01-15:00 is invalid: no_bots: many bots")
    assert failed(hour).transitions == 0
    assert passed(hour).transitions == 19
    assert not fact(hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55")).is_bad


def test_a_day_is_held_by_its_invalid_hour_and_the_log_tells_who_waits_for_it(day):
    seen = last(day)
    failed(day)
    assert ("day@2026-01-01", "complete", "open") in transitions(day, seen)
    held = fact(day, DAY)
    assert (held.held, held.is_bad, held.why) == (True, True, "hour 2026-01-01-15:00 is invalid: no_bots: many bots")
    assert held.pin(DAY.partition) is not None, "who ignores quality reads it"
    passed(day)
    assert row(day, DAY).state is WindowState.COMPLETE
    assert row(day, DAY).held is None


def test_a_day_that_only_its_invalid_hour_kept_open_is_told_to_the_log(ledger):
    """Its state stays open: who ignores quality hears of it by the change of its quality."""
    reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    reports.report(ledger, [part("part-1", dict.fromkeys(ALL_DAY[:-1], 10))], NOW)
    failed(ledger)
    assert row(ledger, DAY).held is None, "its last window is not there"
    assert not fact(ledger, DAY).is_bad
    seen = last(ledger)
    reports.report(ledger, [part("part-2", {ALL_DAY[-1]: 10})], NOW)
    with ledger.read() as connection:
        told = connection.execute(sa.select(change).where(change.c.sequence > seen, change.c.kind == log.QUALITY)).one()
    assert (told.partition, told.after, told.why) == (
        "day@2026-01-01",
        "failed",
        "hour 2026-01-01-15:00 is invalid: no_bots: many bots",
    )
    assert row(ledger, DAY).state is WindowState.OPEN


def test_a_window_that_comes_later_in_a_bad_one_has_its_issue(hour):
    failed(hour)
    reports.report(hour, [part("part-1", {HOUR_15[0]: 1}, version=1)], NOW)
    assert row(hour, HOUR).state is WindowState.OPEN
    reports.report(hour, [part("part-1", dict.fromkeys(HOUR_15, 10), version=2)], NOW)
    assert row(hour, HOUR).state is WindowState.INVALID
    assert row(hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55")).state is WindowState.COMPLETE_WITH_ISSUE


def test_a_region_that_is_bad_flags_itself_alone_and_holds_the_whole(ledger):
    declared = Tracked.of(Completeness(), Regions({"apac": "Asia/Singapore", "emea": "UTC"}))
    windows.declare(ledger, {FOO: declared}, NOW)
    for region in ("apac", "emea"):
        place = f"region={region}"
        reports.report(ledger, source(dict.fromkeys(HOUR_15, 10), sub_partition=place), NOW)
        reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15, 10), sub_partition=place)], NOW)
    apac = WindowAddress(FOO, "region=apac", "hour", "2026-01-01-15:00")
    assert row(ledger, HOUR).state is WindowState.COMPLETE
    failed(ledger, apac)
    states = {
        at: row(ledger, WindowAddress(FOO, at, "5min", "2026-01-01-15:55")).state
        for at in ("", "region=apac", "region=emea")
    }
    assert states == {
        "": WindowState.COMPLETE_WITH_ISSUE,
        "region=apac": WindowState.COMPLETE_WITH_ISSUE,
        "region=emea": WindowState.COMPLETE,
    }
    assert row(ledger, HOUR).held == "hour 2026-01-01-15:00 in region=apac is invalid: no_bots: many bots"
    passed(ledger, apac)
    failed(ledger)
    assert row(ledger, WindowAddress(FOO, "region=emea", "5min", "2026-01-01-15:55")).state is (
        WindowState.COMPLETE_WITH_ISSUE
    )


def test_a_backfill_of_an_invalid_hour_keeps_its_flags_until_the_checks_pass(day):
    failed(day)
    backfills.begin(day, HOUR, "bots filtered", "ada", NOW)
    assert row(day, HOUR).state is WindowState.BACKFILLING
    assert not fact(day, DAY).held, "its data are not there"
    seen = last(day)
    backfills.finish(day, HOUR, "bots filtered", "ada", NOW)
    assert transitions(day, seen) == [("hour@2026-01-01-15:00", "backfilling", "backfilled")]
    assert fact(day, HOUR).is_bad
    assert "failed before the data were made again" in fact(day, DAY).why
    five = WindowAddress(FOO, "", "5min", "2026-01-01-15:55")
    assert row(day, five).state is WindowState.COMPLETE_WITH_ISSUE
    passed(day)
    assert (row(day, HOUR).state, fact(day, HOUR).is_bad) == (WindowState.BACKFILLED, False)
    assert row(day, five).state is WindowState.COMPLETE
    assert row(day, DAY).state is WindowState.COMPLETE


def test_a_check_that_fails_again_after_a_backfill_makes_it_invalid(day):
    failed(day)
    backfills.begin(day, HOUR, "again", "ada", NOW)
    backfills.finish(day, HOUR, "again", "ada", NOW)
    failed(day)
    assert row(day, HOUR).state is WindowState.INVALID


def test_a_backfill_that_is_given_up_leaves_what_was(day):
    failed(day)
    backfills.begin(day, HOUR, "again", "ada", NOW)
    backfills.give_up(day, HOUR, "no space", "ada", NOW)
    assert row(day, HOUR).state is WindowState.INVALID
    assert backfills.give_up(day, HOUR, "no space", "ada", NOW).known == 1
    passed(day)
    backfills.begin(day, HOUR, "again", "ada", NOW)
    backfills.finish(day, HOUR, "again", "ada", NOW)
    backfills.begin(day, HOUR, "once more", "ada", NOW)
    backfills.give_up(day, HOUR, "no space", "ada", NOW)
    assert row(day, HOUR).state is WindowState.COMPLETE, "it was backfilled: docs say that this is not remembered"


def test_what_was_not_begun_is_not_finished_and_an_open_window_is_not_made_again(hour):
    with pytest.raises(IllegalTransition, match="is complete and cannot become backfilled: after complete come open"):
        backfills.finish(hour, HOUR, "again", "ada", NOW)
    with pytest.raises(IllegalTransition, match="is open and cannot become backfilling"):
        backfills.begin(hour, DAY, "again", "ada", NOW)


def test_who_was_slower_is_told_so(day):
    failed(day)
    backfills.begin(day, HOUR, "again", "ada", NOW, WindowState.INVALID)
    with pytest.raises(IllegalTransition, match="is backfilling, expected invalid"):
        backfills.begin(day, HOUR, "again", "bob", NOW, WindowState.INVALID)
    assert backfills.begin(day, HOUR, "again", "bob", NOW).known == 1


def test_a_mark_by_lineage_is_an_issue_and_no_failure(hour):
    windows.report_quality(hour, HOUR, INPUTS, quality.MARKED, "made of a bad one", "spread", NOW)
    assert row(hour, HOUR).state is WindowState.COMPLETE_WITH_ISSUE
    assert fact(hour, HOUR).why == "made of a bad one"
    assert row(hour, WindowAddress(FOO, "", "5min", "2026-01-01-15:55")).state is WindowState.COMPLETE
    windows.report_quality(hour, HOUR, INPUTS, quality.PASSED, None, "spread", NOW)
    assert row(hour, HOUR).state is WindowState.COMPLETE


def test_the_data_version_of_a_window_is_of_its_reports_alone(hour):
    before = fact(hour, HOUR).pin(HOUR.partition).version
    failed(hour)
    passed(hour)
    assert fact(hour, HOUR).pin(HOUR.partition).version == before
    reports.report(hour, source({HOUR_15[0]: 10}, version=3), NOW)
    assert fact(hour, HOUR).pin(HOUR.partition).version == before, "of the source nobody reads rows"
    reports.report(hour, [part("part-1", dict.fromkeys(HOUR_15, 10), version=1)], NOW)
    assert fact(hour, HOUR).pin(HOUR.partition).version == before, "nobody is told of it before its state changes"
    failed(hour)
    other = fact(hour, HOUR).pin(HOUR.partition).version
    assert other != before
    reports.report(hour, [part("part-2", {HOUR_15[0]: 0})], NOW)
    reports.report(hour, [part("part-2", {}, version=1)], NOW)
    passed(hour)
    assert fact(hour, HOUR).pin(HOUR.partition).version == other


def test_an_hour_and_a_window_in_it_that_both_failed_are_both_invalid(hour):
    five = WindowAddress(FOO, "", "5min", "2026-01-01-15:55")
    failed(hour, five, reason="few")
    assert row(hour, HOUR).held == "5min 2026-01-01-15:55 is invalid: no_bots: few"
    failed(hour)
    assert (row(hour, HOUR).state, row(hour, five).state) == (WindowState.INVALID, WindowState.INVALID)
    passed(hour, five)
    assert row(hour, five).state is WindowState.COMPLETE_WITH_ISSUE
    passed(hour)
    assert (row(hour, HOUR).state, row(hour, five).state) == (WindowState.COMPLETE, WindowState.COMPLETE)


def test_to_accept_a_day_says_nothing_of_a_check_that_fails_in_it(ledger):
    reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    reports.report(ledger, [part("part-1", dict.fromkeys(ALL_DAY[:-12], 10))], NOW)
    windows.accept(ledger, DAY, "hour 23 was lost", "ada", NOW)
    assert row(ledger, DAY).state is WindowState.COMPLETE
    failed(ledger)
    assert (row(ledger, DAY).state, fact(ledger, DAY).is_bad) == (WindowState.OPEN, True)
    assert fact(ledger, DAY).why == "hour 2026-01-01-15:00 is invalid: no_bots: many bots"
    passed(ledger)
    assert (row(ledger, DAY).state, fact(ledger, DAY).is_bad) == (WindowState.COMPLETE, False)


FIVE = WindowAddress(FOO, "", "5min", "2026-01-01-15:00")


@pytest.mark.parametrize("accepted_first", [True, False])
def test_a_day_that_is_accepted_is_held_by_what_is_bad_in_an_hour_that_lacks_something(ledger, accepted_first):
    steps = [lambda: windows.accept(ledger, DAY, "the rest was lost", "ada", NOW), lambda: failed(ledger, FIVE)]
    reports.report(ledger, source(dict.fromkeys(ALL_DAY, 10)), NOW)
    reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15[:-1], 10))], NOW)
    for step in steps if accepted_first else steps[::-1]:
        step()
    assert (row(ledger, HOUR).state, row(ledger, HOUR).held) == (WindowState.OPEN, None)
    assert (row(ledger, DAY).state, fact(ledger, DAY).is_bad) == (WindowState.OPEN, True)
    assert fact(ledger, DAY).why == "5min 2026-01-01-15:00 is invalid: no_bots: many bots"
    with ledger.read() as connection:
        (told,) = shown.explained(connection, FOO, "day@2026-01-01", 1)
    assert told.why == "5min 2026-01-01-15:00 is invalid: no_bots: many bots"
    passed(ledger, FIVE)
    assert (row(ledger, DAY).state, fact(ledger, DAY).is_bad) == (WindowState.COMPLETE, False)


def test_what_holds_a_day_names_every_bad_hour(day):
    failed(day)
    failed(day, WindowAddress(FOO, "", "hour", "2026-01-01-16:00"), reason="all wrong")
    assert fact(day, DAY).why == "hour 2026-01-01-15:00 is invalid: no_bots: many bots; and hour 2026-01-01-16:00"


def test_a_window_that_is_made_again_is_said_to_be(day):
    backfills.begin(day, HOUR, "again", "ada", NOW)
    said = "somebody makes it again since 2026-01-01 17:00 UTC; `feed-assets state transitions` says who"
    assert fact(day, HOUR).said == f"is backfilling: {said}"
    assert fact(day, DAY).said == f"is open: hour 2026-01-01-15:00 is backfilling: {said}"
