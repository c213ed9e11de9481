"""Alerts: missing events, stuck updates, undecidable outputs, deadlines and more."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from feed_assets import alerts as channels
from feed_assets.core.errors import InvalidSetting
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import first_line
from feed_assets.core.propagation import Due, Propagation
from feed_assets.core.reachability import unreachable
from feed_assets.core.readiness import State
from feed_assets.deliveries import delivery_alerts
from feed_assets.ledger import alerts, due, due_counts, event_store, pauses, quality
from feed_assets.ledger.database import Ledger, get_cursors, put_cursors
from feed_assets.ledger.quality import CheckState
from feed_assets.orchestration.decide.alert_owner import OwnAlerts
from feed_assets.orchestration.decide.decisions import due_of
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.declarations import (
    CAUGHT_UP,
    LOADED,
    NO_DEAD_LETTERS,
    ON_TIME,
    PROPAGATION,
)
from feed_assets.orchestration.ticks.deadlines import DEADLINE, missed, with_deadlines
from feed_assets.orchestration.ticks.overdue import by_events_alone, late, with_cadence
from feed_assets.orchestration.ticks.reruns import report_reruns
from feed_assets.orchestration.ticks.slow_code_alerts import keep_slower
from feed_assets.orchestration.ticks.staleness import stale_states
from feed_assets.orchestration.ticks.topic_checks import BEHIND, DEAD_LETTERS, NOT_LOADED, followers_of
from feed_assets.settings import settings

LATE, STUCK, UNREACHABLE, UNDECIDED = "late", "stuck", "unreachable", "undecided"
AUDIT, PERSON = "audit", "person"
"""Kinds of alerts. An alert's name continues with the table or dataset. In two of the kinds, `|` and details follow."""

Reasons = Mapping[str, str]


def keep_alerts(graph: Graph, ledger: Ledger, now: datetime, out_of_time: Callable[[], bool]) -> dict[str, str]:
    """Open and resolve alerts, and deliver new ones. Return the problems of the delivery."""
    _first_seen(graph, ledger, now)
    own_alerts = OwnAlerts(graph, ledger, now)
    with ledger.read() as connection:
        since = _since(connection, [*by_events_alone(graph), *with_deadlines(graph)], now)
    alerts.keep(ledger, LATE, late(graph, ledger, since, now), now, own_alerts.has_feed)
    problems = _on_their_way(graph, ledger, now)
    alerts.keep(ledger, UNDECIDED, problems.undecided, now, own_alerts.has_feed)
    alerts.keep(ledger, STUCK, problems.stuck, now, own_alerts.has_feed)
    alerts.keep(ledger, UNREACHABLE, problems.unreachable, now, own_alerts.has_feed)
    with ledger.read() as connection:
        refused, waits = _refused(graph, connection), _waits_for_a_person(graph, connection)
        of_deadlines = missed(graph, connection, since, now)
    alerts.keep(ledger, AUDIT, refused, now, own_alerts.has_feed)
    alerts.keep(ledger, PERSON, waits, now, own_alerts.has_feed)
    alerts.keep(ledger, DEADLINE, of_deadlines, now, own_alerts.has_feed)
    # If no subscription is left, there is no sensor `subscriptions` either, which otherwise resolves these alerts.
    delivery_alerts.resolve_gone(ledger, now)
    keep_slower(graph, ledger, now, own_alerts)
    _judge(graph, ledger, now)
    report_reruns(graph, ledger, now)
    return _deliver(ledger, now, out_of_time)


def _refused(graph: Graph, connection: sa.Connection) -> Reasons:
    """Return a text for each dataset with due partitions whose last audit failed."""
    groups = [each for each in due_counts.refused(connection) if each.feed in graph.by_feed]
    return {str(each.feed): _reason("refused by the audit", each) for each in groups}


