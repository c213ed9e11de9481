"""Learned resources: runs with more input than usual get more cores, if earlier runs with more input took longer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil
from statistics import median

from feed_assets.core.resources import Resources, bytes_of

LEAST = 5
"""Least number of earlier runs to learn from."""


@dataclass(frozen=True)
class Cost:
    """Cost of an earlier run: the bytes of input that it read, and its core-seconds (duration times cores)."""

    size: int
    core_seconds: float


@dataclass(frozen=True)
class Learned:
    """The resources that a run needs. `why` is the reason if they are more than declared, otherwise ""."""

    resources: Resources
    why: str = ""


def learned(declared: Resources, size: int, costs: Sequence[Cost]) -> Learned:
    """Return the resources of a run that reads `size` bytes, learned from the costs of earlier runs of its dataset.

    The declared cores are for a usual run, which has the median size and cost of the earlier runs. The number of cores
    grows in proportion to the expected cost, but never by a greater factor than the input. Without this limit, idle
    cores, which count as cost, would raise the need from run to run. Each core keeps its declared memory. Never return
    less than declared: even a task with little input needs that much.
    """
    if not declared.learned or len(costs) < LEAST:
        return Learned(declared)
    usual, usual_cost = median(each.size for each in costs), median(each.core_seconds for each in costs)
    growth = min(_expected(size, costs) / usual_cost, size / usual) if usual_cost else 0
    if (cores := ceil(round(declared.cores * growth, 6))) <= declared.cores:
        return Learned(declared)
    why = f"learned from {len(costs)} runs: the input has {_in_mib(size)}, usually {_in_mib(usual)}"
    return Learned(with_cores(declared, cores), why)


def with_cores(declared: Resources, cores: int) -> Resources:
    """Return the declared resources with another number of cores. Each core keeps its declared memory."""
    memory = ceil(bytes_of(declared.memory) * cores / declared.cores) >> 20
    return replace(declared, cores=cores, memory=f"{memory}m")


def _in_mib(size: float) -> str:
    return f"{size / (1 << 20):,.1f} MiB"


def _expected(size: int, costs: Sequence[Cost]) -> float:
    """Return the expected core-seconds for an input, by the line through the median of all slopes (Theil and Sen).

    A few runs that were slow for other reasons do not move this line.
    """
    slopes = [
        (large.core_seconds - small.core_seconds) / (large.size - small.size)
        for small, large in combinations(costs, 2)
        if large.size != small.size
    ]
    slope = max(median(slopes), 0.0) if slopes else 0.0
    return median(each.core_seconds - slope * each.size for each in costs) + slope * size
