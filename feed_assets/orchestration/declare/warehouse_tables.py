"""Declarations of warehouse tables that follow a Kafka topic or a dataset: each load is an event."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from feed_assets.core.argument_types import Owner
from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.examples import Example
from feed_assets.core.message_words import shortened
from feed_assets.core.topics import HISTORY, history_of, versions_of
from feed_assets.core.typed import typed
from feed_assets.core.warehouses import table_of
from feed_assets.orchestration.declare.cadences import check_cadence, freshness_of
from feed_assets.orchestration.declare.declarations import (
    Dataset,
    Declaration,
    EventTable,
    LoadedDataset,
    LoadedTopic,
    LoadedUnion,
    declaration_of,
    metadata_of,
)
from feed_assets.orchestration.declare.input_specs import Input, asset_key, declared_feed, group_of
from feed_assets.orchestration.declare.union_tables import union_of
from feed_assets.sources.declared import EventSource, LoadedTables

_NAMED = 10
"""The most topics that a description lists."""


@typed
def warehouse_table(
    name: str,
    *,
    topic: Annotated[dg.AssetSpec, Example("clicks", "what kafka_topic gives")] | None = None,
    topics: Annotated[Sequence[dg.AssetSpec], Example("[clicks, views]", "what kafka_topic gives")] | None = None,
    union: str | None = None,
    topic_in_key: bool = False,
    dataset: Annotated[dg.AssetSpec | dg.AssetsDefinition, Example("orders", "what @feed_asset gives")] | None = None,
    warehouse: str,
    history: bool = False,
    lag: Annotated[int, Field(ge=1)] | None = None,
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[Owner] | None = None,
) -> dg.AssetSpec:
    """Declare the table of a Kafka topic or a dataset in a warehouse, as an external asset: each load is an event.

    `feed-assets warehouse load` loads the table. The asset has one partition per partition of the topic or dataset. For
    a topic, an event's marker is the first offset that is not loaded yet. For a dataset, the marker is the time of the
    load. Source: "Streaming Messages from Kafka into Redshift in near Real-Time" (Yelp, 2016), the Redshift Spolt.

    Args:
        name: The table's name in this project, such as `main/ads/clicks`.
        topic: The topic, as `kafka_topic` declares it. Give either `topic`, `topics` or `dataset`.
        topics: Several topics that are loaded into one table, each as `kafka_topic` declares it. They need the same
            `key`, `newest_by`, `conflicts`, `mask` and `flatten`. The table has their columns by name, and `_topic`.
        union: The name in the warehouse of the table of `topics`, such as `shop.orders`.
        topic_in_key: True if equal keys of two `topics` are two rows. By default a key is one row: with `newest_by` the
            row with the greatest value wins, and without it a key from a second topic is a conflict.
        dataset: The asset of `@feed_asset`. The table has the rows of each partition's newest valid update.
        warehouse: The warehouse's name in `FEED_ASSETS_WAREHOUSES`.
        history: True for a table `<topic>_history` of a topic, or `<union>_history`, in which each message is a row. A
            view `<topic>_versions` has each version of a key, with the range in which it was valid. By default a table
            has the latest row of each key. A topic may have both in one warehouse.
        lag: Greatest number of a partition's messages that may have no row yet. If there are more, the check
            `caught_up` fails and an alert opens.
        cadence: Schedule of loads. A missing load opens an alert. A cron in it also sets the asset's freshness policy
            in Dagster.
        description: A description for the UI.
        owners: Owners for the UI: `team:shop`, or an e-mail address; by default the owners of the topic or dataset.

    Returns:
        The spec of the external asset, to be an input of datasets by events.

    Raises:
        InvalidName: The name is invalid.
        InvalidDefinition: A value has a wrong type or is out of bounds, not exactly one of topic, topics and dataset is
            given, a topic is not from `kafka_topic`, topics do not fit together, the dataset is not from `@feed_asset`,
            or a dataset has a lag or a history.
    """
    feed = declared_feed(name)
    if (topics is None) and (union is not None or topic_in_key):
        raise InvalidDefinition(f"{name} has union or topic_in_key: expected `topics`, the topics of the union.")
    if topics is not None and (topic or dataset):
        raise InvalidDefinition(f"{name}: expected one of `topic`, `topics` and `dataset`, found several.")
    if topics is not None:
        upstreams, loaded = union_of(name, topics, union, warehouse)
        loaded = replace(loaded, topic_in_key=topic_in_key, is_history=history)
        partitions_def = dg.DynamicPartitionsDefinition(name=f"kafka_union/{union}")
    else:
        upstream, loaded = _loaded(name, topic, dataset, warehouse)
        upstreams, partitions_def = [upstream], upstream.partitions_def
    if history and isinstance(loaded, LoadedDataset):
        raise InvalidDefinition(
            f"{name} has history=True: expected a topic, because the dataset {loaded.name} has no messages. Each of "
            "its updates stays on the blackboard for the dataset's retention. Remove history."
        )
    if isinstance(loaded, LoadedTopic):
        loaded = replace(loaded, is_history=history)
    if lag and isinstance(loaded, LoadedDataset):
        raise InvalidDefinition(
            f"{name} has a lag, which counts messages: the dataset {loaded.name} has no messages. Remove the lag."
        )
    source = EventSource(f"warehouse_{warehouse.replace('-', '_')}", (LoadedTables(warehouse),))
    declared = EventTable(feed, source, table_of(warehouse, loaded.name), cadence, lag=lag, loaded=loaded)
    check_cadence(feed, cadence, partitions_def)
    text = f"The {'history' if history else 'table'} of the {_source_text(loaded)} in the warehouse {warehouse}."
    return dg.AssetSpec(
        asset_key(feed),
        deps=upstreams,
        partitions_def=partitions_def,
        description=description or "\n\n".join(filter(None, (text, *(each.description for each in upstreams)))),
        group_name=group_of(feed),
        kinds={"table"},
        owners=owners or [*dict.fromkeys(owner for each in upstreams for owner in each.owners)],
        freshness_policy=freshness_of(cadence),
        metadata={**metadata_of(declared), "dagster/table_name": loaded.name},
    )


def _source_text(loaded: LoadedTopic | LoadedUnion | LoadedDataset) -> str:
    if isinstance(loaded, LoadedUnion):
        return f"Kafka topics {shortened(loaded.topics, _NAMED)}"
    return f"Kafka topic {loaded.topic}" if isinstance(loaded, LoadedTopic) else f"dataset {loaded.name}"


def _loaded(
    name: str, topic: dg.AssetSpec | None, dataset: dg.AssetSpec | dg.AssetsDefinition | None, warehouse: str
) -> tuple[dg.AssetSpec, LoadedTopic | LoadedDataset]:
    """Return the topic or dataset that a table is loaded from. Raise InvalidDefinition unless exactly one is given."""
    upstreams = [each for each in (topic, dataset) if each is not None]
    if len(upstreams) != 1:
        raise InvalidDefinition(f"{name}: expected `topic` or `dataset`, found {'both' if upstreams else 'none'}.")
    spec = Input(upstreams[0]).spec
    declared = declaration_of(spec)
    if topic and isinstance(declared, EventTable) and declared.topic:
        return spec, LoadedTopic(declared.table_name, warehouse)
    if isinstance(declared, Dataset) and declared.appendable:
        raise InvalidDefinition(
            f"{name}: {declared.feed} is appendable: expected a dataset whose partitions have one update each, because "
            "batches are not loaded. Load a dataset that reads it."
        )
    if dataset and isinstance(declared, Dataset):
        return spec, LoadedDataset(declared.feed, warehouse)
    kind, factory = ("topic", "kafka_topic") if topic else ("dataset", "@feed_asset")
    raise InvalidDefinition(f"{name}: {kind} is {spec.key.to_user_string()}: expected what {factory} returns.")


def tables_of(
    topic: dg.AssetSpec, name: str, warehouses: Iterable[str], histories: Iterable[str], **options: Any
) -> Iterator[dg.AssetSpec]:
    """Yield the tables of a topic in some warehouses, and its histories. `options` are those of `warehouse_table`."""
    for each in warehouses:
        yield warehouse_table(f"{each}/{name}", topic=topic, warehouse=each, **options)
    for each in histories:
        yield warehouse_table(f"{each}/{history_of(name)}", topic=topic, warehouse=each, history=True, **options)


def declared_tables(
    declarations: Iterable[Declaration], warehouse: str
) -> dict[str, LoadedTopic | LoadedUnion | LoadedDataset]:
    """Return the topics and datasets that are loaded into a warehouse, by the names of their tables.

    Raise InvalidDefinition if two declarations need one name, as the table or the view of a history.
    """
    table_by_name: dict[str, EventTable] = {}
    loaded: dict[str, LoadedTopic | LoadedUnion | LoadedDataset] = {}
    for each in declarations:
        if not isinstance(each, EventTable) or not each.loaded or each.loaded.warehouse != warehouse:
            continue
        for name in table_names(each.loaded):
            if (first := table_by_name.setdefault(name, each)).feed != each.feed:
                names = f"{first.feed} and {each.feed}"
                raise InvalidDefinition(f"the table of {name} in {warehouse} is declared twice, as {names}.")
        loaded[each.loaded.name] = each.loaded
    return loaded


def table_names(loaded: LoadedTopic | LoadedUnion | LoadedDataset) -> list[str]:
    """Return the names that a table needs in its warehouse. A history has a view, too."""
    if isinstance(loaded, LoadedTopic | LoadedUnion) and loaded.is_history:
        return [loaded.name, versions_of(loaded.name.removesuffix(HISTORY))]
    return [loaded.name]
