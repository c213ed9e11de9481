"""The feeds of a code location, and which partitions read which, from Dagster's asset graph."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

import dagster as dg

from feed_assets.core.errors import FeedAssetsError, InvalidName
from feed_assets.core.feeds import Feed, Partition, newer_versions
from feed_assets.core.propagation import Consumer
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import WindowAddress
from feed_assets.orchestration.decide.counters import counters_of as who_counts
from feed_assets.orchestration.decide.nodes import Node, nodes_of
from feed_assets.orchestration.decide.overlapping_windows import (
    addresses_of,
    existing,
    mapping_between,
    outputs_near,
    outputs_of,
    partitions_near,
    spans_of,
    window_of,
)
from feed_assets.orchestration.declare import dagster_mappings, mappings
from feed_assets.orchestration.declare.declarations import (
    WATCHED,
    Dataset,
    Declaration,
    EventTable,
    Foreign,
    Rejects,
    StateTable,
)
from feed_assets.orchestration.declare.partitions import Existence, begins_at, by_dimension, existence, to_path

if TYPE_CHECKING:
    from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph

Affected = tuple[Partition, datetime]
"""An output, and the moment (UTC) from which it can be decided."""


class Graph:
    """The feeds of one code location and their partition mappings.

    A graph is cheap to create. Each tick creates its own graph, because a lineage table may change between ticks.
    """

    def __init__(self, assets: "BaseAssetGraph[Any]") -> None:
        self.assets = assets
        self._nodes = nodes_of(assets)
        self.by_feed = self._nodes.by_feed
        self.by_key = self._nodes.by_key
        self.consumers: dict[Feed, Consumer | FeedAssetsError | None] = {}
        """Results of `pipeline_tables.consumer_of` by feed. An error is cached, too."""

    def node(self, feed: Feed) -> Node:
        """Return the node of a feed. Raise InvalidName if no asset has it."""
        if feed not in self.by_feed:
            names = ", ".join(sorted(map(str, self.by_feed))) or "none"
            raise InvalidName(f"no asset has the feed {feed}: expected one of: {names}.")
        return self.by_feed[feed]

    def _declaring(self, *roles: type[Declaration]) -> list[Node]:
        """Return the nodes with these roles, ordered by name."""
        return [node for node in self.by_feed.values() if isinstance(node.declaration, roles)]

    def foreign(self) -> list[Node]:
        """Return the feeds that others write, ordered by name."""
        return self._declaring(Foreign)

    def polled(self) -> list[Feed]:
        """Return the foreign feeds to poll on the blackboard.

        Skip feeds of intake, because intake records its own updates.
        """
        return [node.feed for node in self.foreign() if not node.by_intake]

    def claiming(self) -> list[Feed]:
        """Return every feed that our runs or intake write."""
        return [*self.own(), *(node.feed for node in self.foreign() if node.by_intake)]

    def appendable(self) -> set[Feed]:
        """Return the foreign feeds whose partitions hold batches."""
        return {node.feed for node in self.foreign() if node.is_appendable}

    @cached_property
    def elsewhere(self) -> dict[Feed, str]:
        """Return the feeds that are not on the default blackboard, each with the name of its blackboard."""
        return {feed: node.blackboard for feed, node in self.by_feed.items() if node.blackboard}

    @cached_property
    def newer(self) -> dict[Feed, Feed]:
        """Return the older versions of feeds that are still declared, each with the newest declared version."""
        return newer_versions(self.by_feed)

    def readers(self, node: Node) -> list[Node]:
        """Return the readers of a feed or of its rejects, ordered by name, without the feed itself."""
        own_keys = {node.key, *node.outputs}
        nodes = [each for each in self.by_feed.values() if not isinstance(each.declaration, Rejects)]
        return [
            each
            for each in nodes
            if each.key not in own_keys and any(above.key in own_keys for above in self.parents(each))
        ]

    def parents(self, node: Node) -> list[Node]:
        """Return the feeds that a dataset reads, ordered by name."""
        return [*self._nodes.parents[node.feed]]

    def tracked(self) -> dict[Feed, Tracked]:
        """Return the window rules of each dataset that has windows."""
        return {
            feed: replace(node.tracked, is_ours=isinstance(node.declaration, Dataset))
            for feed, node in self.by_feed.items()
            if node.tracked
        }

    def watched_feeds(self, node: Node) -> set[Feed]:
        """Return the feeds whose changes affect a dataset: its inputs, and its own feed.

        Its own feed counts, because an update of it may be invalidated.
        """
        return {node.feed, *(parent.feed for parent in self.parents(node))}

    def checks(self, node: Node) -> list[dg.AssetCheckKey]:
        """Return the checks that a run of a dataset evaluates. Skip checks whose results a sensor reports."""
        keys = self.assets.get_check_keys_for_assets({node.key})
        return sorted(key for key in keys if key.name not in WATCHED)

    def tables(self) -> list[Node]:
        """Return the event tables, ordered by name."""
        return self._declaring(EventTable)

    def by_table_name(self, source: str | None = None) -> dict[str, Feed]:
        """Return the event tables of a source by their names in the source.

        Without `source`, return those of all sources.
        """
        declared = [node.declaration for node in self.tables() if source in (None, node.source)]
        return {each.table_name: each.feed for each in declared if isinstance(each, EventTable)}

    def datasets_of(self, source: str | None) -> list[Node]:
        """Return the datasets whose runs are requested by the sensor of an event source.

        For None, return the datasets that read no event source. A dataset that reads tables of several sources belongs
        to the first one, so only one sensor requests its runs.
        """
        return [node for node in self.datasets() if self._first_source(node) == source]

    def _first_source(self, node: Node) -> str | None:
        if not node.by_events:
            return None
        return min((parent.source for parent in self.parents(node) if parent.source), default=None)

    def datasets(self) -> list[Node]:
        """Return the datasets of this code location, ordered by name, without rejects."""
        return self._declaring(Dataset)

    def dataset(self, key: dg.AssetKey) -> Node:
        """Return the dataset that an asset belongs to. The asset may be the dataset itself or its rejects."""
        return self.by_key[self.by_key[key].outputs[-1]]

    def dataset_of(self, feed: Feed) -> Node:
        """Return the node of a dataset by its feed. Raise InvalidName if it is not a dataset."""
        node = self.node(feed)
        if node.role != "dataset":
            is_table = isinstance(node.declaration, StateTable)
            kind, see = ("state table", "state show") if is_table else (f"{node.role} feed", "feed show")
            raise InvalidName(f"{feed} is a {kind}: expected a dataset. `feed-assets {see} {feed}` shows its content.")
        return node

    def parent_partition(self, updated: Partition) -> Partition:
        """Return the partition that holds a changed batch. For any other changed partition, return it unchanged."""
        node = self.node(updated.feed)
        is_batch = node.is_appendable and len(updated.key.split("/")) > len(by_dimension(node.partitions_def))
        return (updated.parent or updated) if is_batch else updated

    def own(self) -> list[Feed]:
        """Return every feed that this code location writes, including rejects. Inputs come before their readers."""
        nodes = self._declaring(Dataset, Rejects)
        above = {node.feed: [parent.feed for parent in self.parents(node)] for node in nodes}
        return [feed for feed in TopologicalSorter(above).static_order() if feed in above]

    def on_blackboard(self) -> list[Feed]:
        """Return every declared feed on the default blackboard, whether we or others write it."""
        feeds = [*self.own(), *(node.feed for node in self.foreign())]
        return [feed for feed in feeds if feed not in self.elsewhere]

    def affected(self, child: Node, changed: Partition, now: datetime) -> list[Affected] | None:
        """Return the outputs to decide after a change of a dataset or its input.

        Each output comes with the time (UTC) from which it can be decided. This time is not before the end of the
        changed partition's window. Return None if the changed partition is dynamic and does not exist, because the time
        at which it will exist is unknown.
        """
        parent = self.node(changed.feed)
        stands = existence(parent.partitions_def, changed.key, now)
        if stands is Existence.NEVER:
            return []
        begins = now if stands is Existence.EXISTS else begins_at(parent.partitions_def, changed.key)
        if begins is None:
            return None
        itself = [(changed, begins)] if parent is child else []
        if mapping := mapping_between(parent, child):
            return itself + self._from(child, outputs_of(parent, child, mapping, changed), begins)
        if itself:
            return itself
        with dg.partition_loading_context(begins):
            return [(output, begins) for output in self.downstream(parent, child, [changed])]

    def _from(self, child: Node, outputs: Iterable[Partition], begins: datetime) -> list[Affected]:
        """Return outputs with the time from which each one exists as a partition. Skip outputs that can never exist."""
        affected: list[Affected] = []
        for output in outputs:
            stands = existence(child.partitions_def, output.key, begins)
            at = begins if stands is Existence.EXISTS else begins_at(child.partitions_def, output.key)
            affected += [(output, at)] if at and stands is not Existence.NEVER else []
        return affected

    def affected_by_window(self, child: Node, address: WindowAddress, now: datetime) -> list[Affected]:
        """Return the outputs that wait for a window of an input, with the times from which they can be decided."""
        parent = self.node(address.dataset)
        window = window_of(parent, address)
        if window is None or parent is child:
            return []
        if isinstance(parent.declaration, StateTable):
            paths = outputs_near(parent, child, address, window)
            near = self._from(child, [Partition(child.feed, path) for path in paths], now)
        else:
            changed = partitions_near(parent, address, window)
            near = [each for partition in changed for each in self.affected(child, partition, now) or ()]
        return sorted({each for each in near if address in self._windows(parent, child, each[0])})

    def windows_read(self, output: Partition, read: Collection[Partition]) -> list[WindowAddress]:
        """Return the windows of feeds that an output waits for, given the partitions or batches that it has read."""
        child, addresses = self.node(output.feed), list[WindowAddress]()
        for parent in (self.by_feed[feed] for feed in sorted({each.feed for each in read} & self.by_feed.keys())):
            partitions = sorted({self.parent_partition(each) for each in read if each.feed == parent.feed})
            addresses += [
                each for span, _ in spans_of(parent, child, output, partitions) for each in addresses_of(span)
            ]
        return addresses

    def _windows(self, parent: Node, child: Node, output: Partition) -> set[WindowAddress]:
        """Return the windows of an input that an output waits for."""
        needed, _ = self.upstream(parent, child, child.key_of(output))
        return {each for span, _ in spans_of(parent, child, output, needed) for each in addresses_of(span)}

    def downstream(self, parent: Node, child: Node, read: Collection[Partition]) -> list[Partition]:
        """Return the sorted existing outputs of a dataset that need any of these partitions of an input."""
        if mapping := mapping_between(parent, child):
            output_keys = {each.key for partition in read for each in outputs_of(parent, child, mapping, partition)}
            return existing(child, sorted(output_keys))[0]
        if child.partitions_def is None or not read:
            return [child.partition(None)] if read else []
        if parent.partitions_def is None:
            return child.partitions
        mapping = self.assets.get_partition_mapping(child.key, parent.key)
        both = child.partitions_def, parent.partitions_def
        if dagster_mappings.is_by_time(mapping, *both):
            paths = dagster_mappings.affected(mapping, *both, (each.key for each in read))
            return [Partition(child.feed, path) for path in paths]
        keys = [key for each in read if (key := parent.key_of(each)) is not None]
        above = parent.partitions_def.subset_with_partition_keys(keys)
        below = mapping.get_downstream_partitions_for_partitions(above, parent.partitions_def, child.partitions_def)
        return [child.partition(key) for key in sorted(below.get_partition_keys())]

    def upstream(self, parent: Node, child: Node, key: str | None) -> tuple[list[Partition], list[Partition]]:
        """Return the partitions of an input that an output needs: the existing ones, and the missing ones."""
        if isinstance(parent.declaration, StateTable):
            return [], []
        if (mapping := mapping_between(parent, child)) and key is not None:
            path = child.partition(key).key
            return existing(parent, mappings.upstream(mapping, child.partitions_def, parent.partitions_def, path))
        if parent.partitions_def is None:
            return [parent.partition(None)], []
        if child.partitions_def is None or key is None:
            return parent.partitions, []
        mapping = self.assets.get_partition_mapping(child.key, parent.key)
        both = child.partitions_def, parent.partitions_def
        if dagster_mappings.is_by_time(mapping, *both):
            mapped = dagster_mappings.needed(mapping, *both, to_path(child.partitions_def, key))
            present, absent = ([Partition(parent.feed, path) for path in paths] for paths in mapped)
            return sorted(present), absent
        subset = child.partitions_def.subset_with_partition_keys([key])
        mapped = mapping.get_upstream_mapped_partitions_result_for_partitions(
            subset, child.partitions_def, parent.partitions_def
        )
        needed = [parent.partition(each) for each in mapped.partitions_subset.get_partition_keys()]
        unborn = mapped.required_but_nonexistent_subset.get_partition_keys()
        absent = [Partition(parent.feed, to_path(parent.partitions_def, each)) for each in unborn]
        return sorted(needed), absent

    def counters_of(self, parent: Node, node: Node, needed: Collection[Partition]) -> tuple[Partition, ...]:
        """Return the outputs whose runs count the records in these partitions of a foreign feed.

        Return () if runs of `node` itself count them.
        """
        for counter in self._counters.get(parent.feed, ()):
            if counter == node.feed:
                break
            if outputs := self.downstream(parent, self.by_feed[counter], needed):
                return tuple(outputs)
        return ()

    @cached_property
    def _counters(self) -> dict[Feed, list[Feed]]:
        """Return the datasets that may count records, for each foreign feed whose records are counted."""
        counted = {node.feed for node in self.foreign() if node.counted_by}
        return who_counts(counted, self.datasets(), self._nodes.parents) if counted else {}

    def is_one_to_one(self, parent: Node, child: Node) -> bool:
        """Return whether an output reads exactly the input's partition with the same key."""
        if mapping_between(parent, child) or parent.is_appendable or parent.partitions_def != child.partitions_def:
            return False
        mapping = self.assets.get_partition_mapping(child.key, parent.key)
        if isinstance(mapping, dg.TimeWindowPartitionMapping):
            return mapping.start_offset == mapping.end_offset == 0
        return parent.partitions_def is None or isinstance(mapping, dg.IdentityPartitionMapping)
