"""Counts of all partitions of one dataset: current, waiting and missing ones, and holes.

A hole is an unbuilt partition before a built one.
"""

from collections.abc import Sequence

import dagster as dg
import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.ledger import due, updates
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.due_counts import EXAMPLES, Group, WaitingExample
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.partitions import by_dimension

CURRENT, MISSING, HOLES = "current", "missing", "holes before the newest"
"""Names of groups in addition to those of verdicts. Current: nothing is to do. Missing: no input has arrived.

Holes: a partition is not built, although a later one is.
"""


def overview(connection: sa.Connection, node: Node) -> list[Group]:
    """Return the partitions of a dataset grouped by state.

    The last group, holes, has unbuilt partitions before a built one. They are in another group, too.
    """
    listed = due.listed(connection, node.feed)
    published, waits = {*updates.published_keys(connection, node.feed)}, {each.partition for each in listed}
    keys = [each.key for each in node.partitions]
    quiet = [key for key in keys if Partition(node.feed, key) not in waits]
    groups = [_group(node, CURRENT, [WaitingExample(key) for key in quiet if key in published])]
    groups += _by_state(node, listed)
    groups.append(_group(node, MISSING, [WaitingExample(key) for key in quiet if key not in published]))
    groups.append(_group(node, HOLES, [WaitingExample(key) for key in _holes(node, keys, published)]))
    return [each for each in groups if each.count]


def _by_state(node: Node, listed: Sequence[DueOutput]) -> list[Group]:
    examples_by_state: dict[str | None, list[WaitingExample]] = {}
    for each in listed:
        name = each.partition.key if each.partition.feed == node.feed else str(each.partition)
        examples_by_state.setdefault(each.state, []).append(WaitingExample(name, each.reason))
    return [_group(node, state, examples) for state, examples in sorted(examples_by_state.items(), key=str)]


def _holes(node: Node, keys: Sequence[str], published: set[str]) -> list[str]:
    """Return the unbuilt partitions before the newest time with a built one. Return [] without a time dimension."""
    first = next(iter(by_dimension(node.partitions_def).values()), None)
    if not isinstance(first, dg.TimeWindowPartitionsDefinition) or not published:
        return []
    order = {time: number for number, time in enumerate(first.get_partition_keys())}
    newest = max((order.get(_time(key), -1) for key in published), default=-1)
    return [key for key in keys if key not in published and order[_time(key)] < newest]


def _time(key: str) -> str:
    return key.partition("/")[0]


def _group(node: Node, state: str | None, examples: Sequence[WaitingExample]) -> Group:
    return Group(node.feed, state, len(examples), tuple(examples[:EXAMPLES]))
