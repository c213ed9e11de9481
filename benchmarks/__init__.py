"""Benchmarks: each case against a floor, the least work that could give the same answer, or against a peer.

Case and floor are run in turn, so that a busy machine slows both; their ratio is the result. For a case that makes
runs the table also shows CPU seconds and SQL statements, which hardly depend on the load of the machine.
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
    """Do nothing: the default of `Pair.before`."""


@dataclass(frozen=True)
class Pair:
    """Two functions that give the same answer, and the preparation of each round, which is not measured."""

    case: Callable[[], object]
    floor: Callable[[], object]
    before: Callable[[], object] = field(default=_nothing)


@dataclass(frozen=True)
class Goal:
    """Upper limit of a case: a ratio to its floor, or seconds."""

    most: float
    unit: str = "x"

    def __str__(self) -> str:
        return f"{self.most:g} {self.unit}"

    def is_met(self, result: "Result") -> bool:
        """Return True if the median stays within the limit."""
        return median(result.ratios if self.unit == "x" else result.case) <= self.most


@dataclass(frozen=True)
class Benchmark:
    """One case with its floor and goal; `prepare` makes the pair and cleans up after it.

    `rounds` is the number for a plain run and for `--full`. A `large` case takes minutes to prepare: it runs with
    `--full`, or when it is named. `clock` returns seconds, by default wall-clock time.
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
    """Percentile of the slowest rounds that is printed too; 0 for none."""


class Built(NamedTuple):
    """Return value of a case that makes runs: number of partitions built, and of Dagster runs that built them."""

    partitions: int
    runs: int


class Requests(NamedTuple):
    """Return value of a case that reads a store: number of listing pages and of objects it requested."""

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


class Sorting(NamedTuple):
    """What a case that sorts returns: the largest memory of a Spark stage, and of its floor, in MB, and CPU per GB."""

    peak: float
    floor: float
    cpu_per_gb: float

    def __str__(self) -> str:
        return f" ({self.peak:,.1f} MB at most, {self.floor:,.1f} MB in the floor; {self.cpu_per_gb:,.0f} CPU s per GB)"


class Cost(NamedTuple):
    """Cost of a call besides its time: CPU seconds, including child processes, and SQL statements.

    `more` holds the requests, the memory or the sorting that the call returns.
    """

    cpu: float
    statements: int
    built: Built | None
    more: Requests | Memory | Sorting | None


@dataclass(frozen=True)
class Result:
    """Seconds of each round, in order, and the other costs of the case in each."""

    case: tuple[float, ...]
    floor: tuple[float, ...]
    costs: tuple[Cost, ...]

    @property
    def ratios(self) -> list[float]:
        """Return the duration of each case as a multiple of its floor."""
        return [case / floor for case, floor in zip(self.case, self.floor, strict=True)]


def tick_once(definitions: dg.Definitions) -> None:
    """Run the first tick of a home, which creates its files and does the daily work: neither is part of a build."""
    from feed_assets.cli.loaded_location import open_instance
    from feed_assets.testing import Harness

    with Harness(definitions, open_instance()) as harness:
        harness.run_until_idle()


def seconds(function: Callable[[], object], clock: Callable[[], float] = perf_counter) -> float:
    """Return the duration of one call."""
    start = clock()
    function()
    return clock() - start


def run(pair: Pair, rounds: int, clock: Callable[[], float] = perf_counter) -> Result:
    """Run case and floor in turn, after one round that is not counted."""
    timed = [_round(pair, clock) for _ in range(rounds + 1)][1:]
    case, floor, costs = zip(*timed, strict=True)
    return Result(case, floor, costs)


def _round(pair: Pair, clock: Callable[[], float]) -> tuple[float, float, Cost]:
    pair.before()
    said: list[object] = []
    with executed_statements() as statements:
        cpu = cpu_seconds()
        case = seconds(lambda: said.append(pair.case()), clock)
        cpu = cpu_seconds() - cpu
    built = said[0] if isinstance(said[0], Built) else None
    more = said[0] if isinstance(said[0], Requests | Memory | Sorting) else None
    return case, seconds(pair.floor, clock), Cost(cpu, len(statements), built, more)


@contextmanager
def executed_statements() -> Iterator[list[str]]:
    """Record the SQL statements of this process, Dagster's included."""
    found: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all processes that it started."""
    return sum(psutil.Process().cpu_times()[:4]) + cpu_of_children()  # Its own CPU time, and that of ended children.


def cpu_of_children() -> float:
    """Return the CPU time of all child processes that live, and of the ended ones that those started."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:4])
    return total


HEADER = (
    f"{'case':<20}{'ms':>10}{'floor ms':>10}{'ratio':>8}   {'middle half':<15}{'goal':<8}{'':<8}"
    f"{'built':>6}{'runs':>6}{'CPU s':>7}{'SQL':>6}   what, and its floor (CPU and statements for each partition built)"
)


def row(benchmark: Benchmark, result: Result) -> str:
    """Return one line of the table: medians, and the middle half of the ratios."""
    low, middle, high = quantiles(result.ratios, n=4)
    times = f"{median(result.case) * 1000:10.1f}{median(result.floor) * 1000:10.1f}"
    verdict = "met" if benchmark.goal.is_met(result) else "missed"
    half = f"{low:.2f} to {high:.2f}"
    goal = f"{benchmark.goal!s:<8}{verdict:<8}{_each(result.costs)}"
    what = f"{benchmark.what}{result.costs[-1].more or ''}; {benchmark.floor}"
    return f"{benchmark.name:<20}{times}{middle:8.2f}   {half:<15}{goal}   {what}"


def _each(costs: tuple[Cost, ...]) -> str:
    """Return medians for each built partition; blanks for a case that builds none."""
    found = [(each.cpu, each.statements, each.built) for each in costs if each.built]
    some = [(*built, cpu / built.partitions, statements / built.partitions) for cpu, statements, built in found]
    if not some:
        return " " * 25
    built, runs, cpu, statements = (median(each) for each in zip(*some, strict=True))
    return f"{built:6.0f}{runs:6.0f}{cpu:7.2f}{statements:6.0f}"


def tail(benchmark: Benchmark, result: Result) -> str:
    """Return the line below a row: a percentile of case and floor."""
    cuts = (quantiles(times, n=100, method="inclusive") for times in (result.case, result.floor))
    case, floor = (each[benchmark.tail - 1] * 1000 for each in cuts)
    return f"{f'{benchmark.name} p{benchmark.tail}':<20}{case:10.1f}{floor:10.1f}{case / floor:8.2f}"


@contextmanager
def at_home(folder: Path, **named: str) -> Iterator[None]:
    """Use default settings in a separate home, except those named; restore the user's settings afterwards."""
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
