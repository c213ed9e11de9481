"""Reports, checks, backfills, waivers and lost ticks at random: each partition waits for what an oracle says, no more.

The oracle knows what was reported and what waits for what, and nothing of the ledger.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

import dagster as dg
import pytest

from feed_assets import Completeness, DayToDate, Input, feed_asset, report_state, state_table
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.grid import CellState, Slots
from feed_assets.core.readiness import State
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, waivers
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.facts import problem_of
from feed_assets.orchestration.decide.decisions import verdicts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.status import nodes_shown, status_of
from feed_assets.settings import settings
from feed_assets.testing import Given
from feed_assets_tests.orchestration.worlds import harness, later

NOW = datetime(2026, 1, 3, 1, tzinfo=UTC)
MIDNIGHT = datetime(2026, 1, 2, tzinfo=UTC)
HOURS = (14, 15, 16)
PARTITIONS = dg.HourlyPartitionsDefinition("2026-01-02-14:00", end_date="2026-01-02-17:00")
DAYS = dg.DailyPartitionsDefinition("2026-01-02", end_date="2026-01-03")
FOO = Feed.parse("web/foo")
RUNS: list[str] = []


def reader(name, partitions_def, read, **options):
    @feed_asset(f"web/{name}/v1.0", partitions_def=partitions_def, inputs={"read": read}, **options)
    def made(read):
        """What was read."""

    return made


def give(task):
    """Rows that differ from run to run."""
    RUNS.append(task.output.path)
    return Given([{"n": len(RUNS)}])


def world():
    RUNS.clear()
    foo = state_table("web/foo", partitions_def=PARTITIONS, completeness=Completeness(grains=("20min", "hour", "day")))
    preagg = reader("preagg", PARTITIONS, foo)
    return harness(
        foo,
        preagg,
        reader("report", PARTITIONS, preagg),
        reader("anyhow", PARTITIONS, Input(foo, ignore_quality_issue=True)),
        reader("intraday", PARTITIONS, Input(foo, mapping=DayToDate())),
        reader("daily", DAYS, foo),
        give=give,
        now=lambda: NOW,
    )


def key(hour):
    return f"2026-01-02-{hour:02d}:00"


@dataclass
class Hour:
    """What was said of one hour."""

    version: int = 0
    is_complete: bool = True
    checks: dict[str, str] = field(default_factory=dict)
    made_again: str | None = None
    waived: tuple | None = None
    """The problem that somebody has waived, until the window's state is another or a check fails anew."""

    def has(self, state):
        return frozenset(name for name, each in self.checks.items() if each == state)

    @property
    def is_there(self):
        return self.is_complete and self.made_again != "backfilling"

    @property
    def problem(self):
        """Why nobody should read it: checks that failed, else those that have not run again."""
        failed, stale = self.has("failed"), self.has("stale")
        return (("failed", failed) if failed else ("stale", stale) if stale else None) if self.is_there else None

    def end_waiver(self):
        """Of another kind of problem, or of more than what was waived: of two that were, one may be mended."""
        if self.waived and not (self.problem and self.is_waived):
            self.waived = None

    @property
    def is_waived(self):
        return bool(self.waived) and self.waived[0] == self.problem[0] and self.problem[1] <= self.waived[1]


@dataclass
class Oracle:
    """What each output is made of, and what it therefore waits for."""

    hours: dict[int, Hour]
    made: dict[tuple[str, str], tuple] = field(default_factory=dict)
    runs: dict[tuple[str, str], int] = field(default_factory=dict)

    marked: set[tuple[str, str]] = field(default_factory=set)
    closed: set[int] = field(default_factory=set)
    told: dict[object, tuple] = field(default_factory=dict)
    """By window what its state was, and the data that it then had: later counts are no news before that changes."""

    def note(self):
        """After each report: what is no longer backfilled is so for good, and whose state changes tells its data."""
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
        """What the ticks make of it, inputs before what is made from them, as {output: (state, hours it names)}."""
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
        """Made of what is bad now; or was, and is not made yet of what is good now, or while that is made again."""
        if output not in self.made:
            return
        is_there = all(self.hours[at].is_there for at in hours)
        is_bad = any(self.hours[at].problem for at in hours) and (is_there or windows is None)
        again = any(self.hours[at].made_again == "backfilling" for at in hours)
        is_older = any(
            (is_there if windows else self.hours[at].is_there) and self.told[at][1] != made
            for at, made in zip(windows or hours, self.made[output], strict=True)
        )
        if is_bad or not (output in self.marked and (again or is_older)):
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
        """It reads what is made of an hour, which is marked as long as that is bad."""
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
        """What the status page shows of an output that waits, or not."""
        if state is State.CLOSED:
            return {CellState.CLOSED}
        if output in self.marked:
            return {CellState.ISSUE}
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


