"""Offset ranges of a topic's partitions. They show which offsets are in no part, and which are in several parts.

Ranges are stored as steps. A step at an offset is the number of parts that hold this offset, minus the number that hold
the offset before it. Steps can be added and removed in any order. Any number of consecutive parts needs only two steps.

Source: "Data Dependency Driven Orchestration", "the record count and Kafka offset for each part".
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from feed_assets.core.offset_comparison import OffsetProblems
from feed_assets.core.reports import start_at

Range = tuple[int, int]
"""First and last offset of a range."""

Ranges = Mapping[str, Range]
"""Ranges by partition of a topic."""

NAMED = 3
"""Maximum number of ranges that a message names. For further ranges it gives only their number."""


@dataclass
class Steps:
    """The number of ranges that contain each offset. Only its changes from one offset to the next are stored."""

    by_offset: dict[int, int] = field(default_factory=dict[int, int])

    @classmethod
    def of(cls, text: str | None) -> "Steps":
        """Parse the JSON text that the property `text` returned."""
        pairs: list[tuple[int, int]] = json.loads(text) if text else []
        return cls(dict(pairs))

    @property
    def text(self) -> str:
        """Return the steps as JSON for the ledger: pairs of an offset and its change, by offset."""
        return json.dumps(sorted(self.by_offset.items()))

    def add(self, added: Range, sign: int = 1) -> None:
        """Add a range, or with `sign` -1 remove it."""
        first, last = added
        for offset, change in ((first, sign), (last + 1, -sign)):
            self._step(offset, change)

    def merge(self, other: "Steps") -> None:
        """Add the ranges of offsets that `other` holds."""
        for offset, change in other.by_offset.items():
            self._step(offset, change)

    def _step(self, offset: int, change: int) -> None:
        changed = self.by_offset.get(offset, 0) + change
        if changed:
            self.by_offset[offset] = changed
        else:
            self.by_offset.pop(offset, None)

    def stretches(self) -> Iterator[tuple[int, int, int]]:
        """Yield (first offset, last offset, number of ranges that hold these offsets), in order of offsets."""
        depth = 0
        for first, after in pairwise(sorted(self.by_offset)):
            depth += self.by_offset[first]
            yield first, after - 1, depth

    @property
    def hull(self) -> Range | None:
        """Return the first and the last offset that any range contains."""
        return (min(self.by_offset), max(self.by_offset) - 1) if self.by_offset else None

    @property
    def doubled(self) -> list[Range]:
        """Return the ranges of offsets that more than one added range contains."""
        return joined((first, last) for first, last, depth in self.stretches() if depth > 1)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """Join consecutive ranges. `ranges` must be sorted."""
    merged: list[Range] = []
    for first, last in ranges:
        if merged and merged[-1][1] + 1 == first:
            merged[-1] = merged[-1][0], last
        else:
            merged.append((first, last))
    return merged


def hull_of(hulls: Iterable[Range | None]) -> Range | None:
    """Return the first and the last offset of several ranges together."""
    ranges = [each for each in hulls if each]
    return (min(first for first, _ in ranges), max(last for _, last in ranges)) if ranges else None


def common_ranges(offsets: str | None) -> Ranges:
    """Return the ranges of offsets, by topic partition, that a report gives for all of its windows together."""
    loaded: dict[str, Range] | list[Any] = json.loads(offsets) if offsets else {}
    return {} if isinstance(loaded, list) else _ranges(loaded)


def by_window(offsets: str | None, windows: Mapping[datetime, int]) -> dict[datetime, Ranges]:
    """Return the ranges of offsets, by topic partition, that a report gives for each of its windows."""
    loaded: dict[str, Range] | list[tuple[str, dict[str, Range]]] = json.loads(offsets) if offsets else {}
    if isinstance(loaded, list):
        named = {start_at(key): _ranges(ranges) for key, ranges in loaded}
    else:
        named = dict.fromkeys(windows, _ranges(loaded))
    return {start: named[start] for start, records in windows.items() if records and named.get(start)}


def _ranges(loaded: Mapping[str, Iterable[int]]) -> Ranges:
    """Convert offset ranges that were read from JSON: each list becomes a pair."""
    pairs = {name: tuple(each) for name, each in loaded.items()}
    return {name: (pair[0], pair[1]) for name, pair in pairs.items()}


def compared(uncovered: Mapping[str, Iterable[Range]], doubled: Mapping[str, Iterable[Range]]) -> OffsetProblems:
    """Describe, by topic partition, the offsets that are in no part, and the offsets that are in several parts."""
    none = _problem_text(uncovered, "in no part")
    several = _problem_text(doubled, "in several parts")
    return OffsetProblems(none, f"over-counted: {several}" if several else None)


def _problem_text(ranges: Mapping[str, Iterable[Range]], problem: str) -> str | None:
    named = [(name, each) for name in sorted(ranges, key=_in_order) for each in ranges[name]]
    phrases = [
        f"{range_text(each)} of partition {name} {'is' if each[0] == each[1] else 'are'} {problem}"
        for name, each in named
    ]
    suffix = f"; and {len(phrases) - NAMED} more ranges" if len(phrases) > NAMED else ""
    return "; ".join(phrases[:NAMED]) + suffix if phrases else None


def _in_order(name: str) -> tuple[int, str]:
    """Return a sort key for the name of a topic partition. A name that is a number sorts by this number."""
    return (int(name), "") if name.isdecimal() else (-1, name)


def range_text(each: Range) -> str:
    """Describe a range."""
    first, last = each
    return f"offset {first}" if first == last else f"offsets {first}-{last}"
