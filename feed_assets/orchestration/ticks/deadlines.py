"""Deadlines of partitions: an alert before the deadline and one after it, even if no input has arrived."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from shlex import quote

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import first_line
from feed_assets.core.waits import Wait
from feed_assets.ledger import alerts, batch_sets, closures, due
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.output_needs import waits_for
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.orchestration.declare.partitions import paths_within

DEADLINE = "deadline"
"""The kind of alerts about deadlines.

Names continue with the dataset, `|`, the partition, `|`, and `near` or `missed`.
"""

LOOK_BACK = timedelta(days=7)
"""Greatest age of a missed deadline that opens an alert. An open alert stays open until the partition is built."""

PARTITIONS_WATCHED = 2000
"""Greatest number of watched partitions per dataset: the newest ones."""

ALERTS = 200
"""Greatest number of partitions per dataset that get a new alert: the newest late ones.

The alert of the oldest of them states how many older partitions are late, too.
"""


def with_deadlines(graph: Graph) -> list[Node]:
    """Return the datasets whose partitions have a deadline."""
    return [node for node in graph.datasets() if (wait := _wait_of(node)) and wait.deadline is not None]


def missed(graph: Graph, connection: sa.Connection, since: dict[str, datetime], now: datetime) -> dict[str, str]:
    """Return the reasons of alerts about missed and near deadlines, by the alert's name without its kind.

    `since` has the moment at which each dataset began to be watched. Earlier deadlines do not count.
    """
    nodes = {node.feed: node for node in with_deadlines(graph)}
    opened = {at for each in alerts.open_alerts(connection) if (at := _partition_in(each.name)) and at.feed in nodes}
    due_now = {node.feed: _watched(node, since[str(node.feed)], now) for node in nodes.values()}
    watched = opened.union(*due_now.values())
    built = (
        batch_sets.newest(connection, watched).keys() | closures.closed(connection, watched).keys() if watched else ()
    )
    late = {feed: [at for at in mine if at not in built] for feed, mine in due_now.items()}
    reported = opened.difference(built).union(*(mine[-ALERTS:] for mine in late.values()))
    older_counts = {mine[-ALERTS]: len({*mine} - reported) for mine in late.values() if {*mine} - reported}
    listed_by_partition = {
        each.partition: each for feed in {at.feed for at in reported} for each in due.listed(connection, feed)
    }
    return {
        name: f"{why}{f' {older_counts[at]} older partitions are late, too.' if at in older_counts else ''}"
        for at in sorted(reported)
        for name, why in _reasons(nodes[at.feed], at, listed_by_partition.get(at), now)
    }


def _wait_of(node: Node) -> Wait | None:
    return node.declaration.wait if isinstance(node.declaration, Dataset) else None


def _partition_in(name: str) -> Partition | None:
    kind, _, address = name.partition(":")
    path, _, _ = address.rpartition("|")
    return _of(path) if kind == DEADLINE else None


def _of(path: str) -> Partition:
    feed, _, key = path.partition("|")
    return Partition(Feed.parse(feed), key)


def _watched(node: Node, since: datetime, now: datetime) -> list[Partition]:
    """Return the newest partitions whose warning is due, or whose deadline was missed at most LOOK_BACK ago."""
    wait = _wait_of(node)
    if wait is None or wait.deadline is None:
        return []
    warn = wait.deadline if wait.warn is None else wait.warn
    first, last = max(now - LOOK_BACK, since) - wait.deadline, now - warn
    paths = paths_within(node.partitions_def, first, last, {}) if first < last else []
    partitions = [Partition(node.feed, path) for path in paths]
    return [at for at in partitions if _is_alarming(node, at, now)][-PARTITIONS_WATCHED:]


def _is_alarming(node: Node, output: Partition, now: datetime) -> bool:
    """Return whether an output has waited so long that its first alert is due at `now`."""
    waits = waits_for(node, output)
    first = waits.warn or waits.deadline
    return first is not None and first <= now


def _reasons(node: Node, output: Partition, listed: due.DueOutput | None, now: datetime) -> Iterator[tuple[str, str]]:
    waits, name = waits_for(node, output), f"{output.feed}|{output.key}"
    if waits.deadline is None:
        return
    state = listed.state if listed else None
    why = f"{state}: {first_line(listed.reason)}" if listed and state else "no input has arrived yet"
    see = f"{why}. See `feed-assets explain {output.feed} {quote(output.key)}`."
    if waits.warn and waits.warn <= now:
        yield f"{name}|near", f"{output} should be built by {waits.deadline:%Y-%m-%d %H:%M} UTC, but {see}"
    if waits.deadline <= now:
        yield f"{name}|missed", f"{output} should have been built by {waits.deadline:%Y-%m-%d %H:%M} UTC, but {see}"
