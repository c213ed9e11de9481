"""Runs of many partitions: which ready partitions can share one run, and which partitions an existing run builds.

Dagster names such a run by its first and last partition. With several dimensions, this range has every combination of
the keys between them.
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
    """Return the partition keys that a run names. Return [None] for an asset without partitions.

    An invalid range raises one of many error classes of Dagster and Python. Dagster itself fails such a run, too.
    """
    if partitions_def is None or RANGE_START not in tags:
        return [tags.get(PARTITION)]
    ends = dg.PartitionKeyRange(tags[RANGE_START], tags[RANGE_END])
    return [str(key) for key in partitions_def.get_partition_keys_in_range(ends)]


def in_blocks(partitions_def: Partitions, paths: Collection[str], limit: int) -> list[list[str]]:
    """Cut the paths of partitions into ranges of at most `limit`, each for one run.

    Ranges are sorted by the place of their earliest path in `paths`. Ranges contain only the given partitions, so that
    no run builds a partition that is not ready.
    """
    if len(paths) < 2 or limit == 1:
        return _singly(paths)
    ranges = _singly(paths)
    # Errors of many classes are possible, for example if a partition was removed since the decision.
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
    """Return the block unchanged if Dagster finds the same partitions between its first and its last key.

    Otherwise return a block for each path. The result of Dagster may differ where clocks go back.
    """
    ends = [to_key(partitions_def, path) or "" for path in (block[0], block[-1])]
    read = named_by(partitions_def, dict(zip((RANGE_START, RANGE_END), ends, strict=True)))
    return [block] if {to_path(partitions_def, key) for key in read} == {*block} else _singly(block)


def joint(requests: Sequence[dg.RunRequest]) -> dg.RunRequest:
    """Join the requests of a block of partitions. Return a single request unchanged.

    The joined request keeps the tags that all requests have in common, except Dagster's tags for a single partition.
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
    """Return each path as a point: the number of its key in each dimension."""
    segments = {path: path.split("/") for path in paths}
    dimensions = by_dimension(partitions_def).values()
    numbers = [_numbers(part, {keys[at] for keys in segments.values()}) for at, part in enumerate(dimensions)]
    return {path: tuple(of[key] for of, key in zip(numbers, keys, strict=True)) for path, keys in segments.items()}


def _numbers(partitions_def: dg.PartitionsDefinition[str], keys: Iterable[str]) -> dict[str, int]:
    """Return a number for each key of a dimension.

    Two keys get consecutive numbers if they are neighbours in the dimension.
    """
    if not isinstance(partitions_def, dg.TimeWindowPartitionsDefinition):
        return {key: number for number, key in enumerate(partitions_def.get_partition_keys())}
    # Number only the given windows: with windows of a few minutes, a definition has too many.
    windows = sorted((bounds(partitions_def, key), key) for key in keys)
    numbers, number = {windows[0][1]: 0}, 0
    for (before, _), (window, key) in pairwise(windows):
        number += 1 if before[1] == window[0] else 2
        numbers[key] = number
    return numbers
