"""Expected states of each partition, derived from reports, checks, backfills and waivers alone, without the ledger."""

from dataclasses import dataclass, field

from feed_assets.core.grid import CellState
from feed_assets.core.readiness import State

HOURS = (14, 15, 16)


def key(hour):
    return f"2026-01-02-{hour:02d}:00"


@dataclass
class Hour:
    """Reports about one hour."""

    version: int = 0
    is_complete: bool = True
    last: int | None = None
    """Records of its last window, if a correction left them below its ratio. None means that no record is reported."""
    checks: dict[str, str] = field(default_factory=dict)
    made_again: str | None = None
    waived: tuple | None = None
    """The waived problem. It holds until the window's state changes or a check fails anew."""

    def has(self, state):
        return frozenset(name for name, each in self.checks.items() if each == state)

    @property
    def is_there(self):
        return self.is_complete and self.made_again != "backfilling"

    @property
    def problem(self):
        """Return why nobody should read the hour: failed checks, else checks that have not run again."""
        failed, stale = self.has("failed"), self.has("stale")
        return (("failed", failed) if failed else ("stale", stale) if stale else None) if self.is_there else None

    def end_waiver(self):
        """End the waiver if the problem is of another kind or larger than the waived one; it may shrink."""
        if self.waived and not (self.problem and self.is_waived):
            self.waived = None

    @property
    def is_waived(self):
        return bool(self.waived) and self.waived[0] == self.problem[0] and self.problem[1] <= self.waived[1]


