"""A window is closed while it is reported: the report comes first, complete and in the log, or it is refused.

Each of the two calls is held before each of its statements in turn, while the other goes as far as it can.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from threading import Event, get_ident

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.core.reports import Report
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, log
from feed_assets.ledger.states import count_reports
from feed_assets.ledger.states.window_rows import rows
from feed_assets.ledger.tables import change

NOW, HOUR = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, 15, tzinfo=UTC)
STARTS = [HOUR + timedelta(minutes=5 * number) for number in range(12)]
PATIENCE = 60


@dataclass
class Held:
    """A thread that stops before its n-th statement."""

    before: int
    stands: Event = field(default_factory=Event)
    may_go: Event = field(default_factory=Event)
    thread: int = 0
    statements: int = 0

    def see(self, *_) -> None:
        if get_ident() == self.thread:
            self.statements += 1
            if self.statements == self.before:
                self.stands.set()
                assert self.may_go.wait(PATIENCE)

    def run(self, call: Callable[[], object]) -> object:
        self.thread = get_ident()
        try:
            return call()
        finally:
            self.stands.set()


@contextmanager
def held(ledger, before):
    found = Held(before)
    sa.event.listen(ledger.engine, "before_cursor_execute", found.see)
    try:
        yield found
    finally:
        sa.event.remove(ledger.engine, "before_cursor_execute", found.see)


def at_once(ledger, before, first, second) -> int:
    """Run both calls, the first held before a statement until the second ends or waits.

    Return the number of statements.
    """
    with ThreadPoolExecutor(2) as pool, held(ledger, before) as each:
        one = pool.submit(each.run, first)
        assert each.stands.wait(PATIENCE)
        two = pool.submit(second)
        meanwhile(ledger, two, holds=before > 1)
        each.may_go.set()
        one.result(PATIENCE)
        two.result(PATIENCE)
    return each.statements


def meanwhile(ledger, other: "Future[object]", *, holds: bool) -> None:
    """Wait until the other call ends or waits for a lock.

    On SQLite it waits as soon as the first one writes; PostgreSQL lists the locks.
    """
    if ledger.engine.dialect.name == "sqlite":
        holds or other.result(PATIENCE)
        return
    with ledger.engine.connect() as connection:
        while not other.done():
            if connection.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one():
                return
            connection.rollback()


@dataclass
class Race:
    """One hour of a dataset that a report completes, and that is closed."""

    ledger: object
    dataset: Feed
    outcome: count_reports.ReportOutcome | None = None

    @property
    def window(self) -> WindowAddress:
        return WindowAddress(self.dataset, "", "hour", "2026-01-01-15:00")

    def know(self) -> None:
        """Report another hour of the dataset."""
        self.tell("another", HOUR + timedelta(days=1))

    def tell(self, part: str, *starts: datetime) -> count_reports.ReportOutcome:
        counts = tuple((start, 10) for start in starts)
        both = [Report(self.dataset, "", part, counts, tier) for tier in ("", "kafka")]
        return count_reports.report(self.ledger, both, NOW)

    def report(self) -> None:
        self.outcome = self.tell("part", *STARTS)

    def close(self) -> None:
        assert closures.close(self.ledger, [self.window.partition], "2026 is final", "ada", NOW) == 1

    def judge(self) -> bool:
        """Return True if the report came first. Assert that the result equals one of the two orders."""
        with self.ledger.read() as connection:
            row = rows(connection, [self.window]).get(self.window)
            told = connection.execute(sa.select(change).where(change.c.feed == str(self.dataset))).all()
        mine = [each for each in told if "2026-01-01-15:" in each.partition]
        (closed,) = [each.sequence for each in mine if each.kind == log.CLOSED]
        moved = [each.sequence for each in mine if each.kind == log.WINDOW]
        if self.outcome.accepted:
            assert (row.state, row.records, self.outcome.rejected) == ("complete", 120, [])
            assert moved
            assert max(moved) < closed
            return True
        assert (row, moved, len(self.outcome.rejected)) == (None, [], 2)
        assert all("is closed by ada" in each.reason for each in self.outcome.rejected)
        return False


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("held_one", ["report", "close"])
def test_a_report_comes_before_the_close_or_is_refused(ledger, held_one, is_known):
    firsts, before, statements = set(), 0, 1
    while before < statements:
        before += 1
        race = Race(ledger, Feed.parse(f"web/foo_{before}"))
        if is_known:
            race.know()
        order = (race.report, race.close) if held_one == "report" else (race.close, race.report)
        statements = at_once(ledger, before, *order)
        firsts.add(race.judge())
    assert firsts == {True, False}
    assert before > 5
