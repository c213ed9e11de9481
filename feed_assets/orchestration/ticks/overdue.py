"""Partitions and events that are late by a cadence: they should exist but do not.

A check continues where the last check ended, both in the log and in time. It also checks again the partitions that were
missing. So its work does not grow with history. Results are stored before alerts change, so that the next check can
continue from them after a kill.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.cadence import Cadence, missing
from feed_assets.core.errors import InvalidName
from feed_assets.core.events import Recorded
from feed_assets.core.expected_partitions import (
    MISSING_AT_MOST,
    Expected,
    begin,
    due_upto,
    expected_since,
    has_come,
    looked,
    not_there,
)
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import closures, event_store, expected_cursor, log, status_facts
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.status_facts import ShownPartition
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.declarations import EventTable
from feed_assets.orchestration.declare.partitions import ended_within, extent_of, still_partitions

CHANGES_PER_LOOK = 10_000
"""Greatest number of log changes that one check reads. The next check reads the following changes."""


def with_cadence(graph: Graph) -> list[Node]:
    """Return the nodes that have a cadence."""
    return [node for node in graph.by_feed.values() if node.cadence]


def by_events_alone(graph: Graph) -> list[Node]:
    """Return the nodes whose cadence expects events, not partitions."""
    return [node for node in with_cadence(graph) if not node.expects_partitions]


def late(graph: Graph, ledger: Ledger, since: Mapping[str, datetime], now: datetime) -> dict[str, str]:
    """Return why feeds are late, by feed. `since` has the time from which each feed that expects events is watched."""
    return late_events(graph, ledger, since, now) | late_partitions(graph, ledger, now)


def late_events(graph: Graph, ledger: Ledger, since: Mapping[str, datetime], now: datetime) -> dict[str, str]:
    """Return why feeds are late, for feeds that got no event for the last tick of their cron.

    Skip feeds whose cadence expects partitions.
    """
    nodes = by_events_alone(graph)
    with ledger.read() as connection:
        last = event_store.newest_of(connection, [node.feed for node in nodes])
    reasons = {str(node.feed): _why_late(node, last.get(node.feed), since[str(node.feed)], now) for node in nodes}
    return {name: reason for name, reason in reasons.items() if reason}


def _why_late(node: Node, last: Recorded | None, since: datetime, now: datetime) -> str | None:
    cadence = node.cadence
    expected_at = missing(cadence, last.time if last else None, since, now) if cadence else None
    if not expected_at or not cadence:
        return None
    came = f"the last event came {last.time:%Y-%m-%d %H:%M} UTC" if last else "no event has ever come"
    return (
        f"no event of {node.feed} for {expected_at:%Y-%m-%d %H:%M} UTC ({cadence.cron}, tolerance "
        f"{cadence.tolerance}): {came}. Ask its owner; `feed-assets events ls {node.feed}` lists its events."
    )


@dataclass(frozen=True)
class _FeedCheck:
    """One check of a feed: which of its partitions should exist now, and how far the check reads."""

    node: Node
    cadence: Cadence
    expected: Expected
    ends: Mapping[str, datetime]
    """End times of the partitions to check, by key. Each one was missing, is expected now, or may be missing again."""
    reached: datetime
    due: datetime

    @property
    def queried(self) -> list[ShownPartition]:
        """Return the expected partitions of the feed as arguments of a ledger query."""
        is_table = isinstance(self.node.declaration, EventTable)
        return [
            ShownPartition(Partition(self.node.feed, key), (), self.node.is_appendable, is_table) for key in self.ends
        ]


def late_partitions(graph: Graph, ledger: Ledger, now: datetime) -> dict[str, str]:
    """Check which expected partitions have arrived. Return an alert's reason for each feed that lacks some.

    The results are stored, so a repeated check after a kill is harmless.
    """
    watched = {node.feed: (node, cadence) for node in with_cadence(graph) if (cadence := _of_partitions(node))}
    with ledger.read() as connection:
        retired = closures.retired(connection) if watched else ()
        watched = {feed: each for feed, each in watched.items() if feed not in retired}
        if not watched:
            return {}
        before, last = expected_cursor.last_results(connection, watched), log.last(connection)
        expectations = {at: before.get(at) or begin(cadence, now, last) for at, (_, cadence) in watched.items()}
        changes, upto = _changes(connection, min(each.position for each in expectations.values()), last)
        looks = [
            _look(graph, node, cadence, expected=expectations[feed], changes=changes.get(feed, ()), now=now)
            for feed, (node, cadence) in watched.items()
        ]
        existing = _existing_partitions(connection, looks)
    updated = {look.node.feed: _updated(look, existing, max(upto, look.expected.position)) for look in looks}
    if changed := {feed: each for feed, each in updated.items() if before.get(feed) != each}:
        with ledger.write() as connection:
            expected_cursor.keep(connection, changed)
    results = [(str(look.node.feed), updated[look.node.feed], look.reached == look.due) for look in looks]
    return {feed: not_there(feed, each, is_all=is_all) for feed, each, is_all in results if each.missing}


def _of_partitions(node: Node) -> Cadence | None:
    return node.cadence if node.expects_partitions else None


def _changes(connection: sa.Connection, position: int, last: int) -> tuple[dict[Feed, list[log.LogEntry]], int]:
    """Return the log changes after a position that may add or remove partitions, by feed.

    Also return the new position.
    """
    changes = log.after(connection, position, last, CHANGES_PER_LOOK) if position < last else ()
    changes_by_feed: dict[Feed, list[log.LogEntry]] = {}
    for change in changes:
        if change.kind in (log.UPDATE, log.EVENT, log.CLOSED) and change.after not in (log.PRUNED, "closed"):
            changes_by_feed.setdefault(change.partition.feed, []).append(change)
    return changes_by_feed, changes[-1].sequence if len(changes) == CHANGES_PER_LOOK else last


def _look(
    graph: Graph, node: Node, cadence: Cadence, expected: Expected, changes: Iterable[log.LogEntry], now: datetime
) -> _FeedCheck:
    again: dict[str, datetime] = {}
    for change in changes:
        key = graph.parent_partition(change.partition).key
        if change.sequence <= expected.position or not (time := _time_of(node, key)):
            continue
        if change.after in (log.INVALIDATED, "open"):
            again |= {key: time[1]} if expected.since < time[1] <= expected.upto else {}
        elif cadence.cron is None:
            expected = has_come(expected, *time, now)
    due, room = due_upto(cadence, expected, now), MISSING_AT_MOST - len(expected.missing)
    new, reached = ended_within(node.partitions_def, expected.upto, due, room) if room > 0 else ({}, expected.upto)
    still = still_partitions(node.partitions_def, {**expected.missing, **again})
    ends = {key: time[1] for key in still if (time := _time_of(node, key))}
    return _FeedCheck(node, cadence, expected, ends=ends | new, reached=reached, due=due)


def _time_of(node: Node, key: str) -> tuple[datetime, datetime] | None:
    """Return the start and end of a partition's time.

    Return None if the current partitions definition does not have the partition, or has no time.
    """
    with suppress(InvalidName):
        extent = extent_of(node.partitions_def, key)
        return (extent.start, extent.end) if extent.start and extent.end else None
    return None


def _existing_partitions(connection: sa.Connection, looks: Iterable[_FeedCheck]) -> Collection[Partition]:
    """Return the partitions that exist or that a person has closed. Closed partitions are not expected any more."""
    queried = [each for look in looks for each in look.queried]
    if not queried:
        return ()
    return (
        status_facts.existing(connection, queried)
        | closures.closed(connection, [each.partition for each in queried]).keys()
    )


def _updated(look: _FeedCheck, existing: Collection[Partition], position: int) -> Expected:
    feed, expected = look.node.feed, look.expected
    not_in = [key for key in look.ends if Partition(feed, key) not in existing]
    since = {
        key: expected_since(look.cadence, expected, look.ends[key]) for key in not_in if key not in expected.missing
    }
    kept = {key: expected.missing[key] for key in not_in if key in expected.missing}
    return looked(expected, max(expected.upto, look.reached), position, kept | since)
