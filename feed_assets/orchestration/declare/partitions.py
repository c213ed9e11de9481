"""Dagster's partition keys and the partition paths of feeds, into each other.

A path has one segment for each dimension, the time dimension first and the others by name: Dagster's key
`men|2019-11-24` of the dimensions campaign and date is the path `2019-11-24/men`.
"""

from datetime import datetime
from enum import Enum

import dagster as dg

from feed_assets.core.errors import InvalidName

Partitions = dg.PartitionsDefinition[str] | None


class Existence(Enum):
    """Whether a path is a partition: it may also be one that a later time makes one."""

    EXISTS = "is"
    NOT_YET = "not yet"
    NEVER = "never"


def dimensions(partitions_def: dg.MultiPartitionsDefinition) -> list[str]:
    """The names of the dimensions in the order of a path."""
    parts = partitions_def.partitions_defs
    return [part.name for part in sorted(parts, key=lambda part: (not _is_time(part.partitions_def), part.name))]


def by_dimension(partitions_def: Partitions) -> dict[str, dg.PartitionsDefinition[str]]:
    """The partitions of each dimension by its name, in the order of a path; of one alone the name is 'partition'."""
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return {"partition": partitions_def} if partitions_def else {}
    parts = {part.name: part.partitions_def for part in partitions_def.partitions_defs}
    return {name: parts[name] for name in dimensions(partitions_def)}


def _is_time(partitions_def: Partitions) -> bool:
    return isinstance(partitions_def, dg.TimeWindowPartitionsDefinition)


def to_path(partitions_def: Partitions, key: str | None) -> str:
    """The path of a Dagster partition key; '' for a dataset without partitions."""
    if partitions_def is None or key is None:
        return ""
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return key
    by_name = partitions_def.get_partition_key_from_str(key).keys_by_dimension
    return "/".join(by_name[name] for name in dimensions(partitions_def))


def to_key(partitions_def: Partitions, path: str) -> str | None:
    """The Dagster partition key of a path, None for a dataset without partitions; InvalidName if it does not fit."""
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
    """Whether a path is a partition now, or may be one later; `now` is timezone-aware."""
    try:
        key = to_key(partitions_def, path)
    except InvalidName:
        return Existence.NEVER
    if partitions_def is None or key is None or partitions_def.has_partition_key(key):
        return Existence.EXISTS
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return _later(partitions_def, path, now)
    segments = zip(by_dimension(partitions_def).values(), path.split("/"), strict=True)
    each = {_later_or_is(part, key, now) for part, key in segments}
    return Existence.NEVER if Existence.NEVER in each else Existence.NOT_YET


def _later_or_is(partitions_def: dg.PartitionsDefinition[str], key: str, now: datetime) -> Existence:
    return Existence.EXISTS if partitions_def.has_partition_key(key) else _later(partitions_def, key, now)


def _later(partitions_def: dg.PartitionsDefinition[str], key: str, now: datetime) -> Existence:
    """A dynamic key may be added later, and a time window may end later; nothing else comes into being."""
    if isinstance(partitions_def, dg.DynamicPartitionsDefinition):
        return Existence.NOT_YET
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return Existence.NEVER
    try:
        window = partitions_def.time_window_for_partition_key(key)
    except ValueError:
        return Existence.NEVER
    is_within = partitions_def.end is None or window.end <= partitions_def.end
    return Existence.NOT_YET if is_within and window.end > now else Existence.NEVER


def is_before_the_first(partitions_def: Partitions, path: str) -> bool:
    """Whether a path is of a time window before those of the partitions."""
    segments = zip(by_dimension(partitions_def).values(), path.split("/"), strict=False)
    return any(_is_earlier(part, key) for part, key in segments if isinstance(part, dg.TimeWindowPartitionsDefinition))


def _is_earlier(windows: dg.TimeWindowPartitionsDefinition, key: str) -> bool:
    try:
        return windows.time_window_for_partition_key(key).start < windows.start
    except ValueError:
        return False


def begins_at(partitions_def: Partitions, path: str) -> datetime | None:
    """When a path that is no partition yet is one: at the end of its time window; None if a person has to add it."""
    key = to_key(partitions_def, path)
    if isinstance(partitions_def, dg.TimeWindowPartitionsDefinition) and key is not None:
        return partitions_def.time_window_for_partition_key(key).end
    if not isinstance(partitions_def, dg.MultiPartitionsDefinition):
        return None
    segments = zip(by_dimension(partitions_def).values(), path.split("/"), strict=True)
    moments = [begins_at(part, each) for part, each in segments if not part.has_partition_key(each)]
    return max((each for each in moments if each), default=None) if all(moments) else None
