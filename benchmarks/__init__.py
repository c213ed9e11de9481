"""Benchmarks: each case against a floor, the least work that could give the same answer.

Case and floor are run in turn, so that a busy machine slows both; what counts is their ratio.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter


@dataclass(frozen=True)
class Pair:
    """Two functions that give the same answer."""

    case: Callable[[], object]
    floor: Callable[[], object]


@dataclass(frozen=True)
class Benchmark:
    """What is measured; `prepare` makes the pair and cleans up after it."""

    name: str
    floor: str
    prepare: Callable[[], AbstractContextManager[Pair]]


@dataclass(frozen=True)
class Result:
    """Seconds of each round, in order."""

    case: tuple[float, ...]
    floor: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """How many times the floor each round's case took."""
        return [case / floor for case, floor in zip(self.case, self.floor, strict=True)]


def seconds(function: Callable[[], object]) -> float:
    """How long one call takes."""
    start = perf_counter()
    function()
    return perf_counter() - start


def run(pair: Pair, rounds: int) -> Result:
    """Case and floor in turn, after one round that is not counted."""
    pair.case(), pair.floor()
    timed = [(seconds(pair.case), seconds(pair.floor)) for _ in range(rounds)]
    return Result(tuple(case for case, _ in timed), tuple(floor for _, floor in timed))


def row(benchmark: Benchmark, result: Result) -> str:
    """One line of the table: medians, and the middle half of the ratios."""
    low, middle, high = quantiles(result.ratios, n=4)
    times = f"{median(result.case) * 1000:10.2f}{median(result.floor) * 1000:10.2f}"
    return f"{benchmark.name:<40}{times}{middle:8.1f}   {low:.1f} to {high:.1f}   {benchmark.floor}"


HEADER = f"{'case':<40}{'ms':>10}{'floor ms':>10}{'ratio':>8}   middle half   floor"
