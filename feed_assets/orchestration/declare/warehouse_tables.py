"""Tables of a warehouse that follow a Kafka topic, as a user declares them: event tables whose events are the loads."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import dagster as dg
from pydantic import Field

from feed_assets.core.cadence import Cadence, longest_pause
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.rules import Owner
from feed_assets.core.typed import typed
from feed_assets.orchestration.declare.declarations import (
    Declaration,
    EventTable,
    LoadedTopic,
    declaration_of,
    metadata_of,
)
from feed_assets.orchestration.declare.inputs import asset_key, declared_feed, group_of
from feed_assets.sources.declared import EventSource, LoadedTables


@typed
def warehouse_table(
    name: str,
    *,
    topic: dg.AssetSpec,
    warehouse: str,
    lag: Annotated[int, Field(ge=1)] | None = None,
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
) -> dg.AssetSpec:
    """Declare the table of a Kafka topic in a warehouse, as an external asset: an event table, each load an event.

    `feed-assets warehouse load` loads it. It has a partition for each of the topic's; an event's marker is the first
    offset that is not loaded. Source: "Streaming Messages from Kafka into Redshift in near Real-Time"
    (Yelp, 2016), the Redshift Spolt.

    Args:
        name: Its name here, such as `main/ads/clicks`.
        topic: The topic, as `kafka_topic` declares it.
        warehouse: The warehouse's name, of those in `FEED_ASSETS_WAREHOUSES`.
        lag: Messages of one partition that may be without a row; more fail the check `caught_up`, and are an alert.
        cadence: When a load is expected; one that does not come raises an alert. Dagster's freshness policy is made
            of it.
        description: A description for the UI.
        owners: Owners for the UI: `team:shop`, or an address of e-mail; by default the topic's.

    Returns:
        The spec of the external asset, to be an input of datasets by events.

    Raises:
        InvalidName: The name is none that a table can have.
        InvalidDefinition: A value is of a wrong type, or out of its bounds, or the topic none of `kafka_topic`.
    """
    found, upstream = declared_feed(name), declaration_of(topic)
    if not isinstance(upstream, EventTable) or not upstream.topic:
        raise InvalidDefinition(f"{name}: topic is {topic.key.to_user_string()}: expected what kafka_topic returns.")
    source = EventSource(f"warehouse_{warehouse.replace('-', '_')}", (LoadedTables(warehouse),))
    loaded = LoadedTopic(upstream.table_name, warehouse)
    declared = EventTable(found, source, loaded.table_name, cadence, lag=lag, loaded=loaded)
    return dg.AssetSpec(
        asset_key(found),
        deps=[topic],
        partitions_def=topic.partitions_def,
        description=description or f"The table of the Kafka topic {upstream.table_name} in the warehouse {warehouse}.",
        group_name=group_of(found),
        kinds={"table"},
        owners=owners or topic.owners,
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=longest_pause(cadence)) if cadence else None,
        metadata=metadata_of(declared),
    )


def declared_tables(declarations: Iterable[Declaration], warehouse: str) -> list[str]:
    """The topics that are loaded into a warehouse. Raises InvalidDefinition for two tables of one topic."""
    found: dict[str, EventTable] = {}
    for each in declarations:
        if not isinstance(each, EventTable) or not each.loaded or each.loaded.warehouse != warehouse:
            continue
        if (first := found.setdefault(each.loaded.topic, each)).feed != each.feed:
            names = f"{first.feed} and {each.feed}"
            raise InvalidDefinition(f"the table of {each.loaded.topic} in {warehouse} is declared twice, as {names}.")
    return [*found]