@dataclass
class Oracle:
    """Inputs of each output, and what the output therefore waits for."""

    hours: dict[int, Hour]
    made: dict[tuple[str, str], tuple] = field(default_factory=dict)
    runs: dict[tuple[str, str], int] = field(default_factory=dict)

    marked: set[tuple[str, str]] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    told: dict[object, tuple] = field(default_factory=dict)
    """State of each window and the data at its last change. Later counts are no news until the state changes."""

    def note(self):
        """Update the hours after a report: a broken backfill ends for good, and a changed state records its data."""
        for at, hour in self.hours.items():
            if hour.made_again == "backfilled" and (not hour.is_complete or hour.has("failed")):
                hour.made_again = None
            if self.told.get(at, (None,))[0] != (hour.is_there, hour.made_again, hour.problem):
                hour.end_waiver()
            self.tell(at, (hour.is_there, hour.made_again, hour.problem), hour.version)
        bad = next(((at, hour.problem) for at, hour in self.hours.items() if hour.problem), None)
        is_there = all(hour.is_there for hour in self.hours.values())
        self.tell("day", (is_there, bad if is_there else None), tuple(hour.version for hour in self.hours.values()))

    def tell(self, window, state, version):
        if self.told.get(window, (None,))[0] != state:
            self.told[window] = state, version

    def settle(self):
        """Return what the ticks build, inputs before consumers, as {output: (state, hours it names)}."""
        found = {}
        for at in HOURS:
            found["anyhow", key(at)] = self.judge("anyhow", key(at), [at], ignores=True)
            found["preagg", key(at)] = self.preagg(at)
            found["intraday", key(at)] = self.judge("intraday", key(at), [each for each in HOURS if each <= at])
            self.mark(("preagg", key(at)), [at])
            found["report", key(at)] = self.report(at)
            self.mark_report(at)
            self.mark(("anyhow", key(at)), [at])
            self.mark(("intraday", key(at)), [each for each in HOURS if each <= at])
        found["daily", "2026-01-02"] = self.judge("daily", "2026-01-02", list(HOURS), waives=False)
        self.mark(("daily", "2026-01-02"), list(HOURS), ["day"])
        return found

    def mark(self, output, hours, windows=None):
        """Mark an output made of bad data, until good data are there and the output is made of them."""
        if output not in self.made:
            return
        is_there = all(self.hours[at].is_there for at in hours)
        is_bad = any(self.hours[at].problem for at in hours) and (is_there or windows is None)
        again = any(self.hours[at].made_again == "backfilling" for at in hours)
        is_older = any(
            (is_there if windows else self.hours[at].is_there) and self.told[at][1] != made
            for at, made in zip(windows or hours, self.made[output], strict=True)
        )
        is_open = not is_there
        if is_bad or not (output in self.marked and (again or is_open or is_older)):
            (self.marked.add if is_bad else self.marked.discard)(output)

    def mark_report(self, at):
        output, source = ("report", key(at)), ("preagg", key(at))
        if output in self.made:
            is_older = self.made[output] != self.runs[source]
            if source in self.marked or not (output in self.marked and is_older):
                (self.marked.add if source in self.marked else self.marked.discard)(output)

    def preagg(self, at):
        return (State.CLOSED, []) if at in self.closed else self.judge("preagg", key(at), [at])

    def judge(self, name, partition, hours, *, ignores=False, waives=True):
        absent = [at for at in hours if not self.hours[at].is_there]
        if absent:
            return State.WAITS_FOR_INPUT, absent
        data = tuple(self.told[at][1] for at in (["day"] if name == "daily" else hours))
        if self.made.get((name, partition)) == data:
            return State.CURRENT, []
        bad = [at for at in hours if self.hours[at].problem and not (waives and self.is_waived(at))]
        if bad and not ignores:
            return State.WAITS_FOR_QUALITY, bad
        self.made[name, partition] = data
        self.runs[name, partition] = self.runs.get((name, partition), 0) + 1
        return State.CURRENT, []

    def is_waived(self, at):
        return self.hours[at].is_waived

    def report(self, at):
        """Return the report's state. It reads an output of the hour, which is marked while the hour is bad."""
        run = self.runs.get(("preagg", key(at)))
        if run is None:
            return State.WAITS_FOR_INPUT, []
        if self.made.get(("report", key(at))) == run:
            return State.CURRENT, []
        if ("preagg", key(at)) in self.marked:
            return State.WAITS_FOR_QUALITY, [at]
        self.made["report", key(at)] = run
        return State.CURRENT, []

    def cell(self, output, state):
        """Return the cells that the status page may show for an output."""
        if output in self.marked:
            return {CellState.ISSUE}
        if state is State.CLOSED:
            return {CellState.CLOSED}
        if state is State.CURRENT:
            return {CellState.COMPLETE}
        return {CellState.LATE} if output in self.made else {CellState.WAITING, CellState.MISSING}

    def cell_of_hour(self, at):
        hour = self.hours[at]
        if hour.made_again == "backfilling":
            return {CellState.RUNNING}
        if not hour.is_complete:
            return {CellState.WAITING}
        if hour.problem:
            return {CellState.INVALID} if hour.problem[0] == "failed" else {CellState.ISSUE}
        return {CellState.COMPLETE}

    def words(self, output, state, hours):
        """Return groups of words: `explain` shows at least one of each group."""
        name, partition = output
        if state is State.CLOSED:
            return [["closed by ada"], ["2026 is final"]]
        if state not in (State.WAITS_FOR_INPUT, State.WAITS_FOR_QUALITY):
            return [["with issue: hour" if output in self.marked else "built from the newest inputs"]]
        if name == "report":
            is_absent = state is State.WAITS_FOR_INPUT
            return [
                [f"no valid update of web/preagg/v1.0 {partition}" if is_absent else f"hour {partition} of web/foo"]
            ]
        if name == "daily":  # It names the first hour that keeps it open, also a bad one.
            return [[why for at in HOURS if at in hours or self.hours[at].problem for why in self.whys(at)]]
        return [[why] for at in hours for why in self.whys(at)]

    def whys(self, at):
        """Return the reasons that `explain` may name for an hour."""
        hour = self.hours[at]
        if hour.made_again == "backfilling":
            return ["is backfilling: its backfill began"]
        if not hour.is_complete:
            return [
                f"20min 2026-01-02-{at}:{40 if hour.version else '00'} has {hour.last or 0} of 100 records at kafka"
            ]
        state, names = hour.problem
        return [f"{each} failed" if state == "failed" else f"check {each} failed before" for each in names]
