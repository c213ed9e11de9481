"""Topics that match the patterns of a code location: how the connector and the loader get them while they run."""

from typing import TYPE_CHECKING

from feed_assets.core.topic_patterns import TopicPattern, identifier_of, table_in
from feed_assets.core.topics import Topic, TopicHistory, history_of
from feed_assets.settings import settings

if TYPE_CHECKING:
    from feed_assets.kafka.offset_range import Chunking
    from feed_assets.kafka.topic_watch import TopicWatch
    from feed_assets.orchestration.decide.graph import Graph
    from feed_assets.warehouse.loader import TableSource, TableSources


def patterns_in(graph: "Graph") -> list[TopicPattern]:
    """Return the patterns that a code location declares by `kafka_topics`."""
    from feed_assets.orchestration.declare.pattern_tables import patterns_of

    return patterns_of(graph.assets.asset_nodes)


def watch_of(graph: "Graph", chunking: "Chunking") -> "TopicWatch | None":
    """Return the watch for new topics of a code location. Return None if it declares no pattern."""
    from feed_assets.kafka.topic_watch import TopicWatch
    from feed_assets.ledger.database import open_ledger

    if not (patterns := patterns_in(graph)):
        return None
    declared, owners = _declared(graph)
    return TopicWatch(open_ledger(settings().ledger), chunking, patterns, declared, owners)


def _declared(graph: "Graph") -> tuple[dict[str, Topic], dict[str, str]]:
    """Return the topics that `kafka_topic` declares, and all names in use, each with the topic or asset that has it.

    Assets of a pattern are left out: the ledger has their topics.
    """
    from feed_assets.orchestration.declare.declarations import EventTable
    from feed_assets.orchestration.declare.warehouse_tables import table_names

    declared, by_pattern = dict[str, Topic](), set[str]()
    owners = {(name := "/".join(key.path)): f"the asset {name}" for key in graph.assets.get_all_asset_keys()}
    for feed, node in graph.by_feed.items():
        table = node.declaration
        if isinstance(table, EventTable) and table.by_pattern:
            by_pattern.add(feed.name)
            continue
        owners[feed.name] = f"the asset {feed}"
        if isinstance(table, EventTable) and table.topic:
            declared[table.table_name] = table.topic
            owners[identifier_of(table.table_name)] = table.table_name
        if isinstance(table, EventTable) and (loaded := table.loaded):
            owners |= {table_in(loaded.warehouse, name): f"the asset {feed}" for name in table_names(loaded)}
    return declared, {name: owner for name, owner in owners.items() if name not in by_pattern}


def loads_into(graph: "Graph", warehouse: str) -> bool:
    """Return whether a pattern of a code location loads topics into a warehouse."""
    return any(warehouse in (*each.warehouses, *each.histories) for each in patterns_in(graph))


def loaded_now(graph: "Graph", warehouse: str) -> "TableSources":
    """Return the recorded topics that the patterns of a code location load into a warehouse, by table name."""
    from feed_assets.ledger.database import open_ledger
    from feed_assets.ledger.matched_topics import recorded

    sources: dict[str, TableSource] = {}
    declared, _ = _declared(graph)
    with open_ledger(settings().ledger).read() as connection:
        for each in patterns_in(graph):
            if warehouse not in (*each.warehouses, *each.histories):
                continue
            topics = each.topics(recorded(connection, each.prefix))
            topics = {name: topic for name, topic in topics.items() if name not in declared}
            if warehouse in each.warehouses:
                sources |= topics
            if warehouse in each.histories:
                sources |= {history_of(name): TopicHistory(name, topic) for name, topic in topics.items()}
    return sources
