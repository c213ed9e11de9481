"""Mappings across time zones, which Dagster does not support. Our own graph computes them from spans of time.

In Dagster's graph, such a dependency has an `AllPartitionMapping`, which is for display only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import dagster as dg
from pydantic import PlainSerializer, PlainValidator

from feed_assets.core.typed import typed
from feed_assets.core.windows import DAY, window_of
from feed_assets.orchestration.declare.partitions import Extent, Partitions, extent_of, paths_within, times_of

_TICK = timedelta(microseconds=1)


class TimeSpan(NamedTuple):
    """A span of time, `[start, end)`, UTC."""

    start: datetime
    end: datetime

    def overlaps(self, other: "TimeSpan") -> bool:
        """Return whether both spans share a moment."""
        return self.start < other.end and other.start < self.end


@lru_cache(maxsize=16_384)
def days(span: TimeSpan, zone: str, of: str) -> TimeSpan:
    """Return the time of whole days in `zone`: the days with the dates that `span` has in the zone `of`."""
    first, last = (date.fromisoformat(window_of(DAY, moment, of).key) for moment in (span.start, span.end - _TICK))
    return TimeSpan(_midnight(first, zone), _midnight(last + timedelta(days=1), zone))


def _midnight(day: date, zone: str) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(zone)).astimezone(UTC)


@typed
@dataclass(frozen=True)
class Within:
    """The windows of an input within the output's window, such as the 23 to 25 UTC hours of a region's day.

    A window that overlaps the output's window only in part is read, too. For example, a day in Kolkata begins in the
    middle of a UTC hour. The function must drop rows that are not between `partition.start` and `partition.end`.

    Args:
        only: Keys of the input's other dimensions, such as `{"region": "apac"}`. In a dimension that the output also
            has, the output's own key is read. In other dimensions, all keys are read.

    Raises:
        InvalidDefinition: A value has a wrong type.
    """

    only: Mapping[str, str] = field(default_factory=dict[str, str])

    def reads(self, output: TimeSpan, of: str, zone: str) -> TimeSpan:  # noqa: ARG002
        """Return the span of an input that an output needs.

        `of` is the output's zone, and `zone` is the input's zone.
        """
        return output

    def reached(self, changed: TimeSpan, zone: str, of: str) -> TimeSpan:  # noqa: ARG002
        """Return a span of time that contains every output that may have to change with this span of an input."""
        return changed


@typed
@dataclass(frozen=True)
class BatchDate:
    """The windows of an input on the output's date, such as the days of all regions on this date.

    Each window is in the zone of its region.

    Args:
        only: Keys of the input's other dimensions, such as `{"region": "apac"}`. In a dimension that the output also
            has, the output's own key is read. In other dimensions, all keys are read.

    Raises:
        InvalidDefinition: A value has a wrong type.
    """

    only: Mapping[str, str] = field(default_factory=dict[str, str])

    def reads(self, output: TimeSpan, of: str, zone: str) -> TimeSpan:
        """Return the day in the input's zone with the date that the output has in its own zone."""
        return days(TimeSpan(output.start, output.start + _TICK), zone, of)

    def reached(self, changed: TimeSpan, zone: str, of: str) -> TimeSpan:
        """Return the days in the output's zone with the same dates that the change has in the input's zone."""
        return days(changed, of, zone)


@typed
@dataclass(frozen=True)
class DayToDate:
    """The windows of an input from the start of the output's local day to the output's end.

    For example, the output of hour 15 reads the hours 00 to 15.

    Args:
        only: Keys of the input's other dimensions, such as `{"region": "apac"}`. In a dimension that the output also
            has, the output's own key is read. In other dimensions, all keys are read.

    Raises:
        InvalidDefinition: A value has a wrong type.
    """

    only: Mapping[str, str] = field(default_factory=dict[str, str])

    def reads(self, output: TimeSpan, of: str, zone: str) -> TimeSpan:  # noqa: ARG002
        """Return the span from the midnight before the output to the output's end."""
        return TimeSpan(days(TimeSpan(output.start, output.start + _TICK), of, of).start, output.end)

    def reached(self, changed: TimeSpan, zone: str, of: str) -> TimeSpan:  # noqa: ARG002
        """Return the span from the change's start to the first midnight after the change."""
        return TimeSpan(changed.start, days(changed, of, of).end)


@dataclass(frozen=True)
class Previous:
    """The window before the output's window, for a dataset that reads its own previous window.

    The first window has no previous window.
    """

    only: Mapping[str, str] = field(default_factory=dict[str, str])

    def reads(self, output: TimeSpan, of: str, zone: str) -> TimeSpan:  # noqa: ARG002
        """Return the last moment before the output's time, which lies in the previous window."""
        return TimeSpan(output.start - _TICK, output.start)

    def reached(self, changed: TimeSpan, zone: str, of: str) -> TimeSpan:  # noqa: ARG002
        """Return the first moment after the changed time, which lies in the next window."""
        return TimeSpan(changed.end, changed.end + _TICK)


BySpan = Within | BatchDate | DayToDate | Previous
"""A mapping of a kind that feed_assets defines."""

_KINDS: Mapping[str, type[BySpan]] = {kind.__name__: kind for kind in (Within, BatchDate, DayToDate, Previous)}


def _of_json(value: Any) -> BySpan:
    return value if isinstance(value, BySpan) else _KINDS[value["kind"]](only=value["only"])


def _to_json(mapping: BySpan) -> dict[str, Any]:
    return {"kind": type(mapping).__name__, "only": dict(mapping.only)}


Declared = Annotated[BySpan, PlainValidator(_of_json), PlainSerializer(_to_json)]
"""A mapping in the form that declarations store."""


def span_of(extent: Extent) -> TimeSpan | None:
    """Return the time span of a partition. Return None if the partition has no time."""
    return TimeSpan(extent.start, extent.end) if extent.start and extent.end else None


def upstream(mapping: BySpan, child: Partitions, parent: Partitions, path: str) -> list[str]:
    """Return the sorted paths of an input that an output needs. Include paths whose partitions do not exist yet."""
    output, times = extent_of(child, path), times_of(parent)
    span = span_of(output)
    if span is None or times is None:
        return []
    values = {name: key for name, key in output.values.items() if _has(parent, name)} | dict(mapping.only)
    return sorted(paths_within(parent, *mapping.reads(span, output.zone, times.timezone), values))


def downstream(
    mapping: BySpan, child: Partitions, changed: TimeSpan, zone: str, values: Mapping[str, str]
) -> list[str]:
    """Return the sorted paths of outputs that need a changed span of an input. `values` has the input's other keys.

    This function is the inverse of the mapping's `reads`. It serves for changed partitions of a feed, and for changed
    windows of a dataset. `zone` is the input's zone.
    """
    times = times_of(child)
    if times is None or any(values.get(name, key) != key for name, key in mapping.only.items()):
        return []
    shared = {name: key for name, key in values.items() if _has(child, name) and name not in mapping.only}
    paths = paths_within(child, *mapping.reached(changed, zone, times.timezone), shared)
    return sorted(path for path in paths if _reads(mapping, extent_of(child, path), zone).overlaps(changed))


def _reads(mapping: BySpan, output: Extent, zone: str) -> TimeSpan:
    span = span_of(output)
    if span is None:  # cannot happen: callers check that the output has a dimension of time
        raise ValueError(f"{output} has no time.")
    return mapping.reads(span, output.zone, zone)


def _has(partitions_def: Partitions, name: str) -> bool:
    return isinstance(partitions_def, dg.MultiPartitionsDefinition) and name in partitions_def.partition_dimension_names
