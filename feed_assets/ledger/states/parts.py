"""The parts of windows: what each contributed, and missing or doubled data."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

import sqlalchemy as sa

from feed_assets.core.completeness import DONE, INGESTED
from feed_assets.core.errors import InvalidName
from feed_assets.core.feeds import Feed
from feed_assets.core.offsets import Range, Ranges, by_window
from feed_assets.core.reports import FOLDED, key_of, version_shown, window_named, windows_of
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress, window_of
from feed_assets.ledger.states import offset_checks, window_policies
from feed_assets.ledger.states.nested_windows import inside
from feed_assets.ledger.states.state_views import PartitionState, explained
from feed_assets.ledger.states.window_rows import WindowRow, empty, rows
from feed_assets.ledger.tables import report


@dataclass(frozen=True)
class Part:
    """The content of one report about a window. A report counts a part: a file or range of records.

    `records` counts the part's records in the window. `of` is the number of all its records, in all windows; None if
    unknown. Times are UTC.
    """

    sub_partition: str
    tier: str
    part: str
    version: str
    records: int
    of: int | None
    first: datetime | None
    last: datetime | None
    offsets: Mapping[str, Range]
    snapshot: str | None
    batch: str | None
    by: str | None
    at: datetime


@dataclass(frozen=True)
class Missing:
    """Data that a window lacks: a file that the source counts but nobody ingested, or offsets that no part holds.

    `after` is the part that ends before these offsets. `before` is the part that begins after them.
    """

    sub_partition: str
    tier: str | None = None
    part: str | None = None
    records: int | None = None
    partition: str | None = None
    first: int | None = None
    last: int | None = None
    after: str | None = None
    before: str | None = None


@dataclass(frozen=True)
class Twice:
    """Offsets of a topic partition that two parts of one window hold."""

    sub_partition: str
    partition: str
    first: int
    last: int
    parts: tuple[str, str]


@dataclass(frozen=True)
class WindowParts:
    """A window, its parts, and their problems. `folded` is True if old parts were merged, and their names are lost."""

    dataset: str
    sub_partition: str
    grain: str
    partition: str
    state: str
    why: str
    records: int | None
    parts: Sequence[Part] = ()
    more: int = 0
    """Number of parts that are not listed."""
    missing: Sequence[Missing] = ()
    twice: Sequence[Twice] = ()
    folded: bool = False


@dataclass(frozen=True)
class _Share:
    """The content of a report for one base window (of the smallest grain): the number of records, and the offsets."""

    report: Any
    records: int
    ranges: Ranges


@dataclass
class _Base:
    """One of the shown base windows (windows of the smallest grain), with what each report says about it."""

    row: WindowRow
    shares: list[_Share] = field(default_factory=list[_Share])

    @property
    def ingested(self) -> list[_Share]:
        return [each for each in self.shares if each.report.tier == INGESTED]


def parts(connection: sa.Connection, name: Feed, key: str, limit: int) -> tuple[WindowParts, ...]:
    """Return the windows of a dataset with this key, with up to `limit` parts each.

    A part is what one report counted. The cost grows with the number of all reports about the sub-partitions of these
    windows. Raise InvalidName for an unknown key.
    """
    tracked = window_policies.tracked(connection, [name]).get(name) or window_policies.default()
    windows = [each for each in explained(connection, name, key, limit) if each.grain]
    if not windows:
        raise InvalidName(f"{name} {key} is not a window with parts: expected one such as hour@2026-01-01-15:00.")
    return tuple(_of_window(connection, name, tracked, each, limit) for each in windows)


def _of_window(
    connection: sa.Connection, name: Feed, tracked: Tracked, view: PartitionState, limit: int
) -> WindowParts:
    at = WindowAddress(name, view.sub_partition, view.grain, view.partition)
    base = _base(connection, tracked, at)
    missing = [each for one in base for each in _missing(connection, tracked, one)]
    twice = [each for one in base for each in _twice(one)]
    listed = _listed(base)
    return WindowParts(
        dataset=view.dataset,
        sub_partition=view.sub_partition,
        grain=view.grain,
        partition=view.partition,
        state=view.state,
        why=view.why,
        records=view.records,
        parts=listed[:limit],
        more=max(len(listed) - limit, 0),
        missing=[*dict.fromkeys(missing)],
        twice=[*dict.fromkeys(twice)],
        folded=any(one.row.folded for one in base),
    )


def _base(connection: sa.Connection, tracked: Tracked, at: WindowAddress) -> list[_Base]:
    """Return the base windows inside of a window, in order, with their reports."""
    window = tracked.window(at.sub_partition, at.grain, at.key)
    addresses = [each for each in [at, *inside(tracked, at, window)] if each.grain == tracked.base]
    row_by_address = rows(connection, addresses)
    base_by_start = {
        (each.sub_partition, row.start): _Base(row)
        for each in addresses
        if tracked.is_leaf(each.sub_partition, (row := row_by_address.get(each) or empty(tracked, each)).window)
    }
    for each in _reports(connection, at.dataset, base_by_start):
        for start, share in _shares(each, tracked).items():
            if (each.sub_partition, start) in base_by_start:
                base_by_start[each.sub_partition, start].shares.append(share)
    return [base_by_start[each] for each in sorted(base_by_start)]


def _shares(report: Any, tracked: Tracked) -> dict[datetime, _Share]:
    """Return a report's shares by start of the base window. The report may have counts by another grain."""
    counts, zone = windows_of(report.windows), tracked.zone_of(report.sub_partition)
    named = by_window(report.offsets, counts)
    share_by_start: dict[datetime, _Share] = {}
    for start, records in counts.items():
        at = window_of(tracked.base, start, zone).start
        before = share_by_start.get(at, _Share(report, 0, {}))
        share_by_start[at] = _Share(report, before.records + records, _hulls([before.ranges, named.get(start, {})]))
    return share_by_start


