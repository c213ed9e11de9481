"""Reports to Dagster about windows and quality: a materialization for complete data, otherwise an observation.

A partitioned check result without a run is never reported, because Dagster stores only a partition's first such result.
"""

from collections.abc import Iterable, Mapping, Sequence

import dagster as dg
import sqlalchemy as sa

from feed_assets.core.completeness import DONE, WindowState
from feed_assets.core.feeds import Partition
from feed_assets.core.markdown import without_links
from feed_assets.core.windows import address_of
from feed_assets.ledger import log, quality, runs
from feed_assets.ledger.log import LogEntry
from feed_assets.ledger.states import window_queries
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.overlapping_windows import asset_partition
from feed_assets.orchestration.declare.declarations import STALE, WATCHED, StateTable
from feed_assets.orchestration.execute.build_events import DATA_VERSION_TAG
from feed_assets.orchestration.ticks.staleness import stale_metadata

Report = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation

_ORDINARY = {WindowState.OPEN, WindowState.COMPLETE}


def partition_of(graph: Graph, change: LogEntry) -> Partition | None:
    """Return the asset's partition for a change.

    For a window, return the partition with the window's time. Return None if there is no such partition.
    """
    node = graph.node(change.partition.feed)
    if address_of(change.partition):
        return asset_partition(node, change.partition)
    return graph.parent_partition(change.partition)


def unsaid(graph: Graph, connection: sa.Connection, changes: Sequence[LogEntry]) -> set[LogEntry]:
    """Return the changes that Dagster does not get: check results of runs, and ordinary changes of feeds' windows.

    Ordinary means from open to complete, or back. The runs report their own check results. All transitions of state
    tables are reported, because these tables have nothing else to report.
    """
    reporters = {each.who for each in changes if each.who and each.kind == log.QUALITY}
    dagster_runs = runs.in_dagster(connection, sorted(reporters))
    return {each for each in changes if _is_unsaid(graph, each, dagster_runs)}


def _is_unsaid(graph: Graph, change: LogEntry, dagster_runs: Mapping[str, str]) -> bool:
    if change.kind == log.QUALITY:
        return change.who in dagster_runs
    node = graph.by_feed.get(change.partition.feed)
    is_of_feed = change.kind == log.WINDOW and node is not None and not isinstance(node.declaration, StateTable)
    return is_of_feed and {change.before, change.after} <= _ORDINARY


def of_windows(graph: Graph, connection: sa.Connection, changes: Sequence[LogEntry]) -> list[Report]:
    """Return one Dagster event for each change of a window's state.

    The data version of a state table's partition is a digest of the window's content.
    """
    addresses = [at for each in changes if (at := address_of(each.partition))]
    data = (
        {at.partition: row.data for at, row in window_queries.stored_windows(connection, addresses).items()}
        if addresses
        else {}
    )
    nodes = {change: graph.node(change.partition.feed) for change in changes}
    return [
        _window(nodes[each], each, at, data.get(each.partition))
        for each in changes
        if (at := asset_partition(nodes[each], each.partition))
    ]


def _window(
    node: Node, change: LogEntry, at: Partition, data: int | None
) -> dg.AssetMaterialization | dg.AssetObservation:
    """Return Dagster's event for a change of a window's state.

    A reopened window keeps its materialization, and gets an observation whose description shows the change. A feed's
    window always gets an observation, because the feed's updates are its materializations.
    """
    metadata = {"window": change.partition.key, "from": change.before or "", "to": change.after or ""}
    metadata |= {"why": change.why or "", "who": change.who or ""}
    state = "open again" if change.after == WindowState.OPEN else (change.after or "").replace("_", " ")
    description = without_links(f"{state}: {change.why}" if change.why else state)
    if change.after not in DONE or not isinstance(node.declaration, StateTable):
        return dg.AssetObservation(node.key, description, metadata, node.key_of(at))
    return dg.AssetMaterialization(
        node.key, description, metadata, node.key_of(at), {DATA_VERSION_TAG: str(data or change.sequence)}
    )


def of_checks(graph: Graph, connection: sa.Connection, changes: Sequence[LogEntry]) -> list[Report]:
    """Return the newest results of the checks that no run evaluates, and observations for all other changes.

    Other changes are results of other checks, marks and waivers. A mark says that an output was made of bad data. A
    waiver is a person's permission to use it nevertheless.
    """
    states = quality.check_states(connection, [each.partition for each in changes if each.subject in WATCHED])
    results = [
        dg.AssetCheckEvaluation(
            asset_key=graph.node(partition.feed).key,
            check_name=check,
            passed=state.state == quality.PASSED,
            severity=dg.AssetCheckSeverity.WARN,
            description=without_links(state.reason) if state.reason else None,
            metadata=stale_metadata(connection, partition.feed) if check == STALE else {},
        )
        for (partition, check), state in states.items()
        if check in WATCHED
    ]
    return [*results, *_observations(graph, (each for each in changes if each.subject not in WATCHED))]


def _observations(graph: Graph, changes: Iterable[LogEntry]) -> list[dg.AssetObservation]:
    pairs = [(each, at) for each in changes if (at := partition_of(graph, each))]
    return [_observation(graph.node(at.feed), each, at) for each, at in pairs]


def _observation(node: Node, change: LogEntry, at: Partition) -> dg.AssetObservation:
    state = (change.after or "over").replace("_", " ")
    description = f"{change.subject} {state}: {change.why}" if change.why else f"{change.subject} {state}"
    metadata = {"check": change.subject, "state": state, "why": change.why or "", "who": change.who or ""}
    metadata |= {"window": change.partition.key} if address_of(change.partition) else {}
    return dg.AssetObservation(node.key, without_links(description), metadata, node.key_of(at))
