"""Rebuild of the ledger for the datasets of one code location."""

from datetime import datetime

from feed_assets.core.feeds import Partition
from feed_assets.core.readiness import Need
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.orchestration.declare.partitions import Existence, existence
from feed_assets.runs.rebuild import Rebuilt, rebuild
from feed_assets.runs.services import Services


def rebuild_ledger(graph: Graph, services: Services, now: datetime, *, rows: bool, trust: bool) -> Rebuilt:
    """Rebuild the ledger for this location's own feeds. `runs.rebuild` describes how much of it can be rebuilt."""
    appendable = {node.feed for node in graph.datasets() if node.is_appendable}
    return rebuild(
        services,
        graph.own(),
        lambda output: _need(graph, output, now),
        rows=rows,
        trust=trust,
        appendable=appendable,
    )


def _need(graph: Graph, output: Partition, now: datetime) -> Need | None:
    node = graph.node(output.feed)
    if (
        not isinstance(node.declaration, Dataset)
        or node.is_appendable
        or existence(node.partitions_def, output.key, now) is not Existence.EXISTS
    ):
        return None
    return need_of(graph, output)
