"""The parts of windows: what each contributed, and what is missing or there twice."""

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
from feed_assets.ledger.states.flags import inside
from feed_assets.ledger.states.state_views import PartitionState, explained
from feed_assets.ledger.states.window_rows import WindowRow, empty, rows
from feed_assets.ledger.tables import report


@dataclass(frozen=True)
class Part:
    """One report about a window.

    `records` are those of the window, `of` those of the whole part, if it says so. Times are UTC.
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
    """One thing that a window lacks: a file that a tier counts and nobody ingested, or offsets that no part holds.

    `after` and `before` are the parts next to these offsets, of those that the window has.
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
    """Offsets of a partition that two parts of one window hold."""

    sub_partition: str
    partition: str
    first: int
    last: int
    parts: tuple[str, str]


@dataclass(frozen=True)
class WindowParts:
    """A window, its parts, and what is wrong with them. `folded`: older parts are one row, whose names are not kept."""

    dataset: str
    sub_partition: str
    grain: str
    partition: str
    state: str
    why: str
    records: int | None
    parts: Sequence[Part] = ()
    more: int = 0
    """Parts that are not listed."""
    missing: Sequence[Missing] = ()
    twice: Sequence[Twice] = ()
    folded: bool = False


@dataclass(frozen=True)
class _Share:
    """The share of a report in one base window: its records and its offsets by partition."""

    report: Any
    records: int
    ranges: Ranges


@dataclass
class _Base:
    """One base window of those that are shown, with the shares of the reports that name it."""

    row: WindowRow
    shares: list[_Share] = field(default_factory=list[_Share])

    @property
    def ingested(self) -> list[_Share]:
        return [each for each in self.shares if each.report.tier == INGESTED]


def parts(connection: sa.Connection, name: Feed, key: str, limit: int) -> tuple[WindowParts, ...]:
    """Return the windows of a dataset that have this key, with up to `limit` of their parts.

    It reads every report of the dataset that names a day or hour of theirs. Raises InvalidName.
    """
    tracked = window_policies.tracked(connection, [name]).get(name) or window_policies.default()
    windows = [each for each in explained(connection, name, key, limit) if each.grain]
    if not windows:
        raise InvalidName(f"{name} {key} is no window: expected one such as hour@2026-01-01-15:00, which parts fill.")
    return tuple(_of_window(connection, name, tracked, each, limit) for each in windows)


def _of_window(
    connection: sa.Connection, name: Feed, tracked: Tracked, shown: PartitionState, limit: int
) -> WindowParts:
    at = WindowAddress(name, shown.sub_partition, shown.grain, shown.partition)
    base = _base(connection, tracked, at)
    missing = [each for one in base for each in _missing(connection, tracked, one)]
    twice = [each for one in base for each in _twice(one)]
    listed = _listed(base)
    return WindowParts(
        dataset=shown.dataset,
        sub_partition=shown.sub_partition,
        grain=shown.grain,
        partition=shown.partition,
        state=shown.state,
        why=shown.why,
        records=shown.records,
        parts=listed[:limit],
        more=max(len(listed) - limit, 0),
        missing=[*dict.fromkeys(missing)],
        twice=[*dict.fromkeys(twice)],
        folded=any(one.row.folded for one in base),
    )


def _base(connection: sa.Connection, tracked: Tracked, at: WindowAddress) -> list[_Base]:
    """Return the base windows in one, in order, with their reports."""
    window = tracked.window(at.sub_partition, at.grain, at.key)
    mine = [each for each in [at, *inside(tracked, at, window)] if each.grain == tracked.base]
    known = rows(connection, mine)
    found = {
        (each.sub_partition, row.start): _Base(row)
        for each in mine
        if tracked.is_leaf(each.sub_partition, (row := known.get(each) or empty(tracked, each)).window)
    }
    for each in _reports(connection, at.dataset, found):
        for start, share in _shares(each, tracked).items():
            if (each.sub_partition, start) in found:
                found[each.sub_partition, start].shares.append(share)
    return [found[each] for each in sorted(found)]


