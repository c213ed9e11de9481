"""The grid of `feed-assets status`: partition states, and the cells of time that they fill."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.errors import InvalidName
from feed_assets.core.facts import is_waived
from feed_assets.core.feeds import Partition
from feed_assets.core.readiness import State
from feed_assets.core.windows import FIRST_YEAR, LAST_YEAR

HOURS_UP_TO = 2
"""Largest number of days that get a column for each hour. With more days, each day is one column."""


class CellState(StrEnum):
    """The shown state of a partition. A cell with several partitions shows the first of their states in this order."""

    PERSON = "waits for a person"
    INVALID = "invalid"
    ISSUE = "with issue"
    LATE = "late"
    WAITING = "waiting"
    MISSING = "missing"
    RUNNING = "running"
    LATER = "not over yet"
    CLOSED = "closed"
    COMPLETE = "complete"


LEGEND = {
    CellState.COMPLETE: ("=", "complete: all its data are there"),
    CellState.RUNNING: (">", "running: a run or a backfill is in progress"),
    CellState.LATE: ("L", "late: built, and out of date"),
    CellState.WAITING: ("w", "waiting: for its inputs, time, quality or a run"),
    CellState.MISSING: ("-", "missing: no data have arrived"),
    CellState.INVALID: ("X", "invalid: a check has failed"),
    CellState.ISSUE: ("!", "with issue: complete, but there are problems in the data or in what they were made of"),
    CellState.PERSON: ("P", "waits for a person: no run starts by itself"),
    CellState.CLOSED: ("#", "closed: final, so no run, report or late data change it"),
    CellState.LATER: (".", "not over yet"),
}
"""The sign and the meaning of each state, in the order of the legend."""

QUIET = (CellState.COMPLETE, CellState.LATER)
"""States that need no reason."""


@dataclass(frozen=True)
class PartitionFacts:
    """Ledger facts about one partition; None means unknown. Reasons are in words."""

    published: bool = False
    """True if it has a valid update, or an event reports one."""
    running: str | None = None
    closed: str | None = None
    failed: str | None = None
    """The checks that have failed."""
    marked: str | None = None
    """The problem of the inputs that it was built from."""
    waiver: tuple[str, str, str] | None = None
    """The waived problem, who waived it, and why."""
    verdict: str | None = None
    """The last verdict, if the partition is on the due list."""
    reason: str = ""
    since: datetime | None = None
    """The time (UTC) since which it is on the due list."""
    window: WindowState | None = None
    window_why: str = ""
    is_flagged: bool = False
    """True if its window has a problem."""


@dataclass(frozen=True)
class Shown:
    """A partition in the status grid, with its state. Times are UTC, None for partitions without time."""

    partition: Partition
    start: datetime | None
    end: datetime | None
    state: CellState
    why: str = ""
    verdict: str | None = None
    since: datetime | None = None


Judged = tuple[CellState, str]


def judge(facts: PartitionFacts, *, is_over: bool) -> Judged:
    """Return the shown state of a partition, and the reason. The first rule with an answer decides."""
    return next(judged for rule in _RULES if (judged := rule(facts, is_over)))


def _running(facts: PartitionFacts, _: bool) -> Judged | None:
    if facts.window is WindowState.BACKFILLING and not facts.running:
        return CellState.RUNNING, f"backfilling: {facts.window_why}"
    return (CellState.RUNNING, facts.running) if facts.running else None


def _closed(facts: PartitionFacts, is_over: bool) -> Judged | None:
    """Return the shown state of a partition that was closed. A partition of bad quality is still shown as bad."""
    if not facts.closed:
        return None
    state, why = _bad(facts, is_over) or (CellState.CLOSED, "")
    return state, "; ".join(each for each in (why, facts.closed) if each)


def _stopped(facts: PartitionFacts, _: bool) -> Judged | None:
    return (CellState.PERSON, facts.reason) if facts.verdict == State.WAITS_FOR_A_PERSON else None


def _bad(facts: PartitionFacts, _: bool) -> Judged | None:
    """Return the shown state of a partition whose data are bad, even if a waiver lets its consumers proceed."""
    is_invalid = facts.window is WindowState.INVALID or facts.failed
    if not is_invalid and not facts.is_flagged and not facts.marked:
        return None
    why = facts.failed or facts.marked or facts.window_why
    problem, author, because = facts.waiver or ("", "", "")
    waived = f"; waived by {author}: {because}" if facts.waiver and is_waived(why, problem) else ""
    return (CellState.INVALID if is_invalid else CellState.ISSUE), why + waived


def _waits(facts: PartitionFacts, is_over: bool) -> Judged | None:
    is_there = facts.published or facts.window in DONE
    if not is_over and not is_there:
        return CellState.LATER, ""
    if facts.verdict:
        return (CellState.LATE if facts.published else CellState.WAITING), facts.reason
    return (CellState.WAITING, facts.window_why) if facts.window is WindowState.OPEN else None


def _complete_or_missing(facts: PartitionFacts, _: bool) -> Judged:
    if facts.published or facts.window in DONE:
        return CellState.COMPLETE, facts.window_why
    return CellState.MISSING, "no data have arrived"


_RULES: tuple[Callable[[PartitionFacts, bool], Judged | None], ...] = (
    _running,
    _closed,
    _stopped,
    _bad,
    _waits,
    _complete_or_missing,
)


@dataclass(frozen=True)
class Slots:
    """The columns of a grid: `[start, end)` in steps of an hour or a day, UTC."""

    start: datetime
    end: datetime
    step: timedelta

    @classmethod
    def of(cls, last: date, days: int) -> "Slots":
        """Return the slots of `days` days ending with `last`. Raise InvalidName if its year has no windows."""
        if not FIRST_YEAR <= last.year <= LAST_YEAR:
            raise InvalidName(f"day {last}: expected one of the years {FIRST_YEAR} to {LAST_YEAR}.")
        end = datetime.combine(last, time(), UTC) + timedelta(days=1)
        step = timedelta(hours=1) if days <= HOURS_UP_TO else timedelta(days=1)
        return cls(end - timedelta(days=days), end, step)

    def __len__(self) -> int:
        return (self.end - self.start) // self.step

    @property
    def starts(self) -> list[datetime]:
        """Return the moments at which the columns begin."""
        return [self.start + number * self.step for number in range(len(self))]

    def columns(self, start: datetime | None, end: datetime | None) -> tuple[int, int]:
        """Return the first column that `[start, end)` overlaps, and the column after the last overlapped column."""
        first = max(start, self.start) if start else self.start
        last = min(end, self.end) if end else self.end
        return (first - self.start) // self.step, -((self.start - last) // self.step)


@dataclass(frozen=True)
class Cell:
    """A cell of a row, with its partitions. It covers `width` columns, beginning with column `first`."""

    first: int
    width: int
    partitions: tuple[Shown, ...]

    @property
    def state(self) -> CellState:
        """Return the first state of its partitions in the order of `CellState`."""
        states = {each.state for each in self.partitions}
        return next(each for each in CellState if each in states)

    @property
    def name(self) -> str:
        """Return the name of the cell: the first segment of its first partition's key, which is the time if it has one.

        Return '' for several partitions without time, because no segment stands for all of them.
        """
        first = self.partitions[0]
        return first.partition.key.partition("/")[0] if first.start or len(self.partitions) == 1 else ""


def cells(partitions: Iterable[Shown], slots: Slots) -> tuple[Cell, ...]:
    """Return the cells of a row in the status grid, in order. A partition fills the columns of its time.

    Partitions that would fill only columns of an earlier cell are added to that cell.
    """
    groups: list[tuple[int, int, list[Shown]]] = []
    reached = 0
    for each in sorted(partitions, key=_by_time):
        first, last = slots.columns(each.start, each.end)
        if last > reached:
            groups.append((max(first, reached), last, [each]))
            reached = last
        elif groups:
            groups[-1][2].append(each)
    return tuple(Cell(first, last - first, tuple(held)) for first, last, held in groups)


def periods(partitions: Iterable[Shown]) -> tuple[Cell, ...]:
    """Return a cell for each period of one row, in order. Skip unfinished periods without data."""
    by_period: dict[tuple[datetime | None, datetime | None], list[Shown]] = {}
    for each in sorted(partitions, key=_by_time):
        if each.state is not CellState.LATER:
            by_period.setdefault((each.start, each.end), []).append(each)
    return tuple(Cell(number, 1, tuple(held)) for number, held in enumerate(by_period.values()))


def worst_first(partitions: Iterable[Shown]) -> int:
    """Return the sort key of a row in the status grid: the worst state of its partitions. Worse rows come first."""
    order = {state: number for number, state in enumerate(CellState)}
    return min((order[each.state] for each in partitions), default=len(order))


def _by_time(partition: Shown) -> tuple[bool, datetime, str]:
    return partition.start is not None, partition.start or datetime.min.replace(tzinfo=UTC), partition.partition.key


@dataclass(frozen=True)
class Reason:
    """Partitions of one row with the same state and verdict, in order of time. The first reason is shown."""

    partitions: tuple[Shown, ...]

    @property
    def first(self) -> Shown:
        """Return the first partition, which stands for the others."""
        return self.partitions[0]

    @property
    def since(self) -> datetime | None:
        """Return the earliest time (UTC) since which one of the partitions is on the due list."""
        return min((each.since for each in self.partitions if each.since), default=None)


def reasons(partitions: Iterable[Shown]) -> list[Reason]:
    """Return the reasons for the states of one row's partitions. Skip states that need no reason.

    A state in `_EACH` gets one entry for each reason, any other state one entry for each verdict.
    """
    groups: dict[tuple[CellState, str | None], list[Shown]] = {}
    for each in sorted(partitions, key=_by_time):
        if each.state not in QUIET:
            groups.setdefault((each.state, each.why if each.state in _EACH else each.verdict), []).append(each)
    return [Reason(tuple(held)) for held in groups.values()]


_EACH = (CellState.PERSON, CellState.INVALID, CellState.CLOSED)


@dataclass(frozen=True)
class Hole:
    """A time range (UTC) of missing partitions before an existing one, and why the first of them is missing."""

    start: datetime | None
    end: datetime
    why: str


def holes(partitions: Iterable[Shown]) -> list[Hole]:
    """Return the holes of one row: missing partitions before an existing one. Neighbours form one hole."""
    ordered = sorted((each for each in partitions if each.start), key=_by_time)
    present = [number for number, each in enumerate(ordered) if each.state in _THERE]
    gaps: list[Hole] = []
    for each in ordered[: present[-1]] if present else ():
        if each.state in _ABSENT and each.end:
            joins = bool(gaps) and gaps[-1].end == each.start
            start, why = (gaps[-1].start, gaps[-1].why) if joins else (each.start, each.why)
            gaps[len(gaps) - joins :] = [Hole(start, each.end, why)]
    return gaps


_THERE = (CellState.COMPLETE, CellState.LATE, CellState.ISSUE, CellState.CLOSED)
_ABSENT = (CellState.MISSING, CellState.WAITING, CellState.PERSON, CellState.INVALID)
