"""The figures of the ads domain, computed without Spark and without the product: its output must equal them.

They take the bytes of raw CSVs, so that a test can pass any update that it dropped, late ones too.
"""

import csv
from collections import Counter
from dataclasses import dataclass
from io import StringIO
from math import sqrt

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""

Slot = tuple[str, int, int]
"""Policy, item_id and position."""


@dataclass(frozen=True)
class Figures:
    """Figures of one row of effectiveness."""

    impressions: int
    clicks: int

    @property
    def ctr(self) -> float:
        return self.clicks / self.impressions

    @property
    def ctr_low(self) -> float:
        return wilson(self.clicks, self.impressions)[0]

    @property
    def ctr_high(self) -> float:
        return wilson(self.clicks, self.impressions)[1]


def wilson(clicks: int, impressions: int) -> tuple[float, float]:
    """Return the score interval by its definition: solve for the p whose distance to p̂ is z standard errors of p."""
    n, share, zz = impressions, clicks / impressions, Z95 * Z95
    a, b, c = 1 + zz / n, -(2 * share + zz / n), share * share
    root = sqrt(max(b * b - 4 * a * c, 0.0))
    return max((-b - root) / (2 * a), 0.0), min((-b + root) / (2 * a), 1.0)


def total(shown: bytes, clicked: bytes) -> Figures:
    """Return the figures of one day and campaign."""
    slots = by_slot(shown, clicked).values()
    return Figures(sum(slot.impressions for slot in slots), sum(slot.clicks for slot in slots))


def by_policy(shown: bytes, clicked: bytes) -> dict[str, Figures]:
    """Return the figures of one day and campaign by policy."""
    impressions, clicks = _counts(shown, clicked)
    return _figures(_sums(impressions), _sums(clicks))


def by_slot(shown: bytes, clicked: bytes) -> dict[Slot, Figures]:
    """Return the figures of one day and campaign by policy, item and position."""
    return _figures(*_counts(shown, clicked))


def _counts(shown: bytes, clicked: bytes) -> tuple[Counter[Slot], Counter[Slot]]:
    """Count impressions and clicks of each slot. An id counts once; a click without its impression does not count."""
    slots = {row["impression_id"]: _slot(row) for row in reversed(_rows(shown))}
    ids = {row["impression_id"] for row in _rows(clicked)}
    return Counter(slots.values()), Counter(slots[name] for name in ids & slots.keys())


def _sums(counts: Counter[Slot]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for (policy, _, _), count in counts.items():
        sums[policy] += count
    return sums


def _figures(impressions, clicks):
    return {key: Figures(count, clicks[key]) for key, count in impressions.items()}


def _slot(row: dict[str, str]) -> Slot:
    return row["policy"], int(row["item_id"]), int(row["position"])


def _rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(content.decode(), newline="")))
