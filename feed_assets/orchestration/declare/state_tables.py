"""Declarations of state tables: external assets that are read by windows.

Other teams report which windows are complete.
"""

from collections.abc import Sequence

import dagster as dg

from feed_assets.core.argument_types import Owner
from feed_assets.core.completeness import Completeness
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.sub_partitions import Regions, SubPartitions, Tracked
from feed_assets.core.typed import typed
from feed_assets.orchestration.declare.declarations import StateTable, metadata_of
from feed_assets.orchestration.declare.input_specs import asset_key, declared_feed, group_of
from feed_assets.orchestration.declare.partitions import Partitions, is_offset_day, times_of
from feed_assets.orchestration.declare.sub_partitions import checked


@typed
def state_table(
    name: str,
    *,
    partitions_def: Partitions,
    completeness: Completeness | None = None,
    regions: Regions | None = None,
    sub_partitions: SubPartitions | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
    version_in_key: bool = False,
) -> dg.AssetSpec:
    """Declare a table that other teams fill. Their reports name the time windows that are complete.

    A dataset that reads the table waits for the windows within its output's time and gets the `Span` to read. If a
    dimension of the output has the name of a level of sub-partitions, the output reads only its own key of this level.

    Args:
        name: The table's name in this project, such as `web/foo`.
        partitions_def: Dagster's partitions, with a dimension of time. The keys of another dimension are the
            sub-partitions. The values of several levels are joined by `.`.
        completeness: Rules for complete windows; by default `Completeness()`.
        regions: The table's regions, each with its own midnight.
        sub_partitions: The table's sub-partitions, if they are not regions.
        description: A description for the UI.
        owners: Owners for the UI: `team:web`, or an e-mail address.
        version_in_key: True if the asset key contains the version. Needed if a newer version is declared beside an
            older one.

    Returns:
        The spec of the external asset, to be an input of datasets.

    Raises:
        InvalidName: The name is invalid.
        InvalidDefinition: A value has a wrong type, the partitions have no time, or a region's days do not begin with
            one of the smallest windows.
    """
    feed = declared_feed(name)
    times = times_of(partitions_def)
    if times is None:
        raise InvalidDefinition(f"{feed} has partitions without time: expected a dimension of time windows. Add one.")
    if is_offset_day(times):
        raise InvalidDefinition(
            f"{feed} has days that begin at {times.hour_offset:02d}:{times.minute_offset:02d}: expected midnight, "
            "because its windows do. Remove the offset; its readers may have days with an offset."
        )
    return dg.AssetSpec(
        asset_key(feed, version_in_key),
        partitions_def=partitions_def,
        description=description or f"Table {feed}, read by complete windows.",
        group_name=group_of(feed),
        kinds={"table"},
        owners=owners,
        metadata=metadata_of(StateTable(feed, _tracked(completeness or Completeness(), regions, sub_partitions))),
    )


def _tracked(completeness: Completeness, regions: Regions | None, sub_partitions: SubPartitions | None) -> Tracked:
    """Return the rules for a table's windows. Raise InvalidDefinition for both regions and sub-partitions."""
    if regions and sub_partitions:
        raise InvalidDefinition(
            "`regions` and `sub_partitions` are both given: expected one of them. Put the sub-partitions below the "
            "regions: Regions({…}, below=SubPartitions(…))."
        )
    return checked(Tracked.of(completeness, regions or sub_partitions))
