"""Test 15 of the promises: random checks and backfills against an oracle, and writers that compare and set.

Source: the second story of "Data Dependency Driven Orchestration".
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from threading import Barrier

import pytest
import sqlalchemy as sa

from feed_assets.core.completeness import Completeness, WindowState
from feed_assets.core.errors import IllegalTransition
from feed_assets.core.reports import Report
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.core.transitions import TRANSITIONS
from feed_assets.core.windows import WindowAddress, window_of
from feed_assets.ledger import log
from feed_assets.ledger.states import backfills, count_reports, window_queries
from feed_assets.ledger.states.posting import NewTransition, post
from feed_assets.ledger.states.window_rows import WindowRow
from feed_assets.ledger.tables import change
from feed_assets_tests.ledger.quality_oracle import DAY, LEGAL, SIZES, At, Oracle
from feed_assets_tests.ledger.state_reports import FOO, HOUR_15, NOW, part, source

WRITERS = 8
STARTS = [DAY + timedelta(minutes=20 * n) for n in range(72)]
CHANGING = STARTS[45:51]
"""Starts in hours 15 and 16, whose counts change: the other hours are complete."""
ZONES = {"east": "UTC", "west": "UTC"}


def address(at):
    region = f"region={at.region}" if at.region else ""
    return WindowAddress(FOO, region, at.grain, window_of(at.grain, at.start, "UTC").key)


class Machine:
    """One sequence of operations, on the ledger and on the oracle."""

    def __init__(self, ledger, seed, oracle=Oracle):
        self.ledger, self.random = ledger, random.Random(seed)  # noqa: S311
        self.oracle = oracle(tuple(ZONES) if seed % 2 else ())
        self.refused = 0
        regions = Regions(ZONES) if self.oracle.regions else None
        window_queries.declare(ledger, {FOO: Tracked.of(Completeness(grains=tuple(SIZES)), regions)}, NOW)
        for region in self.leaves:
            self.report(region, "kafka", dict.fromkeys(STARTS, 10))
            self.report(region, "", dict.fromkeys(STARTS, 10))
        grains = [("20min", CHANGING), ("hour", CHANGING[::3]), ("day", [DAY])]
        self.looked = [
            At(region, grain, start) for region in {"", *self.leaves} for grain, starts in grains for start in starts
        ]
        self.looked.sort()

    @property
    def leaves(self):
        return self.oracle.regions or ("",)

    def report(self, region, tier, counts, part="part-1"):
        """Report counts; each window of a source is a part of its own."""
        place, known = f"region={region}" if region else "", self.oracle.parts.get((region, part), (-1, {}))
        version = known[0] + 1 if not tier else self.random.randrange(10**9, 10**12)
        said = [Report(FOO, place, part, tuple(counts.items()), tier, f"{version:020d}")]
        if tier:
            version = self.next_version()
            said = [Report(FOO, place, str(at), ((at, n),), tier, f"{version:020d}") for at, n in counts.items()]
            self.oracle.sources |= {(region, at): n for at, n in counts.items()}
        else:
            self.oracle.parts[region, part] = version, dict(counts)
        assert not count_reports.report(self.ledger, said, NOW).rejected

    def next_version(self):
        self.version = getattr(self, "version", 0) + 1
        return self.version

    def count(self):
        counts = {at: self.random.choice([10, 10, 10, 0, 9, 11]) for at in CHANGING}
        region = self.random.choice(self.leaves)
        self.report(region, "", dict.fromkeys(STARTS, 10) | counts)

    def mend(self):
        for region in self.leaves:
            self.report(region, "", dict.fromkeys(STARTS, 10))

    def source(self):
        self.report(self.random.choice(self.leaves), "kafka", {self.random.choice(CHANGING): 10})

    def check(self):
        at, name = self.random.choice(self.looked), self.random.choice(["bots", "nulls"])
        state = self.random.choice(["passed", "failed", "warned"])
        window_queries.report_quality(self.ledger, address(at), name, state, f"{name} {state}", "dq", NOW)
        self.oracle.checks[at, name] = state

    def passes(self):
        """Report a pass of every check that has failed or is stale."""
        for at, name in [key for key, state in self.oracle.checks.items() if state in ("failed", "stale")]:
            window_queries.report_quality(self.ledger, address(at), name, "passed", None, "dq", NOW)
            self.oracle.checks[at, name] = "passed"

    def begin(self):
        at = self.random.choice(self.looked)
        before = self.oracle.state(at)
        if self.moved(backfills.begin, at, before, "backfilling"):
            self.oracle.made_again[at] = "backfilling"

    def finish(self):
        begun = [at for at, state in self.oracle.made_again.items() if state == "backfilling"]
        at = self.random.choice(begun if begun and self.random.random() < 0.8 else self.looked)
        if self.moved(backfills.finish, at, self.oracle.state(at), "backfilled"):
            self.oracle.made_again[at] = "backfilled"
            for key in [key for key, state in self.oracle.checks.items() if key[0] == at and state == "failed"]:
                self.oracle.checks[key] = "stale"

    def give_up(self):
        at = self.random.choice(self.looked)
        backfills.give_up(self.ledger, address(at), "why", "ada", NOW)
        if self.oracle.made_again.get(at) == "backfilling":
            del self.oracle.made_again[at]

    def moved(self, move: Callable, at, before, after):
        """Return True if the window changed. Assert that the ledger refuses what the rules refuse."""
        if before == after:
            assert move(self.ledger, address(at), "why", "ada", NOW).known == 1
            return False
        if after in LEGAL[before]:
            move(self.ledger, address(at), "why", "ada", NOW)
            return True
        self.refused += 1
        with pytest.raises(IllegalTransition, match=f"is {before} and cannot become {after}"):
            move(self.ledger, address(at), "why", "ada", NOW)
        return False

    def step(self):
        name = self.random.choice(["count", "mend", "source", "check", "check", "passes", "begin", "finish", "give_up"])
        getattr(self, name)()
        return name

    def states(self):
        with self.ledger.read() as connection:
            known = window_queries.stored_windows(connection, [address(at) for at in self.looked])
        return {at: known[address(at)].state.value for at in self.looked if address(at) in known}

    def run(self, steps):
        done = []
        for _ in range(steps):
            done.append(self.step())
            assert self.states() == self.oracle.settle(self.looked), done


def log_of(ledger, partition=None):
    query = sa.select(change).where(change.c.kind == log.WINDOW).order_by(change.c.sequence)
    with ledger.read() as connection:
        return [row for row in connection.execute(query) if partition in (None, row.partition)]


def check_log(ledger):
    """Assert that each transition is legal and begins where the one before it ended, so that none was lost."""
    by_window = {}
    for row in log_of(ledger):
        assert row.after in LEGAL[row.before], row
        by_window.setdefault(row.partition, []).append(row)
    for rows in by_window.values():
        assert rows[0].before == "open"
        assert all(first.after == second.before for first, second in pairwise(rows))


def test_transition_table_equals_the_one_of_the_issue():
    assert {before.value: {after.value for after in some} for before, some in TRANSITIONS.items()} == LEGAL


def test_illegal_transition_is_refused_and_not_logged(sqlite_ledger):
    at = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    pairs = [(before, after) for before in WindowState for after in WindowState if after.value not in LEGAL[before]]
    assert len(pairs) == 36 - sum(map(len, LEGAL.values()))
    for before, after in pairs:
        row = WindowRow(at, DAY, DAY + timedelta(hours=1), state=after)
        with pytest.raises(IllegalTransition), sqlite_ledger.write() as connection:
            post(connection, [NewTransition(row, before, "why")], [], NOW, "ada")
    assert log_of(sqlite_ledger) == []


@pytest.mark.parametrize("seed", range(46))
def test_random_checks_and_backfills_agree_with_the_oracle(sqlite_ledger, seed):
    machine = Machine(sqlite_ledger, seed)
    machine.run(50)
    check_log(sqlite_ledger)


@pytest.mark.parametrize("seed", range(100, 102))
def test_random_checks_and_backfills_agree_with_the_oracle_on_postgresql(postgresql_ledger, seed):
    Machine(postgresql_ledger, seed).run(50)
    check_log(postgresql_ledger)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_500_random_sequences_of_checks_agree_with_the_oracle(sqlite_ledger, seed):
    machine = Machine(sqlite_ledger, seed)
    machine.run(50)
    check_log(sqlite_ledger)


class Flagless(Oracle):
    """A wrong control: windows inside a bad window are not flagged."""

    def holding(self, at):
        return []


def test_an_oracle_without_flags_is_caught(sqlite_ledger):
    with pytest.raises(AssertionError, match="complete_with_issue"):
        Machine(sqlite_ledger, 0, Flagless).run(200)


def compare_and_set(move, ledger, at, who, seen):
    """Move a window on if its state is still the one that was seen."""
    move(ledger, at, "again", who, NOW, seen)


def move_anyhow(move, ledger, at, who, _seen):
    """Move wrongly: whatever others have done to the window since."""
    move(ledger, at, "again", who, NOW)


def write(ledger, at, count, writer, who, barrier):
    """Return the states from which a writer won. In each round all writers read before any of them moves."""
    won = []
    for _ in range(count):
        with ledger.read() as connection:
            seen = window_queries.stored_windows(connection, [at])[at].state
        barrier.wait()
        move = backfills.finish if seen is WindowState.BACKFILLING else backfills.begin
        with suppress(IllegalTransition):  # Another writer was faster.
            writer(move, ledger, at, who, seen)
            won.append(seen.value)
        barrier.wait()
    return won


def check_writers(ledger, count, writer=compare_and_set):
    """Assert that one writer wins each round, and that the log has its transition: none is lost or doubled."""
    count_reports.report(ledger, source(dict.fromkeys(HOUR_15, 10)), NOW)
    count_reports.report(ledger, [part("part-1", dict.fromkeys(HOUR_15, 10))], NOW)
    at = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    names, barrier = [f"writer {number}" for number in range(WRITERS)], Barrier(WRITERS, timeout=60)
    with ThreadPoolExecutor(WRITERS) as pool:
        won = [*pool.map(lambda who: write(ledger, at, count, writer, who, barrier), names)]
    moves = [row for row in log_of(ledger, at.partition.key) if row.why == "again"]
    assert [[row.before for row in moves if row.who == who] for who in names] == won
    assert len(moves) == count
    check_log(ledger)


def test_eight_writers_lose_and_double_no_transition(sqlite_ledger):
    check_writers(sqlite_ledger, 100)


def test_eight_writers_lose_and_double_no_transition_on_postgresql(postgresql_ledger):
    check_writers(postgresql_ledger, 50)


def test_writers_that_do_not_compare_states_are_caught(ledger):
    with pytest.raises(AssertionError):
        check_writers(ledger, 2, move_anyhow)


def test_transition_from_an_outdated_state_is_refused(ledger):
    check_writers(ledger, 2)  # It was complete, and is backfilled: both states may be backfilled again.
    at = WindowAddress(FOO, "", "hour", "2026-01-01-15:00")
    with pytest.raises(IllegalTransition, match="is backfilled, expected complete: another process changed it first"):
        backfills.begin(ledger, at, "again", "ada", NOW, WindowState.COMPLETE)
    assert len([row for row in log_of(ledger, at.partition.key) if row.why == "again"]) == 2


@pytest.mark.soak
def test_eight_writers_with_5000_rounds_lose_and_double_no_transition(ledger):
    check_writers(ledger, 5_000)
