"""Rules for overlaps in time: which windows of an input an output waits for, and which outputs wait for a window."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.spans import Span
from feed_assets.core.sub_partitions import Tracked, mapping_of
from feed_assets.core.windows import DAY, HOUR, HOUR_MINUTES, Window, WindowAddress, address_of, tiles, window_at
from feed_assets.core.windows import window_of as window_that_holds
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare import mappings
from feed_assets.orchestration.declare.declarations import Dataset, StateTable
from feed_assets.orchestration.declare.mappings import BatchDate, BySpan, DayToDate, Within
from feed_assets.orchestration.declare.partitions import (
    Extent,
    by_dimension,
    extent_of,
    is_there,
    paths_within,
    times_of,
)
from feed_assets.orchestration.declare.sub_partitions import levels_of, sub_partition_of
from feed_assets.orchestration.declare.time_windows import bounds, current_time, key_at


def mapping_between(parent: Node, child: Node) -> BySpan | None:
    """Return the mapping between an input and a dataset if it is of our own kinds.

    Return None for a mapping of Dagster.
    """
    declared = child.declaration
    return declared.mapped.get(str(parent.feed)) if isinstance(declared, Dataset) else None


def existing(parent: Node, paths: Iterable[str]) -> tuple[list[Partition], list[Partition]]:
    """Return which of an input's paths exist as partitions, and which are missing."""
    partitions, now = [Partition(parent.feed, path) for path in paths], current_time()
    present = {each for each in partitions if parent.partitions_def and is_there(parent.partitions_def, each.key, now)}
    return [each for each in partitions if each in present], [each for each in partitions if each not in present]


Spanned = tuple[Span, Sequence[Partition]]
"""A span of windows to wait for, and the feed's partitions to read. A state table has no partitions to read: ()."""


def spans_of(parent: Node, child: Node, output: Partition, needed: Sequence[Partition]) -> list[Spanned]:
    """Return the windows of an input that must be complete for an output: spans of time, each for one sub-partition.

    Return [] if the input has no windows. If the input is a feed, `needed` has the partitions that the output reads.
    Raise InvalidDefinition if no windows of the input exactly fill the time that the output reads.
    """
    tracked, mapping, its = parent.tracked, mapping_between(parent, child), extent_of(child.partitions_def, output.key)
    if tracked is None:
        return []
    if is_one_by_one(parent, child) and (grain := own_grain(parent)) in tracked.grains:
        tracked = replace(tracked, grains=tracked.grains[: tracked.grains.index(grain) + 1])
    if isinstance(parent.declaration, StateTable):
        return [(_of_table(parent, tracked, mapping or Within(), its), ())]
    return _of_feed(parent, child, tracked, mapping=mapping, output=its, needed=needed)


def is_one_by_one(parent: Node, child: Node) -> bool:
    """Return whether an output waits for each input partition's windows separately.

    Otherwise it waits for the largest windows that fill its time, even if such a window covers several partitions. It
    waits separately if the dataset sets `at_least`, names checks of the input, or sets `reprocess` to `always` or
    `never`: these rules depend on single partitions.
    """
    declared = child.declaration
    if not isinstance(declared, Dataset):
        return False
    is_counted = declared.wait is not None and declared.wait.at_least is not None
    return is_counted or str(parent.feed) in declared.checks_of or declared.reprocess != "if_data_changed"


def _of_table(parent: Node, tracked: Tracked, mapping: BySpan, output: Extent) -> Span:
    named = {*by_dimension(parent.partitions_def), *levels_of(tracked)}
    values = {name: key for name, key in output.values.items() if name in named} | dict(mapping.only)
    sub_partition = sub_partition_of(tracked, values)
    if isinstance(mapping, BatchDate) and DAY in tracked.grains:
        day = tracked.window(sub_partition, DAY, _date(output))
        return Span(parent.feed, sub_partition, day.start, day.end, (day,))
    span = mapping.reads(_time(output), output.zone, tracked.zone_of(sub_partition))
    return _filled(parent.feed, tracked, sub_partition, span)


def _date(output: Extent) -> str:
    return _time(output).start.astimezone(ZoneInfo(output.zone)).date().isoformat()