def _waits_for_a_person(graph: Graph, connection: sa.Connection) -> Reasons:
    """Return a text for each dataset with partitions that wait for a person. No tick requests them.

    Skip paused datasets.
    """
    groups = [each for each in due_counts.by_state(connection) if each.state == State.WAITS_FOR_A_PERSON]
    own_groups = [each for each in groups if each.feed in graph.by_feed]
    paused = pauses.paused(connection, [each.feed for each in own_groups])
    return {str(each.feed): _reason("waiting for a person", each) for each in own_groups if each.feed not in paused}


def _reason(state: str, group: due_counts.Group) -> str:
    """Return the text of an alert about all partitions of a dataset that are in one state."""
    named = "; ".join(f"{each.key} ({first_line(each.reason)})".lstrip() for each in group.examples)
    omitted = group.count - len(group.examples)
    partitions = f"{group.count} partition{'s' * (group.count > 1)}"
    return (
        f"{partitions} {state}: {named}{f' and {omitted} more' * (omitted > 0)}. "
        f"See `feed-assets explain {group.feed}`."
    )


def _deliver(ledger: Ledger, now: datetime, out_of_time: Callable[[], bool]) -> dict[str, str]:
    """Deliver alerts to the configured channels.

    If their settings are wrong, return this as a problem. The asset checks show the alerts anyway.
    """
    try:
        configured = channels.channels(settings())
    except InvalidSetting as error:
        return {"delivery": f"alerts are not delivered: {error}"}
    channels.deliver(ledger, configured, now, out_of_time)
    return {}


def _cursor_name(feed: Feed) -> str:
    return f"watched since {feed}"


def _since(connection: sa.Connection, nodes: Iterable[Node], now: datetime) -> dict[str, datetime]:
    """Return the time since which each feed has been watched."""
    names = {str(node.feed): _cursor_name(node.feed) for node in nodes}
    cursors = get_cursors(connection, names.values())
    return {feed: datetime.fromisoformat(cursors[name]) if name in cursors else now for feed, name in names.items()}


def _first_seen(graph: Graph, ledger: Ledger, now: datetime) -> None:
    """Record the start of watching for new feeds, so that no alert opens for an earlier time."""
    names = {_cursor_name(node.feed) for node in [*by_events_alone(graph), *with_deadlines(graph)]}
    with ledger.read() as connection:
        new = names - get_cursors(connection, names).keys()
    if new:
        with ledger.write() as connection:
            put_cursors(connection, dict.fromkeys(new, now.isoformat()))


@dataclass
class _OnTheirWay:
    """Reasons of alerts about updates that do not reach their consumers, by the alert's name without its kind."""

    stuck: dict[str, str] = field(default_factory=dict[str, str])
    unreachable: dict[str, str] = field(default_factory=dict[str, str])
    undecided: dict[str, str] = field(default_factory=dict[str, str])


def _on_their_way(graph: Graph, ledger: Ledger, now: datetime) -> _OnTheirWay:
    """Return the problems of consumers with waiting updates. If a consumer cannot be checked, its open alerts stay."""
    problems, datasets = _OnTheirWay(), {node.feed: node for node in graph.datasets()}
    failed: dict[str, str] = {}
    with ledger.read() as connection:
        undecided = due.undecided(connection)
        opened = alerts.open_alerts(connection)
        incomplete = _incomplete(due_of(graph, connection, datasets.values(), now, failed))
        missing_of = {table for mine in incomplete.values() for each in mine for table in each.missing}
        last = {table: event.at for table, event in event_store.newest_of(connection, missing_of).items()}
    problems.undecided |= {str(feed): reason for feed, reason in undecided.items() if feed in datasets} | failed
    for feed in failed:
        problems.stuck |= _open_of(opened, STUCK, feed)
        problems.unreachable |= _open_of(opened, UNREACHABLE, feed)
    for feed, propagations in incomplete.items():
        _look_at(datasets[feed], propagations, last, now, problems)
    return problems