def _shares(report: Any, tracked: Tracked) -> dict[datetime, _Share]:
    """Return a report's shares by the start of the base window, whatever grain it was reported by."""
    counts, zone = windows_of(report.windows), tracked.zone_of(report.sub_partition)
    named = by_window(report.offsets, counts)
    found: dict[datetime, _Share] = {}
    for start, records in counts.items():
        at = window_of(tracked.base, start, zone).start
        before = found.get(at, _Share(report, 0, {}))
        found[at] = _Share(report, before.records + records, _hulls([before.ranges, named.get(start, {})]))
    return found


def _reports(connection: sa.Connection, name: Feed, wanted: Iterable[tuple[str, datetime]]) -> list[Any]:
    """Return the reports that may name some windows: by the text of their hours, or of their days if these are many."""
    starts = {start for _, start in wanted}
    hours, days = ({key_of(start)[:length] for start in starts} for length in (len("2026-01-01-15"), len("2026-01-01")))
    named = sa.or_(*(report.c.windows.contains(f'"{each}') for each in sorted(hours if len(hours) == 1 else days)))
    mine = report.c.sub_partition.in_(sorted({sub_partition for sub_partition, _ in wanted}))
    query = sa.select(report).where(report.c.dataset == str(name), mine, report.c.part != FOLDED, named)
    return [*connection.execute(query.order_by(report.c.sub_partition, report.c.tier, report.c.part))]


def _listed(base: Sequence[_Base]) -> list[Part]:
    """Return every part of the windows once, with its records of them all; what was ingested first."""
    found: dict[tuple[str, str, str], Part] = {}
    for one in base:
        for share in one.shares:
            key = share.report.sub_partition, share.report.tier, share.report.part
            before = found[key].records if key in found else 0
            found[key] = _part(share.report, before + share.records)
    return [found[key] for key in sorted(found)]


def _part(each: Any, records: int) -> Part:
    return Part(
        each.sub_partition,
        each.tier,
        each.part,
        version_shown(each.version),
        records,
        each.records,
        each.first,
        each.last,
        _hulls(by_window(each.offsets, windows_of(each.windows)).values()),
        each.snapshot,
        each.batch,
        each.by,
        each.at,
    )


def _hulls(named: Iterable[Ranges]) -> Ranges:
    """Return the least and greatest offset of each partition."""
    found: dict[str, Range] = {}
    for ranges in named:
        for partition, (first, last) in ranges.items():
            known = found.get(partition, (first, last))
            found[partition] = min(first, known[0]), max(last, known[1])
    return found


def _missing(connection: sa.Connection, tracked: Tracked, one: _Base) -> list[Missing]:
    sub_partition = one.row.address.sub_partition
    gaps = offset_checks.gaps(connection, tracked, one.row.address) if one.row.uncovered else {}
    found = [
        Missing(sub_partition, None, None, None, partition, *gap, *names)
        for partition, ranges in sorted(gaps.items())
        for gap, names in _with_neighbours(one, partition, ranges)
    ]
    return [*(_files(tracked, one) if one.row.state not in DONE else ()), *found]


def _files(tracked: Tracked, one: _Base) -> list[Missing]:
    """Return the named counts of unreached tiers of which nothing is ingested."""
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
    """Yield each gap with the names of the parts that end before it, and begin after it."""
    held = [(ranges, each.report.part) for each in one.ingested if (ranges := each.ranges.get(partition))]
    firsts, lasts = (sorted((ranges[end], part) for ranges, part in held) for end in (0, 1))
    for first, last in gaps:
        below, above = bisect_left(lasts, (first, "")), bisect_left(firsts, (last + 1, ""))
        before = lasts[below - 1][1] if below else None
        yield (first, last), (before, firsts[above][1] if above < len(firsts) else None)


def _twice(one: _Base) -> list[Twice]:
    """Return the offsets that two parts of a window hold, for each pair of parts that overlap."""
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
    """Yield what two of some ranges, sorted by their first offset, have in common, and the names of both."""
    for number, ((_, last), part) in enumerate(held):
        for (first, end), other in islice(held, number + 1, None):
            if first > last:
                break
            yield first, min(last, end), (part, other)
