"""The tables that each pipeline writes, from the declaration, a lineage table, or the asset graph."""

from collections.abc import Collection, Iterable

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed
from feed_assets.core.pipelines import PipelineTable
from feed_assets.core.propagation import Consumer
from feed_assets.feeds.opened import open_board
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.by_events import LineageFile, LineageTable, Pipelines
from feed_assets.orchestration.declare.declarations import EventTable, Foreign, StateTable
from feed_assets.settings import expand, settings
from feed_assets.sources.lineage_table import Lineage, read_lineage, read_lineage_file


def consumer_of(graph: Graph, node: Node) -> Consumer | None:
    """Return a dataset as a consumer of events. Return None if events do not build it.

    The graph caches the result or the error. Otherwise an unreachable lineage table or file would be tried again for
    each partition. Raise SourceUnavailable or a blackboard error if the table or file cannot be read.
    """
    if node.feed not in graph.consumers:
        try:
            graph.consumers[node.feed] = _consumer(graph, node)
        except FeedAssetsError as error:
            graph.consumers[node.feed] = error
    consumer = graph.consumers[node.feed]
    if isinstance(consumer, FeedAssetsError):
        raise consumer
    return consumer


def _consumer(graph: Graph, node: Node) -> Consumer | None:
    by_events = node.by_events
    if by_events is None:
        return None
    lineage = by_events.pipelines
    is_read = isinstance(lineage, LineageTable | LineageFile)
    pipelines = _declared_pipelines(graph, _read(lineage)) if is_read else _by_origin(graph, graph.parents(node))
    return by_events.consumer(node.feed, frozenset(parent.feed for parent in graph.parents(node)), pipelines)


def published(graph: Graph, retired: Collection[Feed] = ()) -> frozenset[PipelineTable]:
    """Return the tables of a code location's pipelines, each with the pipeline's name in our published events.

    Event tables are left out, because others publish their events. Retired datasets are left out, too.
    """
    # Inputs come first, because an origin depends only on the origins of inputs.
    own = {feed: graph.node(feed) for feed in graph.own()}
    foreign_nodes = [node for node in graph.by_feed.values() if node.feed not in own]
    versions = {feed: graph.assets.get(node.key).code_version or "" for feed, node in own.items()}
    location = min(map(str, own), default="")
    return frozenset(
        PipelineTable(name, str(feed), versions.get(feed, ""), location)
        for name, feeds in _by_origin(graph, [*foreign_nodes, *own.values()]).items()
        for feed in feeds
        if feed not in retired and not isinstance(graph.node(feed).declaration, EventTable)
    )


def _read(lineage: LineageTable | LineageFile) -> Lineage:
    if isinstance(lineage, LineageFile):
        board = open_board(settings(), name=lineage.blackboard)
        return read_lineage_file(board, lineage.key, lineage.pipeline, lineage.table_name)
    return read_lineage(expand(lineage.url), lineage.table, lineage.pipeline, lineage.table_name, lineage.schema)


def _declared_pipelines(graph: Graph, lineage: Lineage) -> Pipelines:
    by_name = graph.by_table_name() | {str(feed): feed for feed in graph.by_feed}
    return {name: frozenset(by_name[table] for table in tables if table in by_name) for name, tables in lineage.items()}


def _by_origin(graph: Graph, nodes: Iterable[Node]) -> Pipelines:
    """Return tables by the origin of their correlation ids: the table, or the tables, where these ids begin.

    Tables with the same origin have the same correlation ids.
    """
    origin_by_feed, tables_by_origin = dict[Feed, str](), dict[str, frozenset[Feed]]()
    for node in nodes:
        name = _origin(graph, node, origin_by_feed)
        tables_by_origin[name] = tables_by_origin.get(name, frozenset()) | {node.feed}
    return tables_by_origin


def _origin(graph: Graph, node: Node, origin_by_feed: dict[Feed, str]) -> str:
    """Return the origin of a table's correlation ids. `origin_by_feed` caches known origins."""
    if node.feed not in origin_by_feed:
        origin_by_feed[node.feed] = _origin_of_inputs(graph, node, origin_by_feed)
    return origin_by_feed[node.feed]


def _origin_of_inputs(graph: Graph, node: Node, origin_by_feed: dict[Feed, str]) -> str:
    """Return the origin of the inputs' correlation ids. If the inputs have different origins, return their combination.

    Return the table itself as the origin if others write it, or if the mapping of an input is not one-to-one.
    """
    if isinstance(node.declaration, Foreign | EventTable | StateTable):
        return str(node.feed)
    parents = graph.parents(node)
    if any(not graph.is_one_to_one(parent, node) for parent in parents):
        return str(node.feed)
    origins = sorted({_origin(graph, parent, origin_by_feed) for parent in parents})
    return origins[0] if len(origins) == 1 else f"({' + '.join(origins)})"
