"""Durations of updates from one table to another, and whether a change of code made them longer.

Source: "Data Orchestration via Events" (2024): trends in the duration from A to B, as a regression analysis with each
code change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

UPDATES_COMPARED = 5
"""Smallest number of updates of a code version for a comparison. The median of fewer updates is mostly chance."""


@dataclass(frozen=True)
class Duration:
    """Seconds that one update took from a table to another. `correlation` is its correlation id at the second table."""

    correlation: str
    partition_key: str
    seconds: float
    code_version: str | None


@dataclass(frozen=True)
class Trend:
    """The durations under one version of the second table's code.

    `change` compares the median with the median of the previous version (`against`): 0.5 means 50 % longer. `change` is
    None if the previous median is 0. Both fields are None for the first version.
    """

    code_version: str | None
    count: int
    median: float
    p95: float
    change: float | None
    against: str | None = None


@dataclass(frozen=True)
class DurationComparison:
    """The newest code version with enough updates, compared with the previous code version that also has enough."""

    new: Trend
    old: Trend

    @property
    def times(self) -> float:
        """Return the ratio of the new version's median to the old one's."""
        return self.new.median / self.old.median

    def __str__(self) -> str:
        new, old = (f"{_named(each)} (median {each.median:.3f} s of {each.count})" for each in (self.new, self.old))
        return f"{new} takes {self.times:.2f} times as long as {old}"


def trend(durations: Iterable[Duration]) -> tuple[Trend, ...]:
    """Return one trend for each code version, ordered by last use: a version that is used again moves to the end."""
    groups: dict[str | None, list[float]] = {}
    for each in durations:
        seconds = groups.pop(each.code_version, list[float]())  # Insert it again, to move it to the end.
        seconds.append(each.seconds)
        groups[each.code_version] = seconds
    trends: list[Trend] = []
    for version, seconds in groups.items():
        middle, last = median(seconds), trends[-1] if trends else None
        change = (middle - last.median) / last.median if last and last.median else None
        trends.append(
            Trend(
                version,
                len(seconds),
                middle,
                p95=_p95(seconds),
                change=change,
                against=last.code_version if last else None,
            )
        )
    return tuple(trends)


def compared(trends: Sequence[Trend], least: int = UPDATES_COMPARED) -> DurationComparison | None:
    """Compare the newest two code versions that have enough updates. Return None if there are fewer than two.

    Skip updates without a code version, and versions whose median is 0.
    """
    enough = [each for each in trends if each.count >= least and each.code_version is not None and each.median > 0]
    return DurationComparison(enough[-1], enough[-2]) if len(enough) > 1 else None


def _named(each: Trend) -> str:
    return f"code {each.code_version}"


def _p95(seconds: list[float]) -> float:
    return quantiles(seconds, n=20, method="inclusive")[-1] if len(seconds) > 1 else seconds[0]
