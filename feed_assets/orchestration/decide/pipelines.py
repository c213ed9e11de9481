"""Which tables each pipeline writes: as declared, as a lineage table says, or as it follows from the asset graph."""

from typing import TYPE_CHECKING

from feed_assets.core.feeds import Feed
from feed_assets.core.propagation import Consumer
from feed_assets.orchestration.declare.by_events import LineageTable, Pipelines
from feed_assets.orchestration.declare.declarations import EventTable, Foreign, StateTable
from feed_assets.settings import expand
from feed_assets.sources.lineage import read_lineage

if TYPE_CHECKING:
    from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node


def consumer_of(graph: "Graph", node: "Node") -> Consumer | None:
    """A dataset as a consumer of events; None if it is not built by them. Raises SourceUnavailable."""
    by_events = node.by_events
    if by_events is None:
        return None
    lineage = by_events.pipelines
    known = _lineage(graph, lineage) if isinstance(lineage, LineageTable) else _derived(graph, node)
    return by_events.consumer(node.feed, frozenset(parent.feed for parent in graph.parents(node)), known)


def _lineage(graph: "Graph", table: LineageTable) -> Pipelines:
    found = read_lineage(expand(table.url), table.table, table.pipeline, table.table_name)
    by_name = graph.by_table_name() | {str(feed): feed for feed in graph.by_feed}
    return {name: frozenset(by_name[table] for table in tables if table in by_name) for name, tables in found.items()}


def _derived(graph: "Graph", node: "Node") -> Pipelines:
    """The inputs of a dataset by where their correlation ids come from: those of one origin carry the same."""
    found: dict[str, frozenset[Feed]] = {}
    for parent in graph.parents(node):
        name = _origin(graph, parent)
        found[name] = found.get(name, frozenset()) | {parent.feed}
    return found


def _origin(graph: "Graph", node: "Node") -> str:
    """What a correlation id is made of: one input's, the same; several, or many partitions of one, a new one."""
    if isinstance(node.declaration, Foreign | EventTable | StateTable):
        return str(node.feed)
    parents = graph.parents(node)
    if any(not graph.is_one_to_one(parent, node) for parent in parents):
        return str(node.feed)
    origins = sorted({_origin(graph, parent) for parent in parents})
    return origins[0] if len(origins) == 1 else f"({' + '.join(origins)})"
