"""CloudEvents (version 1.0) about changes of datasets, for the webhooks and SQL statements of subscriptions."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from feed_assets.core.delivery_targets import Subscription
from feed_assets.core.errors import InvalidName
from feed_assets.core.sub_partitions import mapping_of
from feed_assets.core.windows import WindowAddress, address_of
from feed_assets.deliveries.changes import DatasetChange
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.overlapping_windows import window_of
from feed_assets.orchestration.declare.partitions import by_dimension, extent_of

_SEQUENCE_DIGITS = 20
"""Digits of a sequence, so that texts sort like numbers."""


def event_of(graph: Graph, subscription: Subscription, change: DatasetChange) -> Mapping[str, Any]:
    """Return the event of a change. Its id is the same in each try, so a receiver can drop repeats.

    `sequence` and `partitionkey` are extensions of CloudEvents: the events of one partition key have growing sequences.
    """
    address = address_of(change.partition)
    node = graph.node(change.partition.feed)
    data = _of_window(node, address) if address else _of_update(graph, node, change)
    causes = {name: value for name in ("before", "why", "by") if (value := getattr(change, name))}
    return {
        "specversion": "1.0",
        "id": f"{subscription.name}/{change.sequence}",
        "source": f"feed_assets:{change.partition.feed}",
        "type": f"feed_assets.{change.transition}",
        "subject": change.partition.key,
        "time": change.at.isoformat(),
        "datacontenttype": "application/json",
        "sequence": f"{change.sequence:0{_SEQUENCE_DIGITS}d}",
        "partitionkey": change.partition.path,
        "data": {"dataset": str(change.partition.feed), "transition": change.transition, **data, **causes},
    }


def _of_update(graph: Graph, node: Node, change: DatasetChange) -> dict[str, Any]:
    """Return the data of an update: its partition with its keys by dimension, its time (UTC), and its id.

    Leave out dimensions and time if the partitions were declared differently when the change was recorded.
    """
    at = graph.parent_partition(change.partition)
    dimensions, window = dict[str, str](), None
    names, keys = by_dimension(node.partitions_def), at.key.split("/")
    if len(names) == len(keys):
        with suppress(InvalidName):
            extent = extent_of(node.partitions_def, at.key)
            window = _span(extent.start, extent.end)
            dimensions = dict(zip(names, keys, strict=True)) if len(names) > 1 else {}
    batch = {"batch": change.partition.name} if at != change.partition else {}
    return {"partition": at.key, "dimensions": dimensions, "window": window, "update": change.subject, **batch}


def _of_window(node: Node, address: WindowAddress) -> dict[str, Any]:
    """Return the data of a window: its key, its value at each level of sub-partitions, its time (UTC) and its grain."""
    window = window_of(node, address)
    return {
        "partition": address.key,
        "dimensions": mapping_of(address.sub_partition),
        "window": _span(window.start, window.end) if window else None,
        "grain": address.grain,
    }


def _span(start: datetime | None, end: datetime | None) -> dict[str, str] | None:
    return {"start": start.isoformat(), "end": end.isoformat()} if start and end else None
