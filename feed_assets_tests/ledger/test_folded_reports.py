"""Old reports: one row for each sub-partition and tier, with the windows unchanged, which accept no more counts."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness
from feed_assets.core.feeds import Feed
from feed_assets.core.reports import FOLDED, Report
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger.states import backfills, old_reports, window_queries
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.states.old_reports import fold
from feed_assets.ledger.tables import event_reject
from feed_assets.ledger.tables import report as table
from feed_assets.ledger.update_counts import COUNTER

FOO = Feed.parse("foo/v1.0")
FIRST = datetime(2026, 1, 1, 15, tzinfo=UTC)
HOUR, DAYS = timedelta(hours=1), timedelta(days=1)
LATER = FIRST + 31 * DAYS


def part(name, *counts, tier="", version=0, first=0):
    named = tuple((FIRST + (first + number) * HOUR, count) for number, count in enumerate(counts))
    return Report(FOO, "", name, named, tier, f"{version:020d}")


@pytest.fixture
def complete(ledger):
    """Return a ledger with three hours: two are complete, and one has half of its data."""
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(grains=("hour", "day")))}, FIRST)
    sources = [part(str(hour), 10, tier="web", first=hour) for hour in range(3)]
    report(ledger, [*sources, part("a", 5, 10), part("b", 5), part("c", 5, first=2)], FIRST)
    return ledger


def parts(ledger):
    """Return the kept rows: tier, part, and the records of folded ones."""
    with ledger.read() as connection:
        rows = connection.execute(sa.select(table).order_by(table.c.tier, table.c.part)).all()
    return [(row.tier, row.part, row.records) for row in rows]


def states(ledger):
    at = [WindowAddress(FOO, "", "hour", f"2026-01-01-{hour}:00") for hour in (15, 16, 17)]
    with ledger.read() as connection:
        found = window_queries.stored_windows(connection, at)
    return [(str(found[each].state), found[each].records, found[each].counts, found[each].folded) for each in at]


def fold_all(ledger, now=LATER, days=30, limit=500):
    return sum(fold(ledger, now, days, limit) for _ in range(9))


FOLDED_ROWS = [("", FOLDED, 20), ("", "c", None), ("web", FOLDED, 20), ("web", "2", None)]


def test_reports_of_long_complete_windows_are_folded_into_one_row_a_tier(complete):
    before = states(complete)
    assert fold_all(complete) == 4
    assert parts(complete) == FOLDED_ROWS
    assert [state[:3] for state in states(complete)] == [state[:3] for state in before]
    assert [state[3] for state in states(complete)] == [True, True, False]


def test_reports_of_recently_completed_windows_are_not_folded(complete):
    before = parts(complete)
    assert fold_all(complete, FIRST + 30 * DAYS - HOUR) == 0
    assert parts(complete) == before
    assert fold_all(complete, FIRST + 30 * DAYS) == 4


def test_correction_restarts_the_days_before_folding(complete):
    report(complete, [part("b", 1, version=1)], FIRST + 20 * DAYS)
    report(complete, [part("b", 5, version=2)], FIRST + 21 * DAYS)
    assert fold_all(complete) == 1
    assert ("", "a", None) in parts(complete)
    assert fold_all(complete, LATER + 21 * DAYS) == 3
    assert parts(complete) == FOLDED_ROWS


def test_reports_of_a_backfilled_window_are_not_folded_before_its_check(complete):
    at = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    window_queries.report_quality(complete, at, "bots", "failed", "half are bots", "dq", FIRST)
    for move in (backfills.begin, backfills.finish):
        move(complete, at, "bots", "ada", FIRST)
    assert states(complete)[0][0] == "backfilled"
    assert fold_all(complete) == 1  # The source of the other hour.
    assert {("", "a", None), ("", "b", None), ("web", "0", None)} < {*parts(complete)}
    window_queries.report_quality(complete, at, "bots", "passed", None, "dq", LATER)
    assert fold_all(complete, LATER + 31 * DAYS) == 3
    assert parts(complete) == FOLDED_ROWS


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_folding_continues_where_it_stopped_and_then_starts_again(complete, limit):
    steps = [fold(complete, LATER, 30, limit) for _ in range(12)]
    assert max(steps) <= limit
    assert parts(complete) == FOLDED_ROWS
    report(complete, [part("d", 5, first=2)], LATER)
    assert sum(fold(complete, LATER + 31 * DAYS, 30, limit) for _ in range(12)) == 3
    assert parts(complete) == [("", FOLDED, 30), ("web", FOLDED, 30)]


def test_late_report_of_a_folded_window_is_refused_and_kept(complete):
    fold_all(complete)
    before = parts(complete), states(complete)
    late = part("late", 1, 1, first=1)
    found = report(complete, [late, part("fine", 5, first=2)], LATER, "ingestion")
    assert (found.accepted, [each.reason for each in found.rejected]) == (
        1,
        ["window 2026-01-01T16:00Z has long been complete and takes no more counts."],
    )
    with complete.read() as connection:
        ((raw, reason),) = connection.execute(sa.select(event_reject.c.raw, event_reject.c.reason)).all()
    assert '"late"' in raw
    assert reason == found.rejected[0].reason
    assert states(complete)[:2] == before[1][:2]
    assert states(complete)[2][0] == "complete"


def test_report_cannot_replace_a_folded_row(complete):
    fold_all(complete)
    report(complete, [part(FOLDED, 1, first=2, version=7)], LATER)
    assert parts(complete) == FOLDED_ROWS


def test_reports_of_feeds_are_not_folded_and_still_correct_counts(ledger):
    window_queries.declare(ledger, {FOO: Tracked.of(Completeness(grains=("hour", "day")))}, FIRST)
    report(ledger, [part("0", 10, tier="web")], FIRST)
    report(ledger, [part("2026-01-01", 10, version=1)], FIRST, COUNTER)
    assert fold_all(ledger) == 1
    assert parts(ledger) == [("", "2026-01-01", None), ("web", FOLDED, 10)]
    assert report(ledger, [part("2026-01-01", 3, version=2)], LATER, COUNTER).accepted == 1
    with ledger.read() as connection:
        (row,) = window_queries.stored_windows(
            connection, [WindowAddress(FOO, "", "hour", "2026-01-01-15:00")]
        ).values()
    assert (str(row.state), row.records) == ("open", 3)
    assert report(ledger, [part("0", 3, tier="web", version=9)], LATER).rejected


def test_dry_run_of_folding_counts_reports_and_changes_nothing(complete):
    before = parts(complete), states(complete)
    assert old_reports.fold_all(complete, LATER, 30, 2, apply=False) == 4
    assert (parts(complete), states(complete)) == before
    assert old_reports.fold_all(complete, LATER, 30, 2, apply=True) == 4
    assert parts(complete) == FOLDED_ROWS
    assert old_reports.fold_all(complete, LATER, 30, 2, apply=True) == 0