def _reports(connection: sa.Connection, name: Feed, windows: Iterable[tuple[str, datetime]]) -> list[Any]:
    """Return the reports that may name the windows.

    Search the texts of the reports for the hour of the windows, or for their days if there are several hours.
    """
    starts = {start for _, start in windows}
    hours, days = ({key_of(start)[:length] for start in starts} for length in (len("2026-01-01-15"), len("2026-01-01")))
    named = sa.or_(*(report.c.windows.contains(f'"{each}') for each in sorted(hours if len(hours) == 1 else days)))
    of_sub_partitions = report.c.sub_partition.in_(sorted({sub_partition for sub_partition, _ in windows}))
    query = sa.select(report).where(report.c.dataset == str(name), of_sub_partitions, report.c.part != FOLDED, named)
    return [*connection.execute(query.order_by(report.c.sub_partition, report.c.tier, report.c.part))]


def _listed(base: Sequence[_Base]) -> list[Part]:
    """Return every part once, with its total records in the windows. Ingested parts are first."""
    part_by_key: dict[tuple[str, str, str], Part] = {}
    for one in base:
        for share in one.shares:
            key = share.report.sub_partition, share.report.tier, share.report.part
            before = part_by_key[key].records if key in part_by_key else 0
            part_by_key[key] = _part(share.report, before + share.records)
    return [part_by_key[key] for key in sorted(part_by_key)]


def _part(each: Any, records: int) -> Part:
    return Part(
        each.sub_partition,
        each.tier,
        each.part,
        version=version_shown(each.version),
        records=records,
        of=each.records,
        first=each.first,
        last=each.last,
        offsets=_hulls(by_window(each.offsets, windows_of(each.windows)).values()),
        snapshot=each.snapshot,
        batch=each.batch,
        by=each.by,
        at=each.at,
    )


def _hulls(named: Iterable[Ranges]) -> Ranges:
    """Return the first and last offset that any of these ranges contains, by topic partition."""
    hull_by_partition: dict[str, Range] = {}
    for ranges in named:
        for partition, (first, last) in ranges.items():
            hull = hull_by_partition.get(partition, (first, last))
            hull_by_partition[partition] = min(first, hull[0]), max(last, hull[1])
    return hull_by_partition


def _missing(connection: sa.Connection, tracked: Tracked, one: _Base) -> list[Missing]:
    sub_partition = one.row.address.sub_partition
    gaps = offset_checks.gaps(connection, tracked, one.row.address) if one.row.uncovered else {}
    missing = [
        Missing(sub_partition, partition=partition, first=first, last=last, after=after, before=before)
        for partition, ranges in sorted(gaps.items())
        for (first, last), (after, before) in _with_neighbours(one, partition, ranges)
    ]
    return [*(_files(tracked, one) if one.row.state not in DONE else ()), *missing]


def _files(tracked: Tracked, one: _Base) -> list[Missing]:
    """Return the files that a tier counts but nobody ingested. Skip tiers whose count is reached."""
    at = one.row.address
    ingested = {each.report.part for each in one.ingested}
    behind = {tier for tier, records in one.row.counts.items() if one.row.records < records}
    return [
        Missing(at.sub_partition, each.report.tier, each.report.part, each.records)
        for each in one.shares
        if each.report.tier in behind
        and each.report.tier in (tracked.tiers or behind)
        and each.report.part not in ingested
        and each.report.part != window_named(one.row.start)
        and each.records
    ]


def _with_neighbours(
    one: _Base, partition: str, gaps: Iterable[Range]
) -> Iterator[tuple[Range, tuple[str | None, str | None]]]:
    """Yield each gap, with the name of the part that ends before the gap, and of the part that begins after the gap."""
    held = [(ranges, each.report.part) for each in one.ingested if (ranges := each.ranges.get(partition))]
    firsts, lasts = (sorted((ranges[end], part) for ranges, part in held) for end in (0, 1))
    for first, last in gaps:
        below, above = bisect_left(lasts, (first, "")), bisect_left(firsts, (last + 1, ""))
        before = lasts[below - 1][1] if below else None
        yield (first, last), (before, firsts[above][1] if above < len(firsts) else None)


def _twice(one: _Base) -> list[Twice]:
    """Return the common offsets of each overlapping pair of parts of a window."""
    if not one.row.doubled:
        return []
    by_partition: dict[str, list[tuple[Range, str]]] = {}
    for each in one.ingested:
        for partition, held in each.ranges.items():
            by_partition.setdefault(partition, []).append((held, each.report.part))
    return [
        Twice(one.row.address.sub_partition, partition, first, last, names)
        for partition, held in sorted(by_partition.items())
        for first, last, names in _overlaps(sorted(held))
    ]


def _overlaps(held: Sequence[tuple[Range, str]]) -> Iterator[tuple[int, int, tuple[str, str]]]:
    """Yield the common range of each pair of overlapping ranges, with the names of both parts.

    `held` is sorted by first offset.
    """
    for number, ((_, last), part) in enumerate(held):
        for (first, end), other in islice(held, number + 1, None):
            if first > last:
                break
            yield first, min(last, end), (part, other)
