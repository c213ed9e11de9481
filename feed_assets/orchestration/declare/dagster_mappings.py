"""Dagster's mappings by time, computed from one rule: an output needs an input if their windows overlap.

Dagster computes inputs from an output, and outputs from an input, in different ways. The two results disagree on days
whose midnight occurs twice. So decisions of feed_assets use this module. Dagster's own graph still uses Dagster's
mapping. Mappings of other kinds, and mappings that users wrote, are not computed here: this module calls their own
functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import product
from typing import NamedTuple

import dagster as dg

from feed_assets.orchestration.declare.partitions import Partitions, by_dimension, has_key
from feed_assets.orchestration.declare.time_windows import (
    INSTANT,
    Bounds,
    Times,
    bounds,
    current_time,
    existing_span,
    is_partition,
    key_at,
    keys_between,
    moved,
)

_Part = dg.PartitionsDefinition[str]


class Needed(NamedTuple):
    """Paths of an input's partitions that an output needs: those that exist, and those that do not exist (yet)."""

    existing: list[str]
    absent: list[str]


class _Edge(NamedTuple):
    """A dimension of an input, and the output's dimension that it is mapped to."""

    parent: str
    child: str
    mapping: dg.PartitionMapping


def is_by_time(mapping: dg.PartitionMapping, child: Partitions, parent: Partitions) -> bool:
    """Return whether this module computes a mapping itself: it does for Dagster's own mappings between time windows."""
    parts = by_dimension(child), by_dimension(parent)
    return any(_is_time(edge, *parts) for edge in _edges(mapping, child, parent))


def _is_time(edge: _Edge, child: Mapping[str, _Part], parent: Mapping[str, _Part]) -> bool:
    its, own = parent[edge.parent], child[edge.child]
    return _as_times(edge.mapping, own, its) is not None


def _as_times(mapping: dg.PartitionMapping, child: _Part, parent: _Part) -> tuple[Times, Times] | None:
    """Return both dimensions if the mapping between them is computed from time windows. Otherwise return None."""
    if isinstance(child, Times) and isinstance(parent, Times):
        decided = isinstance(mapping, dg.TimeWindowPartitionMapping | dg.IdentityPartitionMapping)
        return (child, parent) if decided and _is_dagsters_own(mapping) else None
    return None


def _is_dagsters_own(mapping: dg.PartitionMapping) -> bool:
    """Return whether the mapping's class is Dagster's own. A derived class may map differently."""
    return type(mapping).__module__.startswith("dagster.")


def _edges(mapping: dg.PartitionMapping, child: Partitions, parent: Partitions) -> list[_Edge]:
    if child is None or parent is None:
        return []
    has_dimensions = isinstance(mapping, dg.MultiPartitionMapping | dg.MultiToSingleDimensionPartitionMapping)
    if has_dimensions and _is_dagsters_own(mapping):
        return [
            _Edge(
                each.upstream_dimension_name or "partition",
                each.downstream_dimension_name or "partition",
                each.partition_mapping,
            )
            for each in mapping.get_dimension_dependencies(parent, child)
        ]
    single = not isinstance(child, dg.MultiPartitionsDefinition) and not isinstance(
        parent, dg.MultiPartitionsDefinition
    )
    return [_Edge("partition", "partition", mapping)] if single else []


def needed(mapping: dg.PartitionMapping, child: Partitions, parent: Partitions, path: str) -> Needed:
    """Return the partitions of an input that an output path needs.

    Call this only if `is_by_time` is true for the mapping.
    """
    own, its = by_dimension(child), by_dimension(parent)
    keys, edges = _segments(child, path), {edge.parent: edge for edge in _edges(mapping, child, parent)}
    existing_by_part, all_of = list[Sequence[str]](), list[Sequence[str]]()
    for name, part in its.items():
        edge = edges.get(name)
        existing, absent = _above(edge.mapping, own[edge.child], part, keys[edge.child]) if edge else (_all(part), ())
        existing_by_part.append(existing)
        all_of.append([*existing, *absent])
    paths = _paths(existing_by_part)
    return Needed(paths, sorted({*_paths(all_of)} - {*paths}))


def affected(mapping: dg.PartitionMapping, child: Partitions, parent: Partitions, paths: Iterable[str]) -> list[str]:
    """Return the sorted paths of existing outputs that need any of these partitions of an input."""
    own, its = by_dimension(child), by_dimension(parent)
    edges = {edge.child: edge for edge in _edges(mapping, child, parent)}
    below = {name: _Below(edges.get(name), part, its) for name, part in own.items()}
    outputs = set[str]()
    for path in paths:
        keys = _segments(parent, path)
        outputs.update(_paths([below[name].of(keys) for name in own]))
    return sorted(outputs)


