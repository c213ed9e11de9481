"""How long updates take from one table to another, and whether a change of code made that longer.

Source: "Data Orchestration via Events" (2024): trends in the duration from A to B, with each code change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True)
class Duration:
    """One update's way from a table to another: by correlation id (the second table's), in seconds."""

    correlation: str
    partition_key: str
    seconds: float
    code_version: str | None


@dataclass(frozen=True)
class Trend:
    """The durations under one version of the second table's code; `change` is against the version before."""

    code_version: str | None
    count: int
    median: float
    p95: float
    change: float | None


def trend(durations: Iterable[Duration]) -> tuple[Trend, ...]:
    """By code version, in the order in which they were first seen; seconds."""
    groups: dict[str | None, list[float]] = {}
    for each in durations:
        groups.setdefault(each.code_version, []).append(each.seconds)
    found: list[Trend] = []
    for version, seconds in groups.items():
        middle = median(seconds)
        before = found[-1].median if found else 0
        change = (middle - before) / before if before else None
        found.append(Trend(version, len(seconds), middle, _p95(seconds), change))
    return tuple(found)


def _p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
