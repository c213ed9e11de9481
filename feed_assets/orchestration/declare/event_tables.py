"""Declarations of event tables: external assets.

Other teams report the events of these tables through an event source.
"""

from collections.abc import Iterable, Sequence

import dagster as dg

from feed_assets.core.argument_types import Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.typed import typed
from feed_assets.orchestration.declare.cadences import check_cadence
from feed_assets.orchestration.declare.declarations import Declaration, EventTable, metadata_of
from feed_assets.orchestration.declare.input_specs import asset_key, declared_feed, group_of
from feed_assets.orchestration.declare.partitions import Partitions
from feed_assets.sources.declared import EventSource


@typed
def event_table(
    name: str,
    *,
    source: EventSource,
    table_name: str | None = None,
    partitions_def: Partitions = None,
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
    version_in_key: bool = False,
) -> dg.AssetSpec:
    """Declare a table whose events an event source reports, as an external asset.

    The asset's data version is the table's last marker.

    Args:
        name: The table's name in this project, such as `shop/orders`.
        source: The event source that reports its events.
        table_name: The table's name in the source; by default `name`.
        partitions_def: Dagster's partitions, if the events name partitions.
        cadence: Schedule of the events. A missing event opens an alert.
        description: A description for the UI.
        owners: Owners for the UI: `team:shop`, or an e-mail address.
        version_in_key: True if the asset key contains the version. Needed if a newer version is declared beside an
            older one.

    Returns:
        The spec of the external asset. Use it as an input of datasets that events build.

    Raises:
        InvalidName: The name is invalid.
        InvalidDefinition: A value has a wrong type.
    """
    feed = declared_feed(name)
    check_cadence(feed, cadence, partitions_def)
    return dg.AssetSpec(
        asset_key(feed, version_in_key),
        partitions_def=partitions_def,
        description=description or f"Table {table_name or name} of the event source {source.name}.",
        group_name=group_of(feed),
        kinds={"table"},
        owners=owners,
        metadata=metadata_of(EventTable(feed, source, table_name or name, cadence)),
    )


def declared_sources(declarations: Iterable[Declaration]) -> dict[str, EventSource]:
    """Return the event sources of declared tables by name.

    Raise InvalidDefinition if two sources with one name differ.
    """
    first_by_name: dict[str, EventTable] = {}
    for each in [each for each in declarations if isinstance(each, EventTable)]:
        if (first := first_by_name.setdefault(each.source.name, each)).source != each.source:
            raise _differing(first, each)
    return {name: each.source for name, each in first_by_name.items()}


def _differing(one: EventTable, other: EventTable) -> InvalidDefinition:
    name = one.source.name
    if one.topic and other.topic and one.table_name != other.table_name:
        return InvalidDefinition(
            f"the topics {one.table_name} ({one.feed}) and {other.table_name} ({other.feed}) both give the event "
            f"source {name}: expected names that differ in more than '.', '-' and '_'. Rename one of the topics, or "
            "declare it in a code location with its own ledger."
        )
    return InvalidDefinition(
        f"event source {name} is declared differently with {one.feed} and with {other.feed}: expected one declaration. "
        "Declare it once, or make both equal."
    )
