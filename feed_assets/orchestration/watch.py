"""What is wrong although nothing has failed: events that do not come, updates that are stuck, rules never met again."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256

import dagster as dg

from feed_assets import alerts as channels
from feed_assets.core.cadence import missing
from feed_assets.core.errors import InvalidSetting
from feed_assets.core.feeds import Feed
from feed_assets.core.propagation import Propagation
from feed_assets.core.reachability import unreachable
from feed_assets.ledger import alerts, events, inbox
from feed_assets.ledger.database import Ledger, get_cursor, open_ledger, put_cursor
from feed_assets.orchestration.declarations import ON_TIME, PROPAGATION, Dataset, Declaration, Rejects
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.orchestration.inputs import asset_key
from feed_assets.settings import settings

_log = logging.getLogger(__name__)

LATE, STUCK, UNREACHABLE = "late", "stuck", "unreachable"
Reasons = Mapping[str, str]


def watch(graph: Graph, ledger: Ledger, now: datetime, is_over: Callable[[], bool]) -> None:
    """Open and resolve alerts as things stand now, and deliver what was not delivered yet."""
    _first_seen(graph, ledger, now)
    alerts.keep(ledger, LATE, _late(graph, ledger, now), now)
    stuck, never = _on_their_way(graph, ledger, now)
    alerts.keep(ledger, STUCK, stuck, now)
    alerts.keep(ledger, UNREACHABLE, never, now)
    _deliver(ledger, now, is_over)


def _deliver(ledger: Ledger, now: datetime, is_over: Callable[[], bool]) -> None:
    """Wrong settings of alerts hold up no run: they are in the log at each tick, and what is wrong in the checks."""
    try:
        found = channels.channels(settings())
    except InvalidSetting:
        _log.exception("alerts are not delivered")
        return
    channels.deliver(ledger, found, now, is_over)


def _with_cadence(graph: Graph) -> list[Node]:
    return [node for node in graph.by_feed.values() if node.cadence]


def _seen(feed: Feed) -> str:
    return f"watched since {feed}"


def _first_seen(graph: Graph, ledger: Ledger, now: datetime) -> None:
    """A table that is declared now is not late for what was before."""
    with ledger.read() as connection:
        new = [node.feed for node in _with_cadence(graph) if get_cursor(connection, _seen(node.feed)) is None]
    for feed in new:
        with ledger.write() as connection:
            put_cursor(connection, _seen(feed), now.isoformat())


def _late(graph: Graph, ledger: Ledger, now: datetime) -> Reasons:
    found: dict[str, str] = {}
    for node in _with_cadence(graph):
        cadence = node.cadence
        with ledger.read() as connection:
            last = next(iter(events.newest(connection, 1, node.feed)), None)
            since = datetime.fromisoformat(get_cursor(connection, _seen(node.feed)) or now.isoformat())
        expected = missing(cadence, last.time if last else None, since, now) if cadence else None
        if expected and cadence:
            came = f"the last one came {last.time:%Y-%m-%d %H:%M} UTC" if last else "none has ever come"
            found[str(node.feed)] = (
                f"no event of {node.feed} for {expected:%Y-%m-%d %H:%M} UTC ({cadence.cron}, tolerance "
                f"{cadence.tolerance}): {came}. Ask its owner; `feed-assets events ls {node.feed}` lists them."
            )
    return found


def _on_their_way(graph: Graph, ledger: Ledger, now: datetime) -> tuple[Reasons, Reasons]:
    stuck: dict[str, str] = {}
    never: dict[str, str] = {}
    for node in [node for node in graph.datasets() if node.by_events]:
        incomplete = _incomplete(graph, node, ledger)
        limit = node.by_events.stuck_after if node.by_events else None
        for each in incomplete:
            if limit and now - each.since > limit:
                key = f"{node.feed}|{each.pipeline}|{each.correlation}|{each.partition_key}"
                stuck[key] = f"{node.feed} waits since {each.since:%Y-%m-%d %H:%M} UTC: update {each}."
        for each in unreachable(incomplete, _last_events(ledger, incomplete)):
            never[f"{node.feed}|{each.pipeline}|{each.table}"] = f"{node.feed}: {each}"
    return stuck, never


def _incomplete(graph: Graph, node: Node, ledger: Ledger) -> list[Propagation]:
    """One of each that waits, however many outputs it concerns."""
    consumer = graph.consumer(node)
    if consumer is None:
        return []
    with ledger.read() as connection:
        found = inbox.due_of(connection, consumer)
    each = [propagation for due in found.values() for propagation in due.incomplete]
    return [*{(p.pipeline, p.correlation, p.partition_key): p for p in each}.values()]


def _last_events(ledger: Ledger, incomplete: Sequence[Propagation]) -> dict[Feed, datetime]:
    tables = {table for each in incomplete for table in each.missing}
    with ledger.read() as connection:
        newest = {table: next(iter(events.newest(connection, 1, table)), None) for table in sorted(tables)}
    return {table: event.at for table, event in newest.items() if event}


def watch_checks(declarations: Sequence[Declaration]) -> list[dg.AssetChecksDefinition]:
    """The unpartitioned checks of tables with a cadence and of datasets by events; a sensor tells their results."""
    expected = [each for each in declarations if not isinstance(each, Rejects) and each.cadence]
    by_events = [each for each in declarations if isinstance(each, Dataset) and each.by_events]
    return [_check(each.feed, ON_TIME) for each in expected] + [_check(each.feed, PROPAGATION) for each in by_events]


def _check(feed: Feed, name: str) -> dg.AssetChecksDefinition:
    said = "Its events come when they are expected." if name == ON_TIME else "No update is stuck on its way to it."

    @dg.asset_check(asset=asset_key(feed), name=name, description=said)
    def check() -> dg.AssetCheckResult:
        reasons = _reasons(open_ledger(settings().ledger), feed, name)
        return dg.AssetCheckResult(
            passed=not reasons, severity=dg.AssetCheckSeverity.WARN, description="; ".join(reasons) or None
        )

    return check


def _reasons(ledger: Ledger, feed: Feed, check: str) -> list[str]:
    """What is wrong with a table or a dataset now."""
    names = (f"{LATE}:{feed}",) if check == ON_TIME else (f"{STUCK}:{feed}|", f"{UNREACHABLE}:{feed}|")
    with ledger.read() as connection:
        return [each.reason for each in alerts.open_alerts(connection) if _is_one_of(each.name, names)]


def _is_one_of(name: str, names: Sequence[str]) -> bool:
    return any(name.startswith(each) if each.endswith("|") else name == each for each in names)


def evaluations(graph: Graph, ledger: Ledger) -> list[dg.AssetCheckEvaluation]:
    """The results of all these checks, as a sensor tells them to Dagster."""
    late = [(node, ON_TIME) for node in _with_cadence(graph)]
    found = late + [(node, PROPAGATION) for node in graph.datasets() if node.by_events]
    return [_evaluation(node, name, _reasons(ledger, node.feed, name)) for node, name in found]


def _evaluation(node: Node, name: str, reasons: Sequence[str]) -> dg.AssetCheckEvaluation:
    return dg.AssetCheckEvaluation(
        asset_key=node.key,
        check_name=name,
        passed=not reasons,
        severity=dg.AssetCheckSeverity.WARN,
        description="; ".join(reasons) or None,
    )


def digest(found: Sequence[dg.AssetCheckEvaluation]) -> str:
    """The same while nothing has changed: Dagster is told when it differs."""
    told = [f"{each.asset_key}|{each.check_name}|{each.description}" for each in found]
    return sha256("\n".join(sorted(told)).encode()).hexdigest()[:12] if found else ""
