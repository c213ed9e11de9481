"""Comparison of ingested offsets with each other, and with the offsets that sources report for a window.

The parts and sources of a window name offsets. Every offset from the least to the greatest named offset must be in some
part. This part may belong to any window. Within the window itself, at most one part may hold an offset. A window whose
parts name no offsets is not compared.

Stored numbers are sums, so the order of reports does not matter. The table `coverage` has for each topic partition the
number of parts that hold an offset. The table `window_offsets` has the offsets that a window names. A report changes
the rows of its own ranges. So it affects the windows that it names, and all windows whose offsets became covered or
uncovered.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import INGESTED
from feed_assets.core.feeds import Feed
from feed_assets.core.offsets import OffsetProblems, Range, Steps, by_window, common_ranges, compared, hull_of, joined
from feed_assets.core.reports import windows_of
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import bulk, key_tables
from feed_assets.ledger.tables import coverage, report, window_offsets

AddressOf = Callable[[str, datetime], WindowAddress]
"""Function that returns the base window of a sub-partition with a given start."""

_Line = tuple[str, str]
"""A sub-partition, and a partition of its topic."""
_LEVEL = 4
"""Number of bits for each level.

Windows are grouped into levels by the length of their offset range. A range of level n is shorter than `2 ** (n *
_LEVEL)`.
"""
_LEVELS = range(64 // _LEVEL + 1)


@dataclass(frozen=True)
class OffsetChange:
    """Offsets that a report about a window adds (`sign` 1) or takes back (`sign` -1)."""

    sub_partition: str
    tier: str
    offsets: str | None
    windows: Mapping[datetime, int]
    sign: int = 1


@dataclass
class _Named:
    """The offsets of one topic partition that the reports about a window name.

    `parts` has the offsets of ingested records, `sources` the offsets that each tier counted at the source.
    """

    parts: Steps = field(default_factory=Steps)
    sources: dict[str, Steps] = field(default_factory=dict[str, Steps])

    def add(self, tier: str, added: Range, sign: int) -> None:
        (self.parts if tier == INGESTED else self.sources.setdefault(tier, Steps())).add(added, sign)

    def merge(self, other: "_Named") -> None:
        self.parts.merge(other.parts)
        for tier, steps in other.sources.items():
            self.sources.setdefault(tier, Steps()).merge(steps)

    def hull(self, tiers: Collection[str] = ()) -> Range | None:
        """Return the first and last offset that the reports name.

        Reports of ingested parts always count. If `tiers` is not empty, only these sources count.
        """
        counted_steps = (steps for tier, steps in self.sources.items() if not tiers or tier in tiers)
        return hull_of([self.parts.hull, *(steps.hull for steps in counted_steps)])


_Windows = dict[WindowAddress, dict[str, _Named]]


def record(
    connection: sa.Connection, dataset: Feed, tracked: Tracked, changes: Iterable[OffsetChange], address_of: AddressOf
) -> dict[WindowAddress, OffsetProblems]:
    """Store the offsets of reports. Return the offset problems of each window whose problems may have changed.

    The transaction must hold the lock of the dataset.
    """
    changes = [each for each in changes if each.offsets]
    if not changes:
        return {}
    moved = _cover(connection, dataset, _covered(changes))
    added = _added(changes, address_of)
    near = _near(connection, dataset, moved)
    windows = _stored(connection, dataset, {*added, *near})
    for at, named in added.items():
        for partition, new in named.items():
            windows.setdefault(at, {}).setdefault(partition, _Named()).merge(new)
    _write(connection, added, windows)
    return _compared(connection, dataset, tracked, {at: windows.get(at, {}) for at in {*added, *near}})


def again(connection: sa.Connection, dataset: Feed, tracked: Tracked) -> dict[WindowAddress, OffsetProblems]:
    """Compare the offsets of every window of a dataset, after a change of its declaration."""
    rows = connection.execute(sa.select(window_offsets).where(window_offsets.c.dataset == str(dataset)))
    return _compared(connection, dataset, tracked, _loaded(dataset, tracked.base, rows))


def rebuild(
    connection: sa.Connection, dataset: Feed, tracked: Tracked, address_of: AddressOf
) -> dict[WindowAddress, OffsetProblems]:
    """Store the offsets of each window again from all reports, after a change of the base grain."""
    connection.execute(sa.delete(window_offsets).where(window_offsets.c.dataset == str(dataset)))
    columns = (report.c[name] for name in ("sub_partition", "tier", "offsets", "windows"))
    of_dataset = (report.c.dataset == str(dataset)) & report.c.offsets.is_not(None)
    rows = connection.execute(sa.select(*columns).where(of_dataset)).all()
    changes = [OffsetChange(each.sub_partition, each.tier, each.offsets, windows_of(each.windows)) for each in rows]
    added = _added(changes, address_of)
    _write(connection, added, added)
    return _compared(connection, dataset, tracked, added)


def gaps(connection: sa.Connection, tracked: Tracked, at: WindowAddress) -> dict[str, list[Range]]:
    """Return all missing offsets of a window, by partition."""
    windows = _stored(connection, at.dataset, [at])
    return _wrong(connection, at.dataset, tracked, windows)[at][0] if at in windows else {}


def _covered(changes: Iterable[OffsetChange]) -> dict[_Line, Steps]:
    """Return, by topic partition, the changes in the number of ingested parts that hold each offset."""
    steps_by_line: dict[_Line, Steps] = {}
    for each in changes:
        for partition, added in common_ranges(each.offsets).items() if each.tier == INGESTED else ():
            steps_by_line.setdefault((each.sub_partition, partition), Steps()).add(added, each.sign)
    return steps_by_line


def _added(changes: Iterable[OffsetChange], address_of: AddressOf) -> _Windows:
    windows: _Windows = {}
    for each in changes:
        for start, ranges in by_window(each.offsets, each.windows).items():
            named = windows.setdefault(address_of(each.sub_partition, start), {})
            for partition, added in ranges.items():
                named.setdefault(partition, _Named()).add(each.tier, added, each.sign)
    return windows


def _cover(connection: sa.Connection, dataset: Feed, added: Mapping[_Line, Steps]) -> list[tuple[_Line, Range]]:
    """Store for each offset how many ingested parts hold it. Return the ranges that became covered or uncovered."""
    stretches = {line: _runs(steps) for line, steps in added.items()}
    spans = [(line, first - 1, last + 1) for line, runs in stretches.items() for first, last in runs]
    depths = _depths(connection, dataset, spans)
    moved: list[tuple[_Line, Range]] = []
    rows: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    for line, runs in stretches.items():
        key = {"dataset": str(dataset), "sub_partition": line[0], "partition": line[1]}
        for first, last in runs:
            changed = _Changed(depths.get(line, {}), added[line], first, last)
            rows += [{**key, "offset": offset, "depth": depth} for offset, depth in changed.kept.items()]
            gone += [{f"its_{name}": value for name, value in (*key.items(), ("offset", at))} for at in changed.gone]
            moved += [(line, each) for each in changed.moved]
    bulk.insert(connection, coverage, rows, ("depth",))
    if gone:
        key_conditions = (column == sa.bindparam(f"its_{column.name}") for column in coverage.primary_key)
        connection.execute(sa.delete(coverage).where(*key_conditions), gone)
    return moved


def _runs(steps: Steps) -> list[Range]:
    """Return the ranges of offsets for which these steps change the number of parts."""
    return joined((first, last) for first, last, depth in steps.stretches() if depth)


class _Changed:
    """Depths (numbers of parts that hold an offset) in a range, and the ranges that became covered or uncovered."""

    def __init__(self, depths: Mapping[int, int], added: Steps, first: int, last: int) -> None:
        self.kept: dict[int, int] = {}
        self.gone: list[int] = []
        before = {offset: depth for offset, depth in depths.items() if offset < first}
        depth = old = before[max(before)] if before else 0
        added_depth, moved = 0, list[Range]()
        places = {offset for offset in {*depths, *added.by_offset} if first <= offset <= last + 1}
        ordered = sorted(places)
        for at, offset in enumerate(ordered):
            old = depths.get(offset, old)
            added_depth += added.by_offset.get(offset, 0)
            if old + added_depth != depth:
                depth = self.kept[offset] = old + added_depth
            elif offset in depths:
                self.gone.append(offset)
            if offset <= last and bool(old) is not bool(depth):
                moved.append((offset, ordered[at + 1] - 1))
        self.moved = joined(moved)


def _depths(
    connection: sa.Connection, dataset: Feed, spans: Iterable[tuple[_Line, int, int]]
) -> dict[_Line, dict[int, int]]:
    """Return the depths of each topic partition: how many parts hold an offset.

    For each range, return the depth at every offset where the depth changes, and at the last such offset before the
    range. Cost: one index lookup for each range.
    """
    values = [(str(dataset), *line, first, last) for line, first, last in spans]
    if not values:
        return {}
    names = ("dataset", "sub_partition", "partition", "first", "last")
    ranges = key_tables.rows(connection, names, values)
    first, last = (sa.cast(ranges.c[name], sa.BigInteger) for name in ("first", "last"))
    lower = coverage.alias()
    before = sa.select(sa.func.max(lower.c.offset)).where(_on_line(lower, ranges), lower.c.offset <= first)
    begins = sa.func.coalesce(before.correlate(ranges).scalar_subquery(), first)
    bounds = sa.select(*(ranges.c[name] for name in names[:3]), begins.label("first"), last.label("last")).cte("bounds")
    condition = _on_line(coverage, bounds) & coverage.c.offset.between(bounds.c.first, bounds.c.last)
    columns = (coverage.c[name] for name in ("sub_partition", "partition", "offset", "depth"))
    depths_by_line: dict[_Line, dict[int, int]] = {}
    for row in connection.execute(sa.select(*columns).join(bounds, condition)):
        depths_by_line.setdefault((row.sub_partition, row.partition), {})[row.offset] = row.depth
    return depths_by_line


def _on_line(table: sa.FromClause, key_table: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(
        sa.true(), *(table.c[name] == key_table.c[name] for name in ("dataset", "sub_partition", "partition"))
    )


def _near(connection: sa.Connection, dataset: Feed, moved: Iterable[tuple[_Line, Range]]) -> set[WindowAddress]:
    """Return the windows whose offset range, from the least to the greatest named offset, overlaps one of these ranges.

    Cost: one index lookup for each range and level.
    """
    values = [
        (str(dataset), *line, level, max(first - (1 << level * _LEVEL), -1), first, last)
        for line, (first, last) in moved
        for level in _LEVELS
    ]
    if not values:
        return set()
    key_table = key_tables.rows(
        connection, ("dataset", "sub_partition", "partition", "level", "least", "first", "last"), values
    )
    least, first, last = (sa.cast(key_table.c[name], sa.BigInteger) for name in ("least", "first", "last"))
    named = window_offsets.c
    reaches = (named.low > least) & (named.low <= last) & (named.high >= first)
    is_near = _on_line(window_offsets, key_table) & (named.level == sa.cast(key_table.c.level, sa.BigInteger)) & reaches
    rows = connection.execute(
        sa.select(named.sub_partition, named.grain, named.key).join(key_table, is_near).distinct()
    )
    return {WindowAddress(dataset, *row) for row in rows}


def _stored(connection: sa.Connection, dataset: Feed, addresses: Iterable[WindowAddress]) -> _Windows:
    values = [(str(dataset), at.sub_partition, at.grain, at.key) for at in addresses]
    rows = key_tables.matching(connection, window_offsets, values, ("dataset", "sub_partition", "grain", "key"))
    return _loaded(dataset, None, rows)


def _loaded(dataset: Feed, grain: str | None, rows: Iterable[Any]) -> _Windows:
    windows: _Windows = {}
    for row in rows:
        if grain in (None, row.grain):
            at = WindowAddress(dataset, row.sub_partition, row.grain, row.key)
            windows.setdefault(at, {})[row.partition] = _named_by(row.parts, row.sources)
    return windows


def _named_by(parts: str | None, sources: str | None) -> _Named:
    by_tier: Mapping[str, Sequence[tuple[int, int]]] = json.loads(sources) if sources else {}
    return _Named(Steps.of(parts), {tier: Steps(dict(steps)) for tier, steps in by_tier.items()})


def _write(connection: sa.Connection, changed: Mapping[WindowAddress, Iterable[str]], windows: _Windows) -> None:
    """Write the offsets that reports name for windows, by topic partition. Delete rows without offsets."""
    rows: list[dict[str, Any]] = []
    gone: list[dict[str, Any]] = []
    for at, partitions in sorted(changed.items()):
        for partition in sorted(partitions):
            named = windows[at][partition]
            key = {"dataset": str(at.dataset), "sub_partition": at.sub_partition, "grain": at.grain, "key": at.key}
            key["partition"] = partition
            if hull := named.hull():
                rows.append({**key, **_values(named, hull)})
            else:
                gone.append({f"its_{name}": value for name, value in key.items()})
    bulk.insert(connection, window_offsets, rows, ("low", "high", "level", "parts", "sources"))
    if gone:
        key_conditions = (column == sa.bindparam(f"its_{column.name}") for column in window_offsets.primary_key)
        connection.execute(sa.delete(window_offsets).where(*key_conditions), gone)


def _values(named: _Named, hull: Range) -> dict[str, Any]:
    low, high = hull
    sources = {tier: sorted(steps.by_offset.items()) for tier, steps in named.sources.items() if steps.by_offset}
    return {
        "low": low,
        "high": high,
        "level": -(-(high - low).bit_length() // _LEVEL),
        "parts": named.parts.text if named.parts.by_offset else None,
        "sources": json.dumps(sources, sort_keys=True) if sources else None,
    }


def _compared(
    connection: sa.Connection, dataset: Feed, tracked: Tracked, windows: _Windows
) -> dict[WindowAddress, OffsetProblems]:
    """Return what is now wrong with the offsets that reports name for each window."""
    return {at: compared(*ranges) for at, ranges in _wrong(connection, dataset, tracked, windows).items()}


_Wrong = tuple[dict[str, list[Range]], dict[str, list[Range]]]
"""Ranges that no part holds, and ranges that several parts hold, by partition."""


def _wrong(
    connection: sa.Connection, dataset: Feed, tracked: Tracked, windows: _Windows
) -> dict[WindowAddress, _Wrong]:
    hulls: dict[WindowAddress, dict[str, Range]] = {}
    for at, named in windows.items():
        has_parts = any(each.parts.by_offset for each in named.values())
        hull_by_partition = (
            {partition: each.hull(tracked.tiers) for partition, each in named.items()} if has_parts else {}
        )
        hulls[at] = {partition: hull for partition, hull in hull_by_partition.items() if hull}
    spans = {((at.sub_partition, name), *hull) for at, named in hulls.items() for name, hull in named.items()}
    depths = _depths(connection, dataset, sorted(spans))
    return {
        at: (
            {name: uncovered(depths.get((at.sub_partition, name), {}), *hull) for name, hull in hulls[at].items()},
            {name: each.parts.doubled for name, each in named.items()},
        )
        for at, named in windows.items()
    }


def uncovered(depths: Mapping[int, int], first: int, last: int) -> list[Range]:
    """Return the ranges of offsets between `first` and `last` that no part holds.

    `depths` has each offset where the number of parts changes, with the number of parts from this offset on.
    """
    before = [offset for offset in depths if offset <= first]
    depth = depths[max(before)] if before else 0
    places = [first, *sorted(offset for offset in depths if first < offset <= last), last + 1]
    ranges: list[Range] = []
    for at, offset in enumerate(places[:-1]):
        depth = depths.get(offset, depth) if at else depth
        if not depth:
            ranges.append((offset, places[at + 1] - 1))
    return joined(ranges)
