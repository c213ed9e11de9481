"""Runs of many partitions: which ready partitions one run can build, and which partitions a run names.

Dagster names the first and the last partition. With several dimensions, a range has every combination of keys between.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import dagster as dg

from feed_assets.core.blocks import blocks
from feed_assets.core.launching import joint_run_key
from feed_assets.orchestration.declare.partitions import Partitions, by_dimension, to_key, to_path
from feed_assets.orchestration.declare.time_windows import bounds

PARTITION = "dagster/partition"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Tags by which a run names its partition or range. Dagster does not export these names."""


def named_by(partitions_def: Partitions, tags: Mapping[str, str]) -> list[str | None]:
    """Return the partition keys that a run names; [None] for an asset without partitions.

    For an invalid range, Dagster and Python raise errors of many classes. Dagster fails such a run, too.
    """
    if partitions_def is None or RANGE_START not in tags:
        return [tags.get(PARTITION)]
    ends = dg.PartitionKeyRange(tags[RANGE_START], tags[RANGE_END])
    return [str(key) for key in partitions_def.get_partition_keys_in_range(ends)]


def in_blocks(partitions_def: Partitions, paths: Collection[str], limit: int) -> list[list[str]]:
    """Return paths cut into ordered ranges of at most `limit`. Ranges are sorted by their earliest place in `paths`.

    Ranges contain only given partitions, so that no run builds one that is not ready.
    """
    if len(paths) < 2 or limit == 1:
        return _singly(paths)
    ranges = _singly(paths)
    # Errors may have many classes, for example if a partition was removed since the decision.
    with suppress(Exception):
        ranges = _cut(partitions_def, paths, limit)
    order = {path: number for number, path in enumerate(paths)}
    return sorted(ranges, key=lambda block: min(order[path] for path in block))


def _singly(paths: Collection[str]) -> list[list[str]]:
    return [[path] for path in paths]


def _cut(partitions_def: Partitions, paths: Collection[str], limit: int) -> list[list[str]]:
    by_point = {point: path for path, point in _points(partitions_def, paths).items()}
    cut = [[by_point[point] for point in block] for block in blocks(by_point, limit)]
    return [part for block in cut for part in _as_read(partitions_def, block)]


def _as_read(partitions_def: Partitions, block: list[str]) -> list[list[str]]:
    """Return a block if Dagster reads its range as we do; else single paths. Where clocks go back it may differ."""
    ends = [to_key(partitions_def, path) or "" for path in (block[0], block[-1])]
    read = named_by(partitions_def, dict(zip((RANGE_START, RANGE_END), ends, strict=True)))
    return [block] if {to_path(partitions_def, key) for key in read} == {*block} else _singly(block)


def joint(requests: Sequence[dg.RunRequest]) -> dg.RunRequest:
    """Return one request for a block of partitions from single requests. Return a single request unchanged.

    It keeps the tags that all have in common, except those by which Dagster names one partition.
    """
    if len(requests) == 1:
        return requests[0]
    ends = [each.partition_key or "" for each in (requests[0], requests[-1])]
    tags = {
        name: value
        for name, value in requests[0].tags.items()
        if not name.startswith(PARTITION) and all(each.tags.get(name) == value for each in requests)
    }
    keys = [each.run_key for each in requests if each.run_key]
    return requests[0].with_replaced_attrs(
        run_key=joint_run_key(keys) if keys else None,
        partition_key=None,
        tags={**tags, **dict(zip((RANGE_START, RANGE_END), ends, strict=True))},
    )


def _points(partitions_def: Partitions, paths: Collection[str]) -> dict[str, tuple[int, ...]]:
    """Return the place of each path in the dimensions of its partitions."""
    segments = {path: path.split("/") for path in paths}
    dimensions = by_dimension(partitions_def).values()
    numbers = [_numbers(part, {keys[at] for keys in segments.values()}) for at, part in enumerate(dimensions)]
    return {path: tuple(of[key] for of, key in zip(numbers, keys, strict=True)) for path, keys in segments.items()}


def _numbers(partitions_def: dg.PartitionsDefinition[str], keys: Iterable[str]) -> dict[str, int]:
    """Return a number for each key of a dimension. Consecutive numbers have no key between them in Dagster's ranges."""
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return {key: number for number, key in enumerate(partitions_def.get_partition_keys())}
    # only the given windows, because all windows of some minutes would be too many
    windows = sorted((bounds(partitions_def, key), key) for key in keys)
    numbers, number = {windows[0][1]: 0}, 0
    for (before, _), (window, key) in pairwise(windows):
        number += 1 if before[1] == window[0] else 2
        numbers[key] = number
    return numbers
