"""Durations of updates from one table to another, and whether a change of code made them longer.

Source: "Data Orchestration via Events" (2024): trends in the duration from A to B, as a regression analysis with each
code change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

UPDATES_COMPARED = 5
"""Updates of a version that suffice to compare it: the median of fewer is chance."""


@dataclass(frozen=True)
class Duration:
    """One update's way from a table to another: by correlation id (the second table's), in seconds."""

    correlation: str
    partition_key: str
    seconds: float
    code_version: str | None


@dataclass(frozen=True)
class Trend:
    """The durations under one version of the second table's code.

    `change` of the median is against the version before, `against`: 0.5 is half as long again. None for the first.
    """

    code_version: str | None
    count: int
    median: float
    p95: float
    change: float | None
    against: str | None = None


@dataclass(frozen=True)
class DurationComparison:
    """The newest version with enough updates, the last one before it that has them, and how much longer it takes."""

    new: Trend
    old: Trend

    @property
    def times(self) -> float:
        """Return how many times as long the new version takes, by the medians."""
        return self.new.median / self.old.median

    def __str__(self) -> str:
        new, old = (f"{_named(each)} (median {each.median:.3f} s of {each.count})" for each in (self.new, self.old))
        return f"{new} takes {self.times:.2f} times as long as {old}"


def trend(durations: Iterable[Duration]) -> tuple[Trend, ...]:
    """Return trends by code version, in the order in which these were last seen: a version used again is at the end."""
    groups: dict[str | None, list[float]] = {}
    for each in durations:
        seconds = groups.pop(each.code_version, list[float]())  # Put in again: at the end.
        seconds.append(each.seconds)
        groups[each.code_version] = seconds
    trends: list[Trend] = []
    for version, seconds in groups.items():
        middle, last = median(seconds), trends[-1] if trends else None
        change = (middle - last.median) / last.median if last and last.median else None
        trends.append(Trend(version, len(seconds), middle, _p95(seconds), change, last.code_version if last else None))
    return tuple(trends)


def compared(trends: Sequence[Trend], least: int = UPDATES_COMPARED) -> DurationComparison | None:
    """Compare the newest version with the one before it, among those with enough updates; None if there are no two.

    Skip updates that no code made, and versions whose median is 0.
    """
    enough = [each for each in trends if each.count >= least and each.code_version is not None and each.median > 0]
    return DurationComparison(enough[-1], enough[-2]) if len(enough) > 1 else None


def _named(each: Trend) -> str:
    return f"code {each.code_version}"


def _p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
