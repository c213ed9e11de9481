"""Tables of which others tell by events, as a user declares them: external assets, each with its event source."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.feeds import Feed
from feed_assets.orchestration.graph import Graph
from feed_assets.orchestration.inputs import asset_key
from feed_assets.orchestration.metadata import FEED, ROLE, SOURCE, TABLE, TABLE_NAME, cadence_metadata, value_of
from feed_assets.orchestration.partitions import Partitions
from feed_assets.sources.declared import EventSource, of_json, to_json


def event_table(
    name: str,
    *,
    source: EventSource,
    table_name: str | None = None,
    partitions_def: Partitions = None,
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[str] | None = None,
) -> dg.AssetSpec:
    """Declare a table of which an event source tells, as an external asset. Its data version is its last marker.

    `table_name` is what the source calls it, by default its name here, such as `shop/orders`. An event that the
    `cadence` expects and that does not come raises an alert. Raises InvalidName.
    """
    found = Feed.parse(name)
    return dg.AssetSpec(
        asset_key(found),
        partitions_def=partitions_def,
        description=description or f"Table {table_name or name} of the event source {source.name}.",
        group_name=asset_key(found).path[0],
        kinds={"table"},
        owners=owners,
        metadata={FEED: str(found), ROLE: TABLE, SOURCE: to_json(source), TABLE_NAME: table_name or name}
        | cadence_metadata(cadence),
    )


def sources_of(graph: Graph) -> dict[str, EventSource]:
    """The event sources of a code location, by name."""
    return declared_sources(node.metadata for node in graph.tables())


def declared_sources(metadata: Iterable[Mapping[str, Any]]) -> dict[str, EventSource]:
    """The event sources that assets' metadata hold, by name. Raises InvalidDefinition for two of one name."""
    found: dict[str, EventSource] = {}
    for source in [of_json(value_of(each[SOURCE])) for each in metadata if SOURCE in each]:
        if found.setdefault(source.name, source) != source:
            raise InvalidDefinition(f"event source {source.name} is declared twice and differs: expected one.")
    return found
