"""Benchmarks: each case against a floor, the least work that could give the same answer, or against a peer.

Case and floor are run in turn, so that a busy machine slows both; what counts is their ratio. Of a case that makes runs
CPU seconds and statements are told, too, which no load of the machine changes much.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import NamedTuple

import dagster as dg
import psutil
import sqlalchemy as sa

from feed_assets.settings import settings


def _nothing() -> None:
    """There is nothing to prepare."""


@dataclass(frozen=True)
class Pair:
    """Two functions that give the same answer, and what is done before each round, outside of the measurement."""

    case: Callable[[], object]
    floor: Callable[[], object]
    before: Callable[[], object] = field(default=_nothing)


@dataclass(frozen=True)
class Goal:
    """What a case is to stay below: a ratio to its floor, or seconds."""

    most: float
    unit: str = "x"

    def __str__(self) -> str:
        return f"{self.most:g} {self.unit}"

    def is_met(self, result: "Result") -> bool:
        """Whether the median stays below."""
        return median(result.ratios if self.unit == "x" else result.case) <= self.most


@dataclass(frozen=True)
class Benchmark:
    """What is measured; `prepare` makes the pair and cleans up after it. `rounds` is the number for `--full`.

    A `large` one takes minutes to prepare: it is run with `--full`, or when it is named. `clock` tells seconds,
    by default those on the wall.
    """

    name: str
    what: str
    floor: str
    goal: Goal
    rounds: int
    few: int
    prepare: Callable[[], AbstractContextManager[Pair]]
    large: bool = False
    clock: Callable[[], float] = perf_counter
    tail: int = 0
    """The percentile of the slowest rounds that is to be told, too."""


class Built(NamedTuple):
    """What a case returns that makes runs: how many partitions were built, in how many runs of Dagster."""

    partitions: int
    runs: int


class Requests(NamedTuple):
    """What a case returns that asks a store: how many pages of listings, and how many objects, it asked for."""

    pages: int
    objects: int

    def __str__(self) -> str:
        return f" ({self.pages} LIST, {self.objects} GET)"


class Memory(NamedTuple):
    """Peaks of the resident memory that a case returns, in MB: of the JVM, and of its largest other process."""

    jvm: int
    worker: int

    def __str__(self) -> str:
        return f" (JVM {self.jvm:,} MB, worker {self.worker:,} MB)"


class Cost(NamedTuple):
    """What a call cost besides its time: CPU seconds, of all processes below this one, too, and statements.

    `more` are the requests or the memory that it returns.
    """

    cpu: float
    statements: int
    built: Built | None
    more: Requests | Memory | None


@dataclass(frozen=True)
class Result:
    """Seconds of each round, in order, and what else the case cost in each."""

    case: tuple[float, ...]
    floor: tuple[float, ...]
    costs: tuple[Cost, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times the floor each round's case took."""
        return [case / floor for case, floor in zip(self.case, self.floor, strict=True)]


def tick_once(definitions: dg.Definitions) -> None:
    """Have the home's first tick, which makes its files and does what is done once a day: no part of a build."""
    from feed_assets.cli.loaded_location import open_instance
    from feed_assets.testing import Harness

    with Harness(definitions, open_instance()) as harness:
        harness.run_until_idle()


def seconds(function: Callable[[], object], clock: Callable[[], float] = perf_counter) -> float:
    """How long one call takes."""
    start = clock()
    function()
    return clock() - start


def run(pair: Pair, rounds: int, clock: Callable[[], float] = perf_counter) -> Result:
    """Case and floor in turn, after one round that is not counted."""
    timed = [_round(pair, clock) for _ in range(rounds + 1)][1:]
    case, floor, costs = zip(*timed, strict=True)
    return Result(case, floor, costs)


def _round(pair: Pair, clock: Callable[[], float]) -> tuple[float, float, Cost]:
    pair.before()
    said: list[object] = []
    with _statements() as statements:
        cpu = _cpu()
        case = seconds(lambda: said.append(pair.case()), clock)
        cpu = _cpu() - cpu
    built = said[0] if isinstance(said[0], Built) else None
    more = said[0] if isinstance(said[0], Requests | Memory) else None
    return case, seconds(pair.floor, clock), Cost(cpu, len(statements), built, more)


@contextmanager
def _statements() -> Iterator[list[str]]:
    """What this process asks of databases, Dagster's too."""
    found: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def _cpu() -> float:
    here, total = psutil.Process(), 0.0
    for each in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(each.cpu_times()[:4])  # Its own, and that of children that have ended.
    return total


HEADER = (
    f"{'case':<20}{'ms':>10}{'floor ms':>10}{'ratio':>8}   {'middle half':<15}{'goal':<8}{'':<8}"
    f"{'built':>6}{'runs':>6}{'CPU s':>7}{'SQL':>6}   what, and its floor (CPU and statements for each partition built)"
)


def row(benchmark: Benchmark, result: Result) -> str:
    """One line of the table: medians, and the middle half of the ratios."""
    low, middle, high = quantiles(result.ratios, n=4)
    times = f"{median(result.case) * 1000:10.1f}{median(result.floor) * 1000:10.1f}"
    verdict = "met" if benchmark.goal.is_met(result) else "missed"
    half = f"{low:.2f} to {high:.2f}"
    goal = f"{benchmark.goal!s:<8}{verdict:<8}{_each(result.costs)}"
    what = f"{benchmark.what}{result.costs[-1].more or ''}; {benchmark.floor}"
    return f"{benchmark.name:<20}{times}{middle:8.2f}   {half:<15}{goal}   {what}"


def _each(costs: tuple[Cost, ...]) -> str:
    """Medians for each partition that was built; nothing of a case that builds none."""
    found = [(each.cpu, each.statements, each.built) for each in costs if each.built]
    some = [(*built, cpu / built.partitions, statements / built.partitions) for cpu, statements, built in found]
    if not some:
        return " " * 25
    built, runs, cpu, statements = (median(each) for each in zip(*some, strict=True))
    return f"{built:6.0f}{runs:6.0f}{cpu:7.2f}{statements:6.0f}"


def tail(benchmark: Benchmark, result: Result) -> str:
    """A line below it: its percentile of case and floor."""
    cuts = (quantiles(times, n=100, method="inclusive") for times in (result.case, result.floor))
    case, floor = (each[benchmark.tail - 1] * 1000 for each in cuts)
    return f"{f'{benchmark.name} p{benchmark.tail}':<20}{case:10.1f}{floor:10.1f}{case / floor:8.2f}"


@contextmanager
def at_home(folder: Path, **named: str) -> Iterator[None]:
    """Settings as they are by default in a home of its own, but for those named; the user's are left alone."""
    kept = {name: environ.pop(name) for name in [*environ] if name.startswith("FEED_ASSETS_")}
    before = environ.get("DAGSTER_HOME")
    ours = {f"FEED_ASSETS_{name.upper()}": value for name, value in named.items()}
    environ.update({"DAGSTER_HOME": str(folder), **ours})
    settings.cache_clear()
    try:
        yield
    finally:
        for name in ("DAGSTER_HOME", *ours):
            environ.pop(name)
        environ.update(kept)
        if before is not None:
            environ["DAGSTER_HOME"] = before
        settings.cache_clear()
