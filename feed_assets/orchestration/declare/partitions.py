"""Conversion between Dagster's partition keys and the partition paths of feeds.

A path has one segment for each dimension. The time comes first, and the other dimensions follow in the order of their
names. For example, Dagster's key `men|2019-11-24` of the dimensions campaign and date is the path `2019-11-24/men`.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from itertools import product
from math import prod
from typing import Annotated

import dagster as dg

from feed_assets.core.errors import InvalidDefinition, InvalidName
from feed_assets.core.examples import Example
from feed_assets.core.windows import DAY, HOUR_MINUTES, minutes_of
from feed_assets.orchestration.declare.time_windows import (
    bounds,
    current_time,
    is_kept,
    is_partition,
    key_at,
    keys_between,
    newest_keys,
)

Partitions = Annotated[
    dg.PartitionsDefinition[str] | None, Example("dg.DailyPartitionsDefinition('2026-01-01')", "partitions of Dagster")
]


@dataclass(frozen=True)
class Extent:
    """The extent of a partition: time `[start, end)` in UTC, time zone, and keys of other dimensions by name.

    If the partition has no time, start and end are None.
    """

    start: datetime | None
    end: datetime | None
    zone: str
    values: Mapping[str, str]


class Existence(Enum):
    """The existence of a path: it is a partition now, it may become a partition later, or it never does."""

    EXISTS = "is"
    NOT_YET = "not yet"
    NEVER = "never"


def dimensions(partitions_def: dg.MultiPartitionsDefinition) -> list[str]:
    """Return the names of the dimensions in the order of a path."""
    parts = partitions_def.partitions_defs
    return [part.name for part in sorted(parts, key=lambda part: (not _is_time(part.partitions_def), part.name))]


def by_dimension(partitions_def: Partitions) -> dict[str, dg.PartitionsDefinition[str]]:
    """Return the partitions of each dimension by name, in the order of a path.

    A single dimension is named 'partition'.
    """
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return {"partition": partitions_def} if partitions_def else {}
    parts = {part.name: part.partitions_def for part in partitions_def.partitions_defs}
    return {name: parts[name] for name in dimensions(partitions_def)}


def _is_time(partitions_def: Partitions) -> bool:
    return isinstance(partitions_def, dg.TimeWindowPartitionsDefinition)


def to_path(partitions_def: Partitions, key: str | None) -> str:
    """Return the path of a Dagster partition key. Return '' for a dataset without partitions."""
    if partitions_def is None or key is None:
        return ""
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return key
    by_name = partitions_def.get_partition_key_from_str(key).keys_by_dimension
    return "/".join(by_name[name] for name in dimensions(partitions_def))


def to_key(partitions_def: Partitions, path: str) -> str | None:
    """Return the Dagster partition key of a path. Return None for a dataset without partitions.

    Raise InvalidName if the path does not fit the partitions.
    """
    if partitions_def is None:
        if path:
            raise InvalidName(f"partition {path!r}: the dataset has no partitions. Leave it out.")
        return None
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return path
    names, segments = dimensions(partitions_def), path.split("/")
    if len(names) != len(segments):
        raise InvalidName(f"partition {path!r} has {len(segments)} segments: expected {'/'.join(names)}.")
    return str(dg.MultiPartitionKey(dict(zip(names, segments, strict=True))))


def existence(partitions_def: Partitions, path: str, now: datetime) -> Existence:
    """Return whether a path is a partition now, later or never. `now` is timezone-aware."""
    try:
        key = to_key(partitions_def, path)
    except InvalidName:
        return Existence.NEVER
    if partitions_def is None or key is None:
        return Existence.EXISTS
    states = {_later_or_is(part, segment, now) for part, segment in _parts(partitions_def, path)}
    return next(each for each in (Existence.NEVER, Existence.NOT_YET, Existence.EXISTS) if each in states)


def is_there(partitions_def: Partitions, path: str, now: datetime) -> bool:
    """Return whether a path is a partition at `now` (timezone-aware)."""
    return existence(partitions_def, path, now) is Existence.EXISTS


def _parts(partitions_def: Partitions, path: str) -> Iterable[tuple[dg.PartitionsDefinition[str], str]]:
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return [(partitions_def, path)] if partitions_def else []
    return zip(by_dimension(partitions_def).values(), path.split("/"), strict=True)


def has_key(partitions_def: dg.PartitionsDefinition[str], key: str, now: datetime) -> bool:
    """Return whether a key is a partition at `now` (timezone-aware).

    Time windows are computed by `time_windows`, because Dagster's result is wrong where clocks change.
    """
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return is_partition(partitions_def, key, now)
    return partitions_def.has_partition_key(key)


def _later_or_is(partitions_def: dg.PartitionsDefinition[str], key: str, now: datetime) -> Existence:
    return Existence.EXISTS if has_key(partitions_def, key, now) else _later(partitions_def, key, now)


def _later(partitions_def: dg.PartitionsDefinition[str], key: str, now: datetime) -> Existence:
    """Return NOT_YET for a dynamic key, which may be added, and for a window that has not ended.

    Otherwise return NEVER.
    """
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        return Existence.NOT_YET
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return Existence.NEVER
    try:
        window = bounds(partitions_def, key)
    except ValueError:
        return Existence.NEVER
    is_within = partitions_def.end is None or window[1] <= partitions_def.end
    return Existence.NOT_YET if is_within and window[1] > now else Existence.NEVER


def times_of(partitions_def: Partitions) -> dg.TimeWindowPartitionsDefinition | None:
    """Return the time dimension. Return None if the partitions have none."""
    parts = by_dimension(partitions_def).values()
    return next((part for part in parts if isinstance(part, dg.TimeWindowPartitionsDefinition)), None)


def keys_beside_time(path: str) -> str:
    """Return the segments of a path after the first one, which is the time."""
    return path.partition("/")[2]


def is_offset_day(times: dg.TimeWindowPartitionsDefinition) -> bool:
    """Return whether the partitions are days that do not begin at midnight."""
    kind = times.schedule_type
    return kind is not None and kind.name == "DAILY" and not times.is_basic_daily


def is_hourly(partitions_def: Partitions) -> bool:
    """Return whether the partitions are the hours of UTC, without another dimension."""
    return _is_by(partitions_def, "0 * * * *")


def sources_beside_hours(partitions_def: Partitions) -> tuple[str, ...]:
    """Return the keys of a static dimension beside UTC hours.

    Return ('',) for hours alone, and () for other partitions.
    """
    if is_hourly(partitions_def):
        return ("",)
    times, *beside = by_dimension(partitions_def).values() or [None]
    if is_hourly(times) and len(beside) == 1 and isinstance(beside[0], dg.StaticPartitionsDefinition):
        return tuple(beside[0].get_partition_keys())
    return ()


def is_daily(partitions_def: Partitions) -> bool:
    """Return whether the partitions are the days of UTC, without another dimension."""
    return _is_by(partitions_def, "0 0 * * *")


def _is_by(partitions_def: Partitions, cron: str) -> bool:
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) or partitions_def.timezone != "UTC":
        return False
    return partitions_def.cron_schedule == cron


def windows_from(start: str, grain: str, zone: str = "UTC") -> dg.TimeWindowPartitionsDefinition:
    """Return partitions of a grain (`10min`, `hour`, `day`) from a start day.

    Raise InvalidDefinition for an invalid day.
    """
    try:
        is_day = date.fromisoformat(start).isoformat() == start
    except ValueError:
        is_day = False
    if not is_day:
        raise InvalidDefinition(f"start {start!r}: expected a day, such as 2026-01-01.")
    if grain == DAY:
        return dg.DailyPartitionsDefinition(start, timezone=zone)
    minutes = minutes_of(grain)
    cron = "0 * * * *" if minutes == HOUR_MINUTES else f"*/{minutes} * * * *"
    first, fmt = f"{start}-00:00", "%Y-%m-%d-%H:%M"
    return dg.TimeWindowPartitionsDefinition(cron_schedule=cron, start=first, fmt=fmt, timezone=zone)


def extent_of(partitions_def: Partitions, path: str) -> Extent:
    """Return the extent of a partition's path: its time, and its keys of other dimensions.

    The partition may not exist yet. Raise InvalidName if it can never exist.
    """
    values = dict(zip(by_dimension(partitions_def), path.split("/"), strict=False))
    times = times_of(partitions_def)
    if times is None:
        return Extent(None, None, "UTC", values)
    (name,) = (name for name, part in by_dimension(partitions_def).items() if part is times)
    try:
        start, end = bounds(times, values.pop(name))
    except (KeyError, ValueError):
        raise InvalidName(f"partition {path!r}: expected {'/'.join(by_dimension(partitions_def))}.") from None
    return Extent(start, end, times.timezone, values)


def end_of(partitions_def: Partitions, path: str) -> datetime | None:
    """Return the end (UTC) of a path's time window. Return None for an invalid path or partitions without time."""
    with suppress(InvalidName):
        return extent_of(partitions_def, path).end
    return None


