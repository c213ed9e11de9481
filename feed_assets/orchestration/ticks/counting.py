"""Counts and checks of this code location's feeds, which the sensor `feeds` reports to the state store."""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.states import feed_reports
from feed_assets.ledger.states.feed_reports import CountedFeed
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.overlapping_windows import windows_within
from feed_assets.orchestration.declare.declarations import Dataset, Foreign
from feed_assets.orchestration.declare.partitions import Existence, existence, extent_of
from feed_assets.orchestration.declare.sub_partitions import sub_partition_of
from feed_assets.orchestration.ticks.tick import OutOfTime, Tick


def count(tick: Tick, out_of_time: OutOfTime) -> None:
    """Report the record counts of changed partitions, and the results of their checks, to the state store."""
    if counted := counted_feeds(tick.graph, tick.now):
        tick.is_complete &= feed_reports.count(tick.ledger, counted, tick.now, out_of_time)


def counted_feeds(graph: Graph, now: datetime) -> dict[Feed, CountedFeed]:
    """Return the feeds of a code location that have rules for completeness."""
    nodes = [node for node in graph.by_feed.values() if isinstance(node.declaration, Foreign | Dataset)]
    return {
        node.feed: CountedFeed(
            node.tracked,
            _places(graph, node, now),
            isinstance(node.declaration, Foreign),
            partial(windows_within, node),
        )
        for node in nodes
        if node.tracked
    }


def _places(graph: Graph, node: Node, now: datetime) -> Callable[[Partition], str | None]:
    """Return a function that returns the sub-partition of a partition or batch.

    That function returns None if the partition can never exist.
    """

    def place(updated: Partition) -> str | None:
        partition = graph.parent_partition(updated)
        if node.tracked is None or existence(node.partitions_def, partition.key, now) is Existence.NEVER:
            return None
        return sub_partition_of(node.tracked, extent_of(node.partitions_def, partition.key).values)

    return place