def _time(output: Extent) -> mappings.TimeSpan:
    span = mappings.span_of(output)
    if span is None:  # cannot happen: such a declaration is refused
        raise ValueError(f"{output} has no time.")
    return span


def _of_feed(
    parent: Node, child: Node, tracked: Tracked, mapping: BySpan | None, output: Extent, needed: Iterable[Partition]
) -> list[Spanned]:
    """Return the spans of time whose windows must be complete before these partitions are read, by sub-partition.

    If only part of a partition is read, return the span of this part.
    """
    own = mappings.span_of(output)
    clip = mapping.reads(own, output.zone, output.zone) if own and isinstance(mapping, Within | DayToDate) else None
    spans_by_member: dict[str, list[tuple[mappings.TimeSpan, Partition]]] = {}
    for each in needed:
        extent = extent_of(parent.partitions_def, each.key)
        if span := mappings.span_of(extent) or own:
            sub_partition = sub_partition_of(tracked, extent.values if parent.partitions_def else {})
            spans_by_member.setdefault(sub_partition, []).append((_clipped(span, clip), each))
    if is_one_by_one(parent, child):
        pairs = [
            (sub_partition, span, (each,)) for sub_partition, some in spans_by_member.items() for span, each in some
        ]
    else:
        spans = {
            sub_partition: _joined(sorted(span for span, _ in some)) for sub_partition, some in spans_by_member.items()
        }
        pairs = [(sub_partition, span, tuple(needed)) for sub_partition, joined in spans.items() for span in joined]
    return [(_filled(parent.feed, tracked, sub, span), counted) for sub, span, counted in sorted(pairs)]


def _clipped(span: mappings.TimeSpan, clip: mappings.TimeSpan | None) -> mappings.TimeSpan:
    return mappings.TimeSpan(max(span.start, clip.start), min(span.end, clip.end)) if clip else span