class _Below:
    """A cache for one dimension of an output: for each key of the input, the output's keys that need this key.

    Each key of the input is mapped once.
    """

    def __init__(self, edge: _Edge | None, part: _Part, parent: Mapping[str, _Part]) -> None:
        self.edge, self.part, self.parent = edge, part, parent
        self.by_key: dict[str, Sequence[str]] = {}

    def of(self, keys: Mapping[str, str]) -> Sequence[str]:
        """Return the output keys for an input partition, given by its keys."""
        key = keys[self.edge.parent] if self.edge else ""
        if key not in self.by_key:
            edge = self.edge
            self.by_key[key] = (
                _beneath(edge.mapping, self.part, self.parent[edge.parent], key) if edge else _all(self.part)
            )
        return self.by_key[key]


def _segments(partitions_def: Partitions, path: str) -> dict[str, str]:
    return dict(zip(by_dimension(partitions_def), path.split("/"), strict=False))


def _paths(keys: Iterable[Sequence[str]]) -> list[str]:
    return ["/".join(each) for each in product(*keys)]


def _all(part: _Part) -> Sequence[str]:
    return part.get_partition_keys()


def _above(mapping: dg.PartitionMapping, child: _Part, parent: _Part, key: str) -> tuple[list[str], list[str]]:
    """Return the keys of an input dimension that an output key needs: the existing keys, and the missing ones."""
    times, now = _as_times(mapping, child, parent), current_time()
    if times is None:
        subset = child.subset_with_partition_keys([key])
        mapped = mapping.get_upstream_mapped_partitions_result_for_partitions(subset, child, parent)
        absent = mapped.required_but_nonexistent_subset.get_partition_keys()
        return sorted(mapped.partitions_subset.get_partition_keys()), sorted(absent)
    keys = _read(mapping, *times, key)
    exists_by_key = {each: has_key(parent, each, now) for each in keys}
    ignores = isinstance(mapping, dg.TimeWindowPartitionMapping) and mapping.allow_nonexistent_upstream_partitions
    absent = [] if ignores else [each for each, is_there in exists_by_key.items() if not is_there]
    return [each for each, is_there in exists_by_key.items() if is_there], absent


def _read(mapping: dg.PartitionMapping, child: Times, parent: Times, key: str) -> Sequence[str]:
    if not isinstance(mapping, dg.TimeWindowPartitionMapping) or _is_one_to_one(mapping, child, parent):
        return [key]
    start, end = _span(mapping, child, parent, bounds(child, key))
    return keys_between(parent, start, end) if start < end else []


def _is_one_to_one(mapping: dg.TimeWindowPartitionMapping, child: Times, parent: Times) -> bool:
    """Return whether each key is mapped to itself. This is the usual case, and needs no computation of windows."""
    return mapping.start_offset == mapping.end_offset == 0 and (child is parent or child == parent)


def _span(mapping: dg.TimeWindowPartitionMapping, child: Times, parent: Times, window: Bounds) -> Bounds:
    """Return the time that an output reads.

    An offset moves neither its start nor its end beyond the existing partitions of the input.
    """
    start, end = moved(child, window[0], mapping.start_offset), moved(child, window[1], mapping.end_offset)
    return _bounded(parent, start, mapping.start_offset), _bounded(parent, end, mapping.end_offset)


def _bounded(parent: Times, moment: datetime, offset: int) -> datetime:
    existing = existing_span(parent, current_time()) if offset else None
    if existing is None:
        return moment
    return max(existing[0], moment) if offset < 0 else min(existing[1], moment)


def _beneath(mapping: dg.PartitionMapping, child: _Part, parent: _Part, key: str) -> Sequence[str]:
    """Return the existing keys of an output dimension that need one key of an input."""
    times = _as_times(mapping, child, parent)
    if times is None:
        changed = parent.subset_with_partition_keys([key])
        return sorted(mapping.get_downstream_partitions_for_partitions(changed, parent, child).get_partition_keys())
    now = current_time()
    return [each for each in _near(mapping, *times, key) if is_partition(times[0], each, now)]


def _near(mapping: dg.PartitionMapping, child: Times, parent: Times, key: str) -> Iterable[str]:
    """Return the keys of outputs that read a time window of an input.

    Include keys whose partitions do not exist yet.
    """
    if not isinstance(mapping, dg.TimeWindowPartitionMapping) or _is_one_to_one(mapping, child, parent):
        return [key]
    start, end = bounds(parent, key)
    first = bounds(child, key_at(child, start))[0]
    last = bounds(child, key_at(child, end - INSTANT))[1]
    near = moved(child, first, -mapping.end_offset), moved(child, last, -mapping.start_offset)
    spans = {each: _span(mapping, child, parent, bounds(child, each)) for each in keys_between(child, *near)}
    return [each for each, read in spans.items() if read[0] < min(end, read[1]) and start < read[1]]
