"""The state store: reports of parts and their roll-up; the cost of either must not depend on earlier reports."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import count
from threading import Event, Thread
from typing import Any

import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair
from benchmarks.events import Databases, opened, postgresql, sqlite
from feed_assets.core.completeness import Completeness
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report
from feed_assets.core.sub_partitions import Regions, Tracked
from feed_assets.ledger import log, update_changes, updates
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.states import count_reports, window_queries
from feed_assets.ledger.tables import change, report, window

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIVE = timedelta(minutes=5)
FOO, BARE = Feed.parse("web/foo"), Feed.parse("web/bare")
BATCHES, BATCH = 10, 1000
REGIONS = Regions({"apac": "Asia/Singapore", "india": "Asia/Kolkata", "emea": "UTC", "americas": "America/Los_Angeles"})
TRACKED = Tracked.of(Completeness(), REGIONS)
PARTS = 8
"""Parts of a region in two days."""


def _parts(number: int) -> list[Report]:
    """Return a batch of parts, as uploads every few minutes make them: each part of one window, four windows in all."""
    windows = [NOW + FIVE * (4 * number + at) for at in range(4)]
    return [
        Report(FOO, "", f"s3://lake/foo/part-{number}-{at}", ((windows[at % 4], 100),), offsets='{"0": [10, 20]}')
        for at in range(BATCH)
    ]


def _row(new: Report) -> dict[str, Any]:
    names = ("sub_partition", "tier", "part", "version", "digest", "records", "first", "last", "offsets")
    more = {name: getattr(new, name) for name in (*names, "snapshot", "batch", "schema")}
    return {"dataset": str(BARE), **more, "windows": new.counts, "by": None, "at": NOW}


class Reporting:
    """Batches of new parts, and bare rows with the same content."""

    def __init__(self, url: str) -> None:
        self.ledger = open_ledger(url)
        self._numbers = count()
        self._new: Sequence[list[Report]] = ()
        self._rows: Sequence[list[dict[str, Any]]] = ()

    def prepare(self) -> None:
        """Make parts that differ from earlier ones."""
        numbers = [next(self._numbers) for _ in range(BATCHES)]
        self._new = [_parts(number) for number in numbers]
        self._rows = [[_row(each) for each in _parts(number)] for number in numbers]

    def report(self) -> None:
        """Report the batches, in a transaction each."""
        for each in self._new:
            count_reports.report(self.ledger, each, NOW)

    def insert(self) -> None:
        """Insert the prepared rows, in as many transactions."""
        for each in self._rows:
            with self.ledger.write() as connection:
                connection.execute(sa.insert(report), each)


@contextmanager
def reported(databases: Databases) -> Iterator[Pair]:
    """Compare reports of parts with a bare batched insert of the same rows."""
    world = Reporting(databases())
    yield Pair(world.report, world.insert, world.prepare)


@contextmanager
def published_beside(databases: Databases) -> Iterator[Pair]:
    """Compare publications in the log beside a process that reports without a pause with those without one."""
    ledgers = [open_ledger(databases()) for _ in range(2)]
    ended, numbers = Event(), count()
    reporter = Thread(target=partial(_report_on, ledgers[0], ended))
    reporter.start()
    try:
        yield Pair(*(partial(_publish, each, numbers) for each in ledgers))
    finally:
        ended.set()
        reporter.join()


def _report_on(ledger: Ledger, ended: Event) -> None:
    for number in count():
        if ended.is_set():
            return
        count_reports.report(ledger, _parts(number), NOW)


def _publish(ledger: Ledger, numbers: Iterator[int]) -> None:
    for _ in range(20):
        with ledger.change() as connection:
            partition = Partition(FOO, f"2026-01-01/{next(numbers)}")
            update_changes.insert(connection, partition, "20260101.120000", updates.FOREIGN, updates.PUBLISHED, NOW)


class Days:
    """Two days of four regions: 2,304 windows of 5 minutes, and all larger windows above them."""

    def __init__(self, url: str, history: int = 0) -> None:
        self.ledger = open_ledger(url)
        self._days = count()
        window_queries.declare(self.ledger, {FOO: TRACKED}, NOW)
        for _ in range(history):
            self.prepare()
            self.roll_up()

    def prepare(self) -> None:
        """Report the sources of the next two days; only the parts are left to report."""
        first = date(2026, 1, 1) + timedelta(days=2 * next(self._days))
        starts = {sub: self._starts(sub, first) for sub in TRACKED.members}
        for sub, each in starts.items():
            told = [Report(FOO, sub, str(at), ((at, 100),), tier="kafka") for at in each]
            count_reports.report(self.ledger, told, NOW)
        self._parts = [
            Report(FOO, sub, f"{first}-{at}", tuple((start, 100) for start in each[at::PARTS]))
            for sub, each in starts.items()
            for at in range(PARTS)
        ]
        with self.ledger.read() as connection:
            self._before = log.last(connection)

    def _starts(self, sub_partition: str, first: date) -> list[datetime]:
        day, next_day = (TRACKED.window(sub_partition, "day", f"{first + timedelta(days=each)}") for each in (0, 1))
        return [day.start + FIVE * at for at in range((next_day.end - day.start) // FIVE)]

    def roll_up(self) -> None:
        """Report the parts: every window, small or large, becomes complete, and its change is logged."""
        count_reports.report(self.ledger, self._parts, NOW)

    def insert(self) -> None:
        """Insert bare copies of the resulting rows, and roll back."""
        with self.ledger.change() as connection:
            told = connection.execute(sa.select(change).where(change.c.sequence > self._before)).mappings().all()
            kept = connection.execute(sa.select(window).where(window.c.changed > self._before)).mappings().all()
            connection.execute(sa.insert(change), [{**row, "sequence": row["sequence"] + 10**9} for row in told])
            connection.execute(sa.insert(window), [{**row, "dataset": str(BARE)} for row in kept])
            connection.rollback()


@contextmanager
def rolled_up(databases: Databases) -> Iterator[Pair]:
    """Compare the completion of 2,304 windows, with all larger ones, with a bare insert of the resulting rows."""
    world = Days(databases())
    yield Pair(world.roll_up, world.insert, world.prepare)


@contextmanager
def rolled_up_after(databases: Databases, history: int) -> Iterator[Pair]:
    """Compare the roll-up after many days of history with one after a single day."""
    large, small = Days(databases(), history), Days(databases(), 1)
    yield Pair(large.roll_up, small.roll_up, lambda: [each.prepare() for each in (large, small)])


def _on(suffix: str, where: str, databases: Callable[[], AbstractContextManager[Databases]]) -> list[Benchmark]:
    def case(name: str, what: str, floor: str, goal: Goal, make: Callable[..., Any], *options: Any) -> Benchmark:
        return Benchmark(
            f"{name}{suffix}", f"{what}{where}", floor, goal, 12, 4, partial(opened, databases, make, *options)
        )

    bare = "a bare batched insert of the same rows"
    return [
        case("state-reports", "10 times 1,000 parts reported", bare, Goal(2), reported),
        case("state-publish", "20 publications beside a reporter", "without one", Goal(4), published_beside),
        case("state-rollup", "2,304 windows rolled up and logged", bare, Goal(0.2, "s"), rolled_up),
        case("state-history", "the same after 60 days", "after 2", Goal(1.3), rolled_up_after, 30),
    ]


BENCHMARKS = [*_on("", "", sqlite), *_on("-pg", ", on PostgreSQL", postgresql)]