def _joined(spans: Iterable[mappings.TimeSpan]) -> list[mappings.TimeSpan]:
    """Join spans of time that touch or overlap. `spans` must be sorted."""
    joined: list[mappings.TimeSpan] = []
    for span in spans:
        if joined and joined[-1].end >= span.start:
            joined[-1] = mappings.TimeSpan(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def _filled(feed: Feed, tracked: Tracked, sub_partition: str, span: mappings.TimeSpan) -> Span:
    """Return a span together with the largest windows that fill it exactly.

    Leave out day windows if the sub-partition covers several regions: such a day is longer than the day of one zone.
    """
    zone, start, end = tracked.zone_of(sub_partition), span.start, span.end
    windows = tiles(start, end, tracked.grains, zone)
    if any(tracked.window(sub_partition, each.grain, each.key) != each for each in windows if each.grain == DAY):
        windows = tiles(start, end, tuple(grain for grain in tracked.grains if grain != DAY), zone)
    if not windows:
        raise InvalidDefinition(
            f"no windows of {feed} fill {start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC exactly: its grains are "
            f"{', '.join(tracked.grains)}. Add a smaller grain to its completeness."
        )
    return Span(feed, sub_partition, start, end, windows)


def addresses_of(span: Span) -> list[WindowAddress]:
    """Return the addresses (dataset, sub-partition, grain, key) of the windows in a span, in order."""
    return [WindowAddress(span.dataset, span.sub_partition, each.grain, each.key) for each in span.windows]


def windows_within(node: Node, partition: Partition) -> list[WindowAddress]:
    """Return the windows that a feed's partition fills. Return [] if the feed has no windows.

    Raise InvalidDefinition if no windows fill the partition exactly.
    """
    extent = extent_of(node.partitions_def, partition.key)
    spans = _of_feed(node, node, node.tracked, mapping=None, output=extent, needed=[partition]) if node.tracked else []
    return [each for span, _ in spans for each in addresses_of(span)]


def window_of(node: Node, address: WindowAddress) -> Window | None:
    """Return the window at an address in a dataset.

    Return None if the dataset's declaration no longer has the address's grain (length of windows) or sub-partition.
    """
    tracked = node.tracked
    has_grain = tracked is not None and address.grain in tracked.grains
    is_member = tracked is not None and (not tracked.members or address.sub_partition in {"", *tracked.members})
    return (
        tracked.window(address.sub_partition, address.grain, address.key)
        if tracked and has_grain and is_member
        else None
    )


def outputs_near(parent: Node, child: Node, address: WindowAddress, window: Window) -> list[str]:
    """Return the paths of outputs that may wait for a window of a state table, because they read part of its time."""
    mapping, span = mapping_between(parent, child) or Within(), mappings.TimeSpan(window.start, window.end)
    zone = parent.tracked.zone_of(address.sub_partition) if parent.tracked else "UTC"
    return mappings.downstream(mapping, child.partitions_def, span, zone, {})


def outputs_of(parent: Node, child: Node, mapping: BySpan, changed: Partition) -> list[Partition]:
    """Return the outputs that read an input partition by our own mapping, whether they exist yet or not."""
    extent = extent_of(parent.partitions_def, changed.key)
    span = mappings.span_of(extent)
    paths = mappings.downstream(mapping, child.partitions_def, span, extent.zone, extent.values) if span else []
    return [Partition(child.feed, path) for path in paths]


def partitions_near(parent: Node, address: WindowAddress, window: Window) -> list[Partition]:
    """Return the partitions of a feed that may have records of one of its windows."""
    tracked, definition = parent.tracked, parent.partitions_def
    if times_of(definition) is None or tracked is None:
        return parent.partitions
    paths = paths_within(definition, window.start, window.end, {})
    extents = {path: sub_partition_of(tracked, extent_of(definition, path).values) for path in paths}
    return [Partition(parent.feed, path) for path, of in extents.items() if is_in(of, address.sub_partition)]


def is_in(sub_partition: str, other: str) -> bool:
    """Return whether a sub-partition is within the other one or equal to it."""
    return mapping_of(other).items() <= mapping_of(sub_partition).items()


def window_partition(node: Node, path: str) -> Partition:
    """Return the ledger's window for a state table's partition.

    Raise InvalidName if no single window covers the same time.
    """
    own = own_window(node, extent_of(node.partitions_def, path), own_grain(node))
    if own is None:
        raise InvalidName(
            f"{node.feed} {path}: the feed's windows have other sizes: expected the key of a window, such as "
            f"hour@2026-01-01-15:00."
        )
    return own.partition


def own_window(node: Node, extent: Extent, grain: str | None) -> WindowAddress | None:
    """Return the window that covers the same time as a partition. Return None if the windows have other sizes.

    `grain` is the length of the asset's windows.
    """
    tracked = node.tracked
    if tracked is None or grain not in tracked.grains or extent.start is None:
        return None
    key = _date(extent) if grain == DAY else window_that_holds(grain, extent.start).key
    return WindowAddress(node.feed, sub_partition_of(tracked, extent.values), grain, key)


def own_grain(node: Node) -> str | None:
    """Return the length of windows (grain) that equals the length of an asset's partitions.

    Return None if there is none.
    """
    times = times_of(node.partitions_def)
    if times is None or times.is_basic_daily:
        return DAY if times else None
    start, end = bounds(times, key_at(times, times.start))
    minutes = (end - start) // timedelta(minutes=1)
    return HOUR if minutes == HOUR_MINUTES else f"{minutes}min" if minutes < HOUR_MINUTES else None


def asset_partition(node: Node, changed: Partition) -> Partition | None:
    """Return the asset's partition with the same sub-partition and time (or date) as a changed window.

    Return None if there is no such partition.
    """
    address, times = address_of(changed), times_of(node.partitions_def)
    window = window_of(node, address) if address else None
    if address is None or window is None or times is None:
        return None
    own = window
    if address.grain == DAY:  # the day of one or several regions is the asset's day with the same date
        own = window_at(DAY, address.key, times.timezone)
    for path in paths_within(node.partitions_def, own.start, own.end, {}):
        extent = extent_of(node.partitions_def, path)
        if mappings.span_of(extent) == (own.start, own.end) and _is_of(node, extent, address):
            return Partition(node.feed, path)
    return None


def _is_of(node: Node, extent: Extent, address: WindowAddress) -> bool:
    return node.tracked is not None and sub_partition_of(node.tracked, extent.values) == address.sub_partition