@lru_cache(maxsize=16_384)
def keys_within(times: dg.TimeWindowPartitionsDefinition, start: datetime, end: datetime) -> tuple[str, ...]:
    """Return the ordered keys whose windows overlap `[start, end)`, including windows that are not over."""
    return tuple(key for key in keys_between(times, start, end) if is_kept(times, bounds(times, key)))


def paths_within(partitions_def: Partitions, start: datetime, end: datetime, values: Mapping[str, str]) -> list[str]:
    """Return the paths whose windows overlap `[start, end)`.

    `values` has keys of other dimensions. If it has none for a dimension, the paths with all keys of this dimension are
    returned.
    """
    times = times_of(partitions_def)
    return _paths(partitions_def, keys_within(times, start, end) if times else (), values)


def newest_paths(partitions_def: Partitions, now: datetime, count: int) -> list[str]:
    """Return the ordered paths of the last `count` windows that are over at `now`, and of the current window."""
    times = times_of(partitions_def)
    return _paths(partitions_def, newest_keys(times, now, count) if times else (), {})


def _paths(partitions_def: Partitions, windows: Sequence[str], values: Mapping[str, str]) -> list[str]:
    keys_by_dimension = [
        windows
        if isinstance(part, dg.TimeWindowPartitionsDefinition)
        else [values[name]] * part.has_partition_key(values[name])
        if name in values
        else part.get_partition_keys()
        for name, part in by_dimension(partitions_def).items()
    ]
    return ["/".join(keys) for keys in product(*keys_by_dimension)]