class Campaign:
    def __init__(self, seed):
        self.random, self.tested = random.Random(seed), world()  # noqa: S311
        self.oracle = Oracle({at: Hour() for at in HOURS})
        self.version = 0
        starts = [MIDNIGHT + timedelta(minutes=20 * n) for n in range(72)]
        said = [{"start": start, "records": 100} for start in starts]
        self.say({"kind": "source", "tier": "kafka", "windows": said})
        self.say(
            {"kind": "part", "part": "rest", "windows": [each for each in said if not 14 <= each["start"].hour < 17]}
        )
        for at in HOURS:
            self.oracle.hours[at].is_complete = False
        self.oracle.note()
        self.done = []

    def say(self, *lines):
        return report_state([{"dataset": "web/foo", **line} for line in lines], "ada")

    def line(self, kind, at, **more):
        return {"kind": kind, "grain": "hour", "start": MIDNIGHT + timedelta(hours=at), **more}

    def count(self, at, hour):
        """The hour is written (again): one time in four a window of it is missing."""
        self.version += 1
        starts = [MIDNIGHT + timedelta(hours=at, minutes=20 * n) for n in range(3)]
        hour.is_complete, hour.version = self.random.random() < 0.75, self.version
        counts = [{"start": start, "records": 100} for start in starts[: 3 if hour.is_complete else 2]]
        assert self.say({"kind": "part", "part": f"{at}", "windows": counts, "version": self.version}).accepted

    def check(self, at, hour):
        name, state = self.random.choice(["bots", "nulls"]), self.random.choice(["failed", "passed", "passed"])
        assert self.say(self.line("quality", at, check=name, state=state, reason=f"{name} {state}")).accepted
        if state == "failed" != hour.checks.get(name):
            hour.waived = None
        hour.checks[name] = state

    def begin(self, at, hour):
        is_refused = not hour.is_there and hour.made_again != "backfilling"
        outcome = self.say(self.line("backfill", at, state="started", reason="bots"))
        assert bool(outcome.rejected) == is_refused
        if not is_refused:
            hour.made_again = "backfilling"

    def finish(self, at, hour):
        outcome = self.say(self.line("backfill", at, state="done", reason="bots"))
        if hour.made_again == "backfilling":
            hour.made_again = "backfilled"
            hour.checks |= dict.fromkeys(hour.has("failed"), "stale")
            assert outcome.accepted
        elif hour.made_again is None:
            assert outcome.rejected

    def give_up(self, at, hour):
        self.say(self.line("backfill", at, state="failed", reason="no disk"))
        if hour.made_again == "backfilling":
            hour.made_again = None

    def waive(self, at, hour):
        """Somebody takes what is wrong with it now."""
        address = WindowAddress(FOO, "", "hour", key(at))
        ledger = open_ledger(settings().ledger)
        with ledger.read() as connection:
            problem = problem_of(connection, address.partition)
        if problem:
            waivers.waive(ledger, address.partition, problem, "known, INC-1", "ada", NOW)
            hour.waived = hour.problem

    def close(self, at, hour):
        """What is made of the hour is final, or is no longer."""
        ledger, partition = open_ledger(settings().ledger), Partition(Feed.parse("web/preagg/v1.0"), key(at))
        is_closed = at in self.oracle.closed
        move = closures.reopen if is_closed else closures.close
        assert move(ledger, [partition], "2026 is final", "ada", NOW) == 1
        (self.oracle.closed.discard if is_closed else self.oracle.closed.add)(at)

    def lose(self, at, hour):
        """A tick whose runs never start: as where the daemon is killed between the two."""
        self.tested.ask()
        later(self.tested, timedelta(hours=2))

    def step(self):
        at = self.random.choice(HOURS)
        name = self.random.choice(
            ["count", "count", "check", "check", "begin", "finish", "finish", "give_up", "waive", "lose"]
        )
        self.done.append((name, at))
        getattr(self, name)(at, self.oracle.hours[at])
        self.oracle.note()

    def verdicts(self, outputs):
        graph = Graph(self.tested.definitions.resolve_asset_graph())
        wanted = [Partition(Feed.parse(f"web/{name}/v1.0"), each) for name, each in outputs]
        now = self.tested.now()
        with dg.partition_loading_context(now), open_ledger(settings().ledger).read() as connection:
            return dict(zip(outputs, verdicts(graph, connection, wanted, now), strict=True))

    def cells(self):
        """What the status page shows of each partition of the day."""
        graph, slots = Graph(self.tested.definitions.resolve_asset_graph()), Slots.of(date(2026, 1, 2), 1)
        now = self.tested.now()
        with dg.partition_loading_context(now), open_ledger(settings().ledger).read() as connection:
            shown = status_of(graph, connection, nodes_shown(graph), slots, now).rows
        return {(str(one.partition.feed), one.partition.key): one.state for row in shown for one in row.shown}

    def compare(self):
        """Every verdict has the true state, and names the true hours, and no others."""
        later(self.tested, timedelta(hours=1))
        assert all(run.succeeded for run in self.tested.run_until_idle())
        expected = self.oracle.settle()
        cells = self.cells()
        for at in HOURS:
            assert cells["web/foo", key(at)] in self.oracle.cell_of_hour(at), f"{self.done} {at} {cells}"
        for output, (state, _) in expected.items():
            found = cells[f"web/{output[0]}/v1.0", output[1]]
            assert found in self.oracle.cell(output, state), f"{self.done} {output} {state} {found}"
        found = self.verdicts([*expected])
        for output, (state, hours) in expected.items():
            verdict = found[output]
            assert verdict.state is state, f"{self.done} {output} {state} {hours} {verdict}"
            if state is State.WAITS_FOR_QUALITY:
                named = {at for at in HOURS if key(at) in verdict.reason}
                assert named <= set(hours) or output[0] == "daily", (self.done, output, verdict.reason, hours)
                assert named & set(hours), (self.done, output, verdict.reason, hours)


def run(seed, steps):
    campaign = Campaign(seed)
    campaign.tested.run_until_idle()
    for _ in range(steps):
        campaign.step()
        campaign.compare()


@pytest.mark.parametrize("seed", range(3))
def test_each_partition_waits_for_what_it_really_lacks(seed):
    run(seed, 20)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_same_for_longer(seed):
    run(seed, 50)
