"""The inputs of one dataset, each as a checked `Input`."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

import dagster as dg

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.core.late_policy import Late
from feed_assets.core.windows import DAY, tiles
from feed_assets.orchestration.declare.declarations import Dataset, Declaration, Foreign, StateTable, metadata_of
from feed_assets.orchestration.declare.input_specs import Input, asset_key
from feed_assets.orchestration.declare.mappings import BatchDate, Previous
from feed_assets.orchestration.declare.partitions import Partitions, by_dimension, times_of
from feed_assets.orchestration.declare.sub_partitions import levels_of, sub_partition_of
from feed_assets.orchestration.declare.time_windows import bounds, key_at

NAMED = 5
"""Greatest number of sub-partitions that an error names."""


def resolve(
    feed: Feed,
    partitions_def: Partitions,
    inputs: Mapping[str, "dg.AssetSpec | dg.AssetsDefinition | Input"],
    version_in_key: bool = False,
) -> dict[str, Input]:
    """Return every input of a dataset as an `Input`. Raise InvalidDefinition if a mapping cannot work."""
    read = {name: given if isinstance(given, Input) else Input(given) for name, given in inputs.items()}
    itself = metadata_of(Dataset(feed, (feed,), (), (), Late()))
    own = dg.AssetSpec(asset_key(feed, version_in_key), partitions_def=partitions_def, metadata=itself)
    read = {
        name: replace(each, feed=own) if isinstance(each.mapping, Previous) else each for name, each in read.items()
    }
    for name, each in read.items():
        _check_time(feed, partitions_def, each, _declaration(feed, name, each))
    return read


def _declaration(feed: Feed, name: str, read: Input) -> Declaration:
    """Return an input's declaration.

    Raise InvalidDefinition if the input is no feed. The message names the dataset and the argument.
    """
    try:
        return read.declaration
    except InvalidDefinition as error:
        argument = f"inputs[{name!r}]" if name.isidentifier() else name
        raise InvalidDefinition(f"{feed} cannot take {argument}: {error}") from None


def _check_time(feed: Feed, partitions_def: Partitions, read: Input, declared: Declaration) -> None:
    """Raise InvalidDefinition if an input is read by time but partitions have no time, or `only` has an unknown key."""
    if isinstance(declared, StateTable):
        _check_mapping(feed, declared, read)
    if (read.by_span or read.beyond) and times_of(partitions_def) is None:
        raise InvalidDefinition(
            f"{feed} has no time partitions, but reads {declared.feed} by time: expected partitions_def with a "
            "dimension of time windows. Add one."
        )
    if read.beyond:
        _check_beyond(feed, declared)
    if read.by_span and times_of(read.spec.partitions_def) is None:
        raise InvalidDefinition(
            f"{declared.feed} has no time partitions, but {feed} reads it by time: expected no mapping. Remove the "
            "mapping."
        )
    _check_only(declared, read)
    _check_zones(feed, partitions_def, read)
    if isinstance(declared, StateTable):
        _check_members(feed, partitions_def, declared, read)
        _check_windows(feed, partitions_def, declared, read)


def _check_mapping(feed: Feed, table: StateTable, read: Input) -> None:
    if isinstance(read.mapping, dg.PartitionMapping):
        raise InvalidDefinition(
            f"{feed} reads the windows of {table.feed} by {type(read.mapping).__name__}: expected Within, BatchDate "
            "or DayToDate, or no mapping, for the windows within the output's own time."
        )


def _check_beyond(feed: Feed, declared: Declaration) -> None:
    if isinstance(declared, StateTable):
        raise InvalidDefinition(
            f"{feed} waits for the watermark of {declared.feed}: expected no `beyond`, because the dataset waits for "
            "complete windows of the output's own time anyway. Remove `beyond`."
        )
    if isinstance(declared, Foreign | Dataset) and declared.appendable:
        raise InvalidDefinition(
            f"{feed} waits until the batches of {declared.feed} reach far enough: expected a feed whose partitions are "
            "replaced as a whole, because the next batch may have data of any time. Remove `beyond`, or report the "
            "feed's hours to a state_table and read that."
        )


def check_late(feed: Feed, partitions_def: Partitions, policies: Iterable[Late | None]) -> None:
    """Raise InvalidDefinition if `lookback` or `cut_off` is set for late data, but the partitions have no time."""
    if times_of(partitions_def) is None and any(each.counts_periods for each in policies if each):
        raise InvalidDefinition(
            f"{feed} has no time partitions, but `lookback` and `cut_off` of Late count from the end of a partition: "
            "expected partitions_def with a dimension of time windows. Add one, or remove both."
        )


def _check_zones(feed: Feed, partitions_def: Partitions, read: Input) -> None:
    """Raise InvalidDefinition if Dagster would have to map between time zones. Dagster cannot do this."""
    own, its = times_of(partitions_def), times_of(read.spec.partitions_def)
    maps = read.mapping is None or isinstance(read.mapping, dg.TimeWindowPartitionMapping)
    if own and its and own.timezone != its.timezone and maps and not read.by_span:
        raise InvalidDefinition(
            f"{feed} has partitions in {own.timezone} and reads {read.declaration.feed} in {its.timezone}: expected a "
            "mapping across time zones. Use Within() or BatchDate(): Input(…, mapping=Within())."
        )


def _check_members(feed: Feed, partitions_def: Partitions, table: StateTable, read: Input) -> None:
    """Raise InvalidDefinition for a sub-partition that the table does not have. Its windows would never be complete."""
    tracked, parts = table.tracked, by_dimension(partitions_def)
    named = {*by_dimension(read.spec.partitions_def), *levels_of(tracked)}
    only = dict(read.by_span.only) if read.by_span else {}
    keys = {
        name: [only[name]] if name in only else part.get_partition_keys()
        for name, part in parts.items()
        if name in named and isinstance(part, dg.StaticPartitionsDefinition)
    } | {name: [key] for name, key in only.items()}
    for values in product(*keys.values()) if tracked.members else ():
        sub_partition = sub_partition_of(tracked, dict(zip(keys, values, strict=True)))
        if sub_partition and sub_partition not in tracked.members:
            examples = ", ".join(sorted(tracked.members)[:NAMED])
            raise InvalidDefinition(
                f"{feed} reads {sub_partition} of {table.feed}, which has no such sub-partition: expected one of its "
                f"sub-partitions, such as {examples}. Correct the key, or add it to the table."
            )


def _check_windows(feed: Feed, partitions_def: Partitions, table: StateTable, read: Input) -> None:
    """Raise InvalidDefinition if a table's smallest windows do not exactly fill the first partition of its reader."""
    times, tracked = times_of(partitions_def), table.tracked
    if times is None or tracked.base == DAY or isinstance(read.mapping, BatchDate):
        return
    first = bounds(times, key_at(times, times.start))
    if not tiles(*first, (tracked.base,)):
        raise InvalidDefinition(
            f"{feed} has partitions of {first[0]:%H:%M} to {first[1]:%H:%M} UTC, which no windows of {table.feed} fill "
            f"exactly: its smallest windows have {tracked.base}. Expected partitions of whole windows, or a smaller "
            "grain in its completeness."
        )


def _check_only(declared: Declaration, read: Input) -> None:
    parts = by_dimension(read.spec.partitions_def)
    levels = levels_of(declared.tracked) if isinstance(declared, StateTable) else ()
    for name, key in read.by_span.only.items() if read.by_span else ():
        part = parts.get(name)
        if (part is None and name not in levels) or (
            isinstance(part, dg.StaticPartitionsDefinition) and not part.has_partition_key(key)
        ):
            expected = ", ".join([*parts, *levels]) if part is None else ", ".join(part.get_partition_keys())
            raise InvalidDefinition(f"only={{{name!r}: {key!r}}} of {declared.feed}: expected one of {expected}.")
