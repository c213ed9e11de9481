"""Half-open intervals of one table's markers, which events cover and runs read.

Markers are encoded, so they sort as text. The ledger makes the same comparisons in SQL.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """The updates after `start` (None is the beginning) up to and including `end`. `(end, end]` is empty."""

    start: str | None
    end: str

    @property
    def is_empty(self) -> bool:
        """Return whether the interval is empty."""
        return self.start == self.end

    def within(self, other: "Interval") -> bool:
        """Return whether `other` contains this interval. An empty interval counts as a point at its end."""
        return (other.start or "") <= (self.start or "") and self.end <= other.end

    def shares(self, other: "Interval") -> bool:
        """Return whether the intervals overlap."""
        return max(self.start or "", other.start or "") < min(self.end, other.end)

    def union(self, other: "Interval") -> "Interval | None":
        """Return the interval that covers both. Return None if there is a hole between them."""
        low, high = sorted((self, other), key=lambda each: (each.start or "", each.end))
        if low.end < (high.start or ""):
            return None
        return Interval(low.start, max(low.end, high.end))

    def grown(self, other: "Interval", previous: str | None) -> "Interval | None":
        """Return the interval that covers both. Return None if there is a hole between them.

        `other` is the interval of an event, and `previous` is the marker of the event before it. If `other` is empty,
        there are no data between `previous` and `other.end`, so this range is not a hole.
        """
        if other.is_empty and (previous or "") <= self.end < other.end:
            return Interval(self.start, other.end)
        return self.union(other)


def start_of(previous: str | None, marker: str, *, replaces_all: bool, is_empty: bool) -> str | None:
    """Return the marker after which the data of an event begin. None means the beginning of the table.

    `marker` is the event's own marker, and `previous` the marker of the previous event of its partition. An event that
    replaced all data starts at the beginning. An event without new data covers nothing.
    """
    if is_empty:
        return marker
    return None if replaces_all else previous
