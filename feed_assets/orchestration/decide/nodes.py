"""The feeds of a code location as nodes of Dagster's asset graph."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import dagster as dg

from feed_assets.core.cadence import Cadence
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.inputs import SetInput, TableInput, UpdateInput
from feed_assets.core.limits import check_partition
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.topic_unions import named
from feed_assets.orchestration.declare.by_events import ByEvents
from feed_assets.orchestration.declare.cadences import expects_partitions
from feed_assets.orchestration.declare.declarations import (
    Dataset,
    Declaration,
    EventTable,
    Foreign,
    LoadedTopic,
    LoadedUnion,
    Rejects,
    StateTable,
    blackboard_of,
    declaration_of,
)
from feed_assets.orchestration.declare.input_specs import asset_key
from feed_assets.orchestration.declare.partitions import Partitions, to_key, to_path

if TYPE_CHECKING:
    from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph


@dataclass(frozen=True)
class Node:
    """One feed as an asset: its key, its partitions, and its declaration."""

    feed: Feed
    key: dg.AssetKey
    partitions_def: Partitions
    declaration: Declaration
    owners: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """Return `foreign`, `dataset`, `rejects`, `table` or `state`."""
        return self.declaration.role

    @property
    def outputs(self) -> list[dg.AssetKey]:
        """Return every asset that a run of this dataset builds. Return [] if others write the feed."""
        declared = self.declaration
        if isinstance(declared, Foreign | EventTable | StateTable):
            return []
        return [asset_key(feed, declared.version_in_key) for feed in declared.outputs]

    @property
    def by_events(self) -> ByEvents | None:
        """Return the rules for building the dataset by events. Return None if events do not build it."""
        return self.declaration.by_events if isinstance(self.declaration, Dataset) else None

    @property
    def source(self) -> str | None:
        """Return the name of an event table's source. Return None for other assets."""
        return self.declaration.source.name if isinstance(self.declaration, EventTable) else None

    @property
    def partitioned_as(self) -> tuple[str, ...]:
        """Return the Kafka topics whose partitions an event table has.

        These are the table's own topic, or the topics that it is loaded from.
        """
        declared = self.declaration
        if not isinstance(declared, EventTable):
            return ()
        if isinstance(declared.loaded, LoadedUnion):
            return declared.loaded.topics
        if isinstance(declared.loaded, LoadedTopic):
            return (declared.loaded.topic,)
        return (declared.table_name,) if declared.topic else ()

    def partition_key_of(self, topic: str, partition: str) -> str:
        """Return the partition key for a partition of one of these topics."""
        is_union = isinstance(self.declaration, EventTable) and isinstance(self.declaration.loaded, LoadedUnion)
        return named(topic, partition) if is_union else partition

    @property
    def cadence(self) -> Cadence | None:
        """Return the schedule on which the feed's events are expected. Return None if no schedule is declared."""
        return None if isinstance(self.declaration, Rejects | StateTable) else self.declaration.cadence

    @property
    def expects_partitions(self) -> bool:
        """Return whether the cadence expects every time partition, and not only some event at each tick of a cron."""
        return expects_partitions(self.cadence, self.partitions_def)

    @property
    def tracked(self) -> Tracked | None:
        """Return the rules for the feed's windows. Return None if the feed has no windows."""
        declared = self.declaration
        return declared.tracked if isinstance(declared, Foreign | Dataset | StateTable) else None

    @property
    def counted_by(self) -> str | None:
        """Return the event time column by which a foreign feed's records are counted.

        Return None if they are not counted.
        """
        return self.declaration.event_time if isinstance(self.declaration, Foreign) and self.tracked else None

    @property
    def is_appendable(self) -> bool:
        """Return whether the feed's partitions hold batches."""
        return isinstance(self.declaration, Foreign | Dataset) and self.declaration.appendable

    @property
    def blackboard(self) -> str | None:
        """Return the name of the feed's blackboard. Return None if the feed is on the default blackboard."""
        return blackboard_of(self.declaration)

    @property
    def by_intake(self) -> bool:
        """Return whether our intake publishes the feed."""
        return isinstance(self.declaration, Foreign) and self.declaration.intake is not None

    @property
    def kind_of_input(self) -> type[UpdateInput]:
        """Return the class that represents this feed among the inputs of an output."""
        if isinstance(self.declaration, EventTable):
            return TableInput
        return SetInput if self.is_appendable else UpdateInput

    def partition(self, key: str | None) -> Partition:
        """Return the partition of the feed for a Dagster partition key. Raise InvalidName if the key fits no path."""
        return check_partition(Partition(self.feed, to_path(self.partitions_def, key)))

    @property
    def partitions(self) -> list[Partition]:
        """Return all existing partitions, in Dagster's order."""
        keys = self.partitions_def.get_partition_keys() if self.partitions_def else [None]
        return [self.partition(key) for key in keys]

    def key_of(self, partition: Partition) -> str | None:
        """Return the Dagster partition key for a partition of the feed."""
        return to_key(self.partitions_def, partition.key)


@dataclass(frozen=True)
class Nodes:
    """The nodes of one asset graph, by feed and by key, and the inputs of each node. All are sorted by feed."""

    by_feed: dict[Feed, Node]
    by_key: dict[dg.AssetKey, Node]
    parents: dict[Feed, list[Node]]
    """Inputs of each node, without the node itself. A dataset may also read its own previous window."""


_nodes: "WeakKeyDictionary[BaseAssetGraph[Any], Nodes]" = WeakKeyDictionary()
"""The nodes of each loaded set of definitions.

Loaded definitions do not change, so their nodes are cached for all ticks.
"""


def nodes_of(assets: "BaseAssetGraph[Any]") -> Nodes:
    """Return the nodes of our assets in an asset graph."""
    if assets not in _nodes:
        own_nodes = [node for key in assets.get_all_asset_keys() if (node := _node(assets, key))]
        by_key = {node.key: node for node in sorted(own_nodes, key=_by_feed)}
        above = {
            node.feed: [by_key[key] for key in assets.get(node.key).parent_keys if key in by_key and key != node.key]
            for node in own_nodes
        }
        parents = {feed: sorted(nodes, key=_by_feed) for feed, nodes in above.items()}
        _nodes[assets] = Nodes({node.feed: node for node in by_key.values()}, by_key, parents)
    return _nodes[assets]


def _node(assets: "BaseAssetGraph[Any]", key: dg.AssetKey) -> Node | None:
    """Return the node of an asset. Return None for an asset that is not ours."""
    asset_node = assets.get(key)
    declared = declaration_of(asset_node)
    return Node(declared.feed, key, asset_node.partitions_def, declared, tuple(asset_node.owners)) if declared else None


def _by_feed(node: Node) -> Feed:
    return node.feed
