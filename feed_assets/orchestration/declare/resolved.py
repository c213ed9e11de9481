"""The inputs of one dataset, each as an `Input` of it; what cannot be one is refused."""

from collections.abc import Mapping
from dataclasses import replace

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.lateness import Late
from feed_assets.orchestration.declare.declarations import Dataset, Declaration, Foreign, StateTable, metadata_of
from feed_assets.orchestration.declare.inputs import Input, asset_key
from feed_assets.orchestration.declare.mappings import Previous
from feed_assets.orchestration.declare.partitions import Partitions, by_dimension, times_of
from feed_assets.orchestration.declare.sub_partitions import levels_of


def resolve(
    feed: Feed, partitions_def: Partitions, inputs: Mapping[str, "dg.AssetSpec | dg.AssetsDefinition | Input"]
) -> dict[str, Input]:
    """Every input of a dataset as an `Input`. Raises InvalidDefinition for a mapping that cannot be one of it."""
    read = {name: given if isinstance(given, Input) else Input(given) for name, given in inputs.items()}
    itself = metadata_of(Dataset(feed, (feed,), (), (), Late()))
    own = dg.AssetSpec(asset_key(feed), partitions_def=partitions_def, metadata=itself)
    read = {
        name: replace(each, feed=own) if isinstance(each.mapping, Previous) else each for name, each in read.items()
    }
    for each in read.values():
        _check_time(feed, partitions_def, each)
    return read


def _check_time(feed: Feed, partitions_def: Partitions, read: Input) -> None:
    """Raise InvalidDefinition if what is decided by time has none, or `only` names what the input has not."""
    declared = read.declaration
    if isinstance(declared, StateTable) and isinstance(read.mapping, dg.PartitionMapping):
        raise InvalidDefinition(
            f"{feed} reads the windows of {declared.feed} by {type(read.mapping).__name__}: expected Within, BatchDate "
            "or DayToDate, or no mapping, which are the windows that fill the output's own time."
        )
    if (read.by_span or read.beyond) and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{feed} has no partitions of time, and reads {declared.feed} by time: expected partitions_def with a "
            "dimension of time windows. Add one."
        )
    if read.beyond and isinstance(declared, Foreign) and declared.appendable:
        raise InvalidDefinition(
            f"{feed} waits until the batches of {declared.feed} go far enough: expected a feed whose partitions are "
            "replaced whole, as the next batch may bring anything. Remove `beyond`, or give the feed's hours to a "
            "state_table and read that."
        )
    if read.by_span and times_of(read.spec.partitions_def) is None:
        raise InvalidDefinition(
            f"{declared.feed} has no partitions of time, and {feed} reads it by time: expected no mapping. Remove it."
        )
    _check_only(declared, read)


def _check_only(declared: Declaration, read: Input) -> None:
    parts = by_dimension(read.spec.partitions_def)
    levels = levels_of(declared.tracked) if isinstance(declared, StateTable) else ()
    for name, key in read.by_span.only.items() if read.by_span else ():
        part = parts.get(name)
        if (part is None and name not in levels) or (
            isinstance(part, dg.StaticPartitionsDefinition) and not part.has_partition_key(key)
        ):
            known = ", ".join([*parts, *levels]) if part is None else ", ".join(part.get_partition_keys())
            raise InvalidDefinition(f"only={{{name!r}: {key!r}}} of {declared.feed}: expected one of {known}.")
