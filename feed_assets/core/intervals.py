"""Half-open intervals of one table's markers: what an event covers, and what a run reads.

Markers are encoded, so that they sort as text does; the ledger compares the same two columns in SQL.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The updates after `start` (None is the beginning) up to `end`, which counts; `(end, end]` is empty."""

    start: str | None
    end: str

    @property
    def is_empty(self) -> bool:
        """Return whether nothing lies in it."""
        return self.start == self.end

    def within(self, other: "Interval") -> bool:
        """Return whether all of it lies in another one; an empty one lies where its end does."""
        return (other.start or "") <= (self.start or "") and self.end <= other.end

    def shares(self, other: "Interval") -> bool:
        """Return whether something lies in both."""
        return max(self.start or "", other.start or "") < min(self.end, other.end)

    def union(self, other: "Interval") -> "Interval | None":
        """Return both as one; None if there is a hole between them."""
        low, high = sorted((self, other), key=lambda each: (each.start or "", each.end))
        if low.end < (high.start or ""):
            return None
        return Interval(low.start, max(low.end, high.end))

    def grown(self, other: "Interval", previous: str | None) -> "Interval | None":
        """Return both as one; None if there is a hole. If the other one is empty, so is `(previous, other.end]`."""
        if other.is_empty and (previous or "") <= self.end < other.end:
            return Interval(self.start, other.end)
        return self.union(other)


def start_of(previous: str | None, marker: str, *, replaces_all: bool, is_empty: bool) -> str | None:
    """Return after which marker an event's data begin; `previous` is the marker before it in its table's partition.

    An event that replaced all data begins at the beginning, and one without new data covers nothing.
    """
    if is_empty:
        return marker
    return None if replaces_all else previous