def ended_within(
    partitions_def: Partitions, after: datetime, upto: datetime, count: int
) -> tuple[dict[str, datetime], datetime]:
    """Return the ordered paths whose windows end in `(after, reached]`, each with its window's end.

    Also return `reached`. `reached` is `upto`, or an earlier moment that limits the result to about `count` paths. The
    result has all paths of at least one window.
    """
    times = times_of(partitions_def)
    if times is None or after >= upto:
        return {}, upto
    start, end = bounds(times, key_at(times, after))
    windows = max(1, count // max(1, _keys_of_a_window(partitions_def)))
    reached = min(upto, max(end, after + windows * (end - start)))
    ends = {path: extent_of(partitions_def, path).end for path in paths_within(partitions_def, after, reached, {})}
    return {path: its for path, its in ends.items() if its and after < its <= reached}, reached


def _keys_of_a_window(partitions_def: Partitions) -> int:
    beside = [part for part in by_dimension(partitions_def).values() if not _is_time(part)]
    return prod(len(part.get_partition_keys()) for part in beside)


def still_partitions(partitions_def: Partitions, paths: Iterable[str]) -> list[str]:
    """Return the paths that the partitions still define, including paths whose windows are not over.

    Leave out other paths: their dynamic key was removed, or a new start date excludes them.
    """
    parts = by_dimension(partitions_def).values()
    known_keys = [
        None if isinstance(part, dg.TimeWindowPartitionsDefinition) else {*part.get_partition_keys()} for part in parts
    ]
    return [
        path
        for path in paths
        if len(keys := path.split("/")) == len(known_keys) and all(map(_is_known, parts, known_keys, keys))
    ]


def _is_known(part: dg.PartitionsDefinition[str], known_keys: set[str] | None, key: str) -> bool:
    if isinstance(part, dg.TimeWindowPartitionsDefinition):
        with suppress(ValueError):
            return is_kept(part, bounds(part, key))
        return False
    return known_keys is not None and key in known_keys


def is_before_the_first(partitions_def: Partitions, path: str) -> bool:
    """Return whether the time window of a path is before the first partition."""
    segments = zip(by_dimension(partitions_def).values(), path.split("/"), strict=False)
    return any(_is_earlier(part, key) for part, key in segments if isinstance(part, dg.TimeWindowPartitionsDefinition))


def _is_earlier(windows: dg.TimeWindowPartitionsDefinition, key: str) -> bool:
    try:
        return bounds(windows, key)[0] < windows.start
    except ValueError:
        return False


def begins_at(partitions_def: Partitions, path: str) -> datetime | None:
    """Return when a path becomes a partition: at the end of its time window.

    Return None if this is unknown, because somebody must first add a dynamic key.
    """
    key = to_key(partitions_def, path)
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) and key is not None:
        return bounds(partitions_def, key)[1]
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return None
    segments = zip(by_dimension(partitions_def).values(), path.split("/"), strict=True)
    moments = [begins_at(part, each) for part, each in segments if not has_key(part, each, current_time())]
    return max((each for each in moments if each), default=None) if all(moments) else None
