"""Datasets whose partitions, or whose inputs' partitions, are declared differently than before.

The fan-out maps a change to outputs only once. So without this module, an output that a new partitioning adds would
never be decided.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from hashlib import sha256

import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.ledger import due, event_store, inbox, log, updates
from feed_assets.ledger.database import Ledger, get_cursors, put_cursors
from feed_assets.ledger.due import AffectedOutput
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.partitions import Existence, end_of, existence

_logger = logging.getLogger(__name__)


def look_at_repartitioned(graph: Graph, datasets: Iterable[Node], ledger: Ledger, now: datetime) -> None:
    """Put all partitions of a dataset on the due list if its partitioning differs from the recorded one.

    This happens once per change of a declaration. A new dataset is skipped, because it reads the whole log anyway. The
    due list, the inboxes and the recorded partitioning change in one transaction, so a kill cannot separate them.
    """
    forms = {_name(node): (node, _form(graph, node)) for node in datasets}
    if not forms:
        return
    with ledger.read() as connection:
        recorded_forms = get_cursors(connection, forms.keys())
    for name, (node, form) in forms.items():
        if recorded_forms.get(name) != form:
            try:
                _look_at(graph, node if name in recorded_forms else None, ledger, now, {name: form})
            except Exception:  # A mapping may be user code, which may fail. The next process tries again.
                _logger.exception(
                    "the partitions of %s are declared differently, but which outputs this affects is unknown",
                    node.feed,
                )


def existing_partitions(connection: sa.Connection, node: Node) -> set[Partition]:
    """Return the partitions of an input that have an update.

    For an event table, which has no updates, return all partitions.
    """
    partitions = {*node.partitions}
    if node.source:
        return partitions
    published = {Partition(node.feed, key) for key in updates.published_keys(connection, node.feed)}
    return partitions & ({each.parent for each in published} if node.is_appendable else published)


def _name(node: Node) -> str:
    return f"partitions of {node.feed}"


def _form(graph: Graph, node: Node) -> str:
    """Return a digest of the partitions of a dataset and of its inputs."""
    declared = [(str(each.feed), repr(each.partitions_def)) for each in [node, *graph.parents(node)]]
    return sha256(repr(declared).encode()).hexdigest()[:16]


def _look_at(graph: Graph, node: Node | None, ledger: Ledger, now: datetime, form: Mapping[str, str]) -> None:
    with ledger.change() as connection:
        put_cursors(connection, form)
        if node is None:
            return
        listed = due.listed(connection, node.feed)
        gone = [each for each in listed if existence(node.partitions_def, each.partition.key, now) is Existence.NEVER]
        due.remove(connection, gone)
        partitions_by_parent = {parent: existing_partitions(connection, parent) for parent in graph.parents(node)}
        outputs = {
            each for parent, some in partitions_by_parent.items() for each in graph.downstream(parent, node, some)
        }
        number = log.last(connection)
        due.wake(connection, [_woken(node, output, number, now) for output in sorted(outputs)], now)
        if node.by_events:
            _deliver(
                graph,
                connection,
                node,
                new=outputs - _with_history(connection, node),
                partitions_by_parent=partitions_by_parent,
                now=now,
            )


def _with_history(connection: sa.Connection, node: Node) -> set[Partition]:
    """Return the outputs that have consumed events or have events in their inbox. They need no second delivery."""
    consumed = {Partition(node.feed, row["partition"]) for row in inbox.markers(connection, node.feed)}
    return consumed | {output for output in inbox.outputs(connection) if output.feed == node.feed}


def _deliver(
    graph: Graph,
    connection: sa.Connection,
    node: Node,
    new: Collection[Partition],
    partitions_by_parent: Mapping[Node, Collection[Partition]],
    now: datetime,
) -> None:
    read = [partition for some in partitions_by_parent.values() for partition in some]
    for partition, numbers in event_store.since(connection, dict.fromkeys(read, 0)).items():
        outputs = [output for output, _ in graph.affected(node, partition, now) or () if output in new]
        inbox.deliver(connection, [(output, number) for output in outputs for number in numbers])


def _woken(node: Node, output: Partition, number: int, now: datetime) -> AffectedOutput:
    return AffectedOutput(output, number, now, end_of(node.partitions_def, output.key))
