"""Display states of partitions, and the cells that they form."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from feed_assets.core.completeness import WindowState
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import (
    LEGEND,
    CellState,
    PartitionFacts,
    Shown,
    Slots,
    cells,
    holes,
    judge,
    periods,
    reasons,
    worst_first,
)
from feed_assets.core.readiness import State
from feed_assets_tests.support.each_case import each_case

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = Slots.of(date(2026, 1, 1), 1)
HOUR = timedelta(hours=1)

JUDGED = [
    (PartitionFacts(), CellState.MISSING),
    (PartitionFacts(published=True), CellState.COMPLETE),
    (PartitionFacts(window=WindowState.COMPLETE), CellState.COMPLETE),
    (PartitionFacts(window=WindowState.BACKFILLED), CellState.COMPLETE),
    (PartitionFacts(window=WindowState.OPEN), CellState.WAITING),
    (PartitionFacts(published=True, window=WindowState.OPEN), CellState.WAITING),
    (PartitionFacts(window=WindowState.INVALID), CellState.INVALID),
    (PartitionFacts(window=WindowState.COMPLETE_WITH_ISSUE, is_flagged=True), CellState.ISSUE),
    (PartitionFacts(window=WindowState.BACKFILLING), CellState.RUNNING),
    (PartitionFacts(window=WindowState.BACKFILLED, is_flagged=True), CellState.ISSUE),
    (PartitionFacts(window=WindowState.OPEN, is_flagged=True), CellState.ISSUE),
    (PartitionFacts(verdict=State.WAITS_FOR_INPUT), CellState.WAITING),
    (PartitionFacts(verdict=State.BUILD), CellState.WAITING),
    (PartitionFacts(published=True, verdict=State.WAITS_FOR_LATE_DATA), CellState.LATE),
    (PartitionFacts(published=True, verdict=State.REBUILD), CellState.LATE),
    (PartitionFacts(published=True, verdict=State.WAITS_FOR_INPUT), CellState.LATE),
    (PartitionFacts(verdict=State.WAITS_FOR_QUALITY, failed="n is 1000"), CellState.INVALID),
    (PartitionFacts(published=True, failed="n is 1000"), CellState.INVALID),
    (PartitionFacts(published=True, marked="an input is invalid"), CellState.ISSUE),
    (PartitionFacts(published=True, failed="n is 1000", verdict=State.WAITS_FOR_A_PERSON), CellState.PERSON),
    (PartitionFacts(failed="n is 1000", closed="final"), CellState.INVALID),
    (PartitionFacts(marked="an input is invalid", closed="final"), CellState.ISSUE),
    (PartitionFacts(closed="final", verdict=State.WAITS_FOR_A_PERSON), CellState.CLOSED),
    (PartitionFacts(closed="final", running="since three"), CellState.RUNNING),
]


@each_case(("known", "state"), JUDGED)
def test_a_partition_is_shown_as_one_state(known, state):
    assert judge(known, is_over=True)[0] is state


def test_each_state_can_be_shown_and_has_a_sign_of_its_own():
    assert {state for _, state in JUDGED} == {*CellState} - {CellState.LATER}
    assert len({sign for sign, _ in LEGEND.values()}) == len(LEGEND) == len(CellState)


@each_case(
    ("known", "state"),
    [
        (PartitionFacts(), CellState.LATER),
        (PartitionFacts(verdict=State.WAITS_FOR_INPUT), CellState.LATER),
        (PartitionFacts(window=WindowState.OPEN), CellState.LATER),
        (PartitionFacts(published=True), CellState.COMPLETE),
        (PartitionFacts(running="since three"), CellState.RUNNING),
        (PartitionFacts(failed="n is 1000"), CellState.INVALID),
    ],
)
def test_an_unfinished_period_is_not_missed(known, state):
    assert judge(known, is_over=False)[0] is state


def test_a_waived_problem_stays_invalid_and_names_who_waived_it():
    waiver = ("bots", "ann", "known")
    assert judge(PartitionFacts(failed="bots", waiver=waiver), is_over=True) == (
        CellState.INVALID,
        "bots; waived by ann: known",
    )
    assert judge(PartitionFacts(failed="more bots", waiver=waiver), is_over=True) == (CellState.INVALID, "more bots")
    of_two = ("bots; no rows", "ann", "known")
    assert judge(PartitionFacts(failed="bots", waiver=of_two), is_over=True)[1] == "bots; waived by ann: known"


def test_a_closed_invalid_cell_names_both_reasons():
    found = judge(PartitionFacts(window=WindowState.INVALID, window_why="bots", closed="closed by ann"), is_over=True)
    assert found == (CellState.INVALID, "bots; closed by ann")


def shown(hour, length=1.0, state=CellState.COMPLETE, why="", verdict=None):
    start = START + hour * HOUR
    key = f"{start:%Y-%m-%d-%H:%M}"
    return Shown(Partition(Feed.parse("a/b"), key), start, start + length * HOUR, state, why, verdict)


def test_a_partition_has_the_columns_of_its_time():
    found = cells([shown(3), shown(0, 3), shown(5)], DAY)
    assert [(cell.first, cell.width) for cell in found] == [(0, 3), (3, 1), (5, 1)]


def test_cells_are_cut_at_the_edges_of_the_grid():
    (cell,) = cells([shown(-8, 48)], DAY)
    assert (cell.first, cell.width) == (0, 24)


def test_days_that_begin_between_two_hours_have_their_columns_one_after_the_other():
    found = cells([shown(-5.5, 24), shown(18.5, 24)], DAY)
    assert [(cell.first, cell.width) for cell in found] == [(0, 19), (19, 5)]


def test_shorter_partitions_share_a_cell_that_shows_the_worst():
    parts = [shown(number / 6, 1 / 6) for number in range(5)]
    (cell,) = cells([*parts, shown(5 / 6, 1 / 6, CellState.MISSING)], DAY)
    assert (cell.first, cell.width, len(cell.partitions)) == (0, 1, 6)
    assert cell.state is CellState.MISSING


WORST_FIRST = "waits for a person, invalid, with issue, late, waiting, missing, running, not over yet, closed, complete"


@each_case(("worse", "better"), [*pairwise(map(CellState, WORST_FIRST.split(", ")))])
def test_a_shared_cell_shows_the_most_urgent_state(worse, better):
    for states in ([worse, better], [better, worse]):
        (cell,) = cells([shown(number / 2, 1 / 2, state) for number, state in enumerate(states)], DAY)
        assert cell.state is worse


def test_a_partition_without_time_fills_all_columns():
    (cell,) = cells([Shown(Partition(Feed.parse("a/b"), ""), None, None, CellState.LATE)], DAY)
    assert (cell.first, cell.width) == (0, 24)


def test_more_than_two_days_are_shown_with_a_column_each():
    slots = Slots.of(date(2026, 1, 7), 7)
    found = cells([shown(hour) for hour in range(48)], slots)
    assert [(cell.first, cell.width, len(cell.partitions)) for cell in found] == [(0, 1, 24), (1, 1, 24)]
    assert len(slots) == 7
    assert len(Slots.of(date(2026, 1, 7), 2)) == 48


def test_missing_cells_are_a_hole_only_before_present_ones():
    missing = CellState.MISSING
    parts = [shown(0), shown(1, state=missing, why="x"), shown(2, state=missing), shown(3), shown(4, state=missing)]
    (hole,) = holes(parts)
    assert (hole.start, hole.end, hole.why) == (START + HOUR, START + 3 * HOUR, "x")
    assert holes([shown(0, state=missing)]) == []
    assert len(holes([shown(0, state=missing), shown(1, state=CellState.CLOSED)])) == 1


def test_missing_cells_are_listed_by_verdict_and_invalid_ones_by_reason():
    waiting = [shown(hour, state=CellState.WAITING, why=str(hour), verdict="waits for input") for hour in (1, 0)]
    invalid = [shown(hour, state=CellState.INVALID, why=str(hour)) for hour in (2, 3)]
    found = reasons([*waiting, *invalid, shown(4)])
    assert [(each.first.why, len(each.partitions)) for each in found] == [("0", 2), ("2", 1), ("3", 1)]


@each_case("day", [date.min, date.max])
def test_a_day_of_years_without_windows_is_none_in_one_line(day):
    with pytest.raises(InvalidName, match=f"day {day}: expected one of the years 1970 to 9998"):
        Slots.of(day, 1)


def test_periods_are_those_that_are_over_or_have_something():
    def shown(key, hour, state):
        start = START + hour * HOUR
        return Shown(Partition(Feed.parse("a/b/v1.0"), key), start, start + HOUR, state)

    found = [
        shown("h2/b", 2, CellState.LATER),
        shown("h1/a", 1, CellState.COMPLETE),
        shown("h0/a", 0, CellState.MISSING),
        shown("h1/b", 1, CellState.LATE),
    ]
    assert [(cell.name, cell.state) for cell in periods(found)] == [("h0", CellState.MISSING), ("h1", CellState.LATE)]
    assert sorted([[], found, found[:2], found[3:]], key=worst_first) == [found, found[3:], found[:2], []]