def _open_of(opened: Iterable[alerts.Alert], kind: str, feed: str) -> dict[str, str]:
    matching = [each for each in opened if each.name.startswith(f"{kind}:{feed}|")]
    return {each.name.removeprefix(f"{kind}:"): each.reason for each in matching}


def _look_at(
    node: Node, incomplete: Sequence[Propagation], last: Mapping[Feed, datetime], now: datetime, problems: _OnTheirWay
) -> None:
    limit = node.by_events.stuck_after if node.by_events else None
    for each in incomplete:
        if limit and now - each.since > limit:
            key = f"{node.feed}|{each.pipeline}|{each.correlation}|{each.partition_key}"
            problems.stuck[key] = f"{node.feed} has been waiting since {each.since:%Y-%m-%d %H:%M} UTC: update {each}."
    for each in unreachable(incomplete, last):
        problems.unreachable[f"{node.feed}|{each.pipeline}|{each.table}"] = f"{node.feed}: {each}"


def _incomplete(due: Mapping[Partition, Due]) -> dict[Feed, list[Propagation]]:
    """Return the propagations that lack an event of a required table, by consumer.

    Each is returned once, even if it concerns many outputs of the consumer.
    """
    by_consumer: dict[Feed, dict[tuple[str, str, str], Propagation]] = {}
    for output, output_due in due.items():
        propagations = {(each.pipeline, each.correlation, each.partition_key): each for each in output_due.incomplete}
        by_consumer.setdefault(output.feed, {}).update(propagations)
    return {feed: [*mine.values()] for feed, mine in by_consumer.items()}


def _judge(graph: Graph, ledger: Ledger, now: datetime) -> None:
    """Record open alerts and stale partitions as results of the checks that no run evaluates.

    These checks only warn.
    """
    expected = {node.feed for node in [*with_cadence(graph), *with_deadlines(graph)]}
    checks = [(feed, ON_TIME) for feed in sorted(expected)]
    followers = followers_of(graph)
    checks += [(each.feed, CAUGHT_UP) for each in followers if each.lag]
    checks += [(each.feed, LOADED if each.loaded else NO_DEAD_LETTERS) for each in followers]
    checks += [(node.feed, PROPAGATION) for node in graph.datasets() if node.by_events]
    datasets = [node.feed for node in graph.datasets()]
    with ledger.read() as connection:
        opened = alerts.open_alerts(connection)
        recorded = quality.check_states(
            connection, {Partition(feed, "") for feed in (*datasets, *(feed for feed, _ in checks))}
        )
        states = stale_states(connection, datasets, recorded)
    states |= {(Partition(feed, ""), check): _state(_reasons(opened, feed, check)) for feed, check in checks}
    changed = {key: state for key, state in states.items() if recorded.get(key) != state}
    for (table, check), state in changed.items():
        with ledger.change() as connection:
            quality.report(connection, table, check, state=state.state, reason=state.reason, by=quality.WATCH, now=now)


def _state(reasons: Sequence[str]) -> CheckState:
    return CheckState(quality.WARNED, "; ".join(reasons)) if reasons else CheckState(quality.PASSED, None)


_ALERTS = {ON_TIME: LATE, CAUGHT_UP: BEHIND, NO_DEAD_LETTERS: DEAD_LETTERS, LOADED: NOT_LOADED}
"""The kind of alert that each check reports. All other checks report alerts of the kind UNDECIDED."""


def _reasons(opened: Iterable[alerts.Alert], feed: Feed, check: str) -> list[str]:
    """Return the reasons of the open alerts that a check of a table or dataset reports."""
    names = {f"{_ALERTS.get(check, UNDECIDED)}:{feed}"}
    starts = (f"{DEADLINE}:{feed}|",) if check == ON_TIME else (f"{STUCK}:{feed}|", f"{UNREACHABLE}:{feed}|")
    return [each.reason for each in opened if each.name in names or each.name.startswith(starts)]
