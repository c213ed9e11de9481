"""The slow sensor. Once an hour it removes leftovers of attempts, and searches for data that nobody declares.

Once a day it prunes the ledger, and checks some of our newest updates for bit rot.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import dagster as dg

from feed_assets.feeds.walk_limit import WalkLimit
from feed_assets.ledger import alerts
from feed_assets.ledger.database import Ledger, get_cursor, get_cursors, put_cursors
from feed_assets.ledger.old_rows import PrunedLog, prune_log
from feed_assets.orchestration.decide.alert_owner import OwnAlerts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.undeclared import unread
from feed_assets.runs.orphan_sweep import Swept, sweep
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.spark.scratch import sweep_scratch

if TYPE_CHECKING:
    from feed_assets.runs.bit_rot import Rotten

PAUSE = timedelta(hours=1)
"""Time between two complete sweeps. The sensor ticks more often, but does nothing in between."""

PRUNE_PAUSE = timedelta(days=1)
"""Time between two complete prunings of the ledger. A pruning reads every old row, including rows that stay."""

UNKNOWN = "unknown"
"""The kind of alerts for undeclared feeds and partitions on the blackboard: `unknown:<feed>`."""

DAMAGED = "damaged"
"""The kind of alerts for published updates whose bytes changed: `damaged:<feed>|<partition>/<update>`."""

LINES_PER_MESSAGE = 20
"""Greatest number of actions in a tick's message. The log has all of them."""

_LOOKED, _STOPPED = "looked for orphans", "stopped looking for orphans"
_PRUNED, _PRUNED_UPTO = "pruned the ledger", "stopped pruning the ledger"
_SEARCHED = "stopped looking for undeclared feeds"


def sweep_orphans(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Sweep until the time is over. Return a message for the UI that lists what was done."""
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor 'orphans' needs definitions: build its context with them.")
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        now = loading.effective_dt
    graph = Graph(context.repository_def.asset_graph)
    services = replace(Services.of(settings(), elsewhere=graph.elsewhere), now=lambda: now)
    looked, stopped = _cursors(services.ledger)
    if looked and now < (again := datetime.fromisoformat(looked) + PAUSE):
        return dg.SkipReason(f"The next search for orphans is at {again:%Y-%m-%d %H:%M} UTC.")
    deadline = monotonic() + settings().tick_seconds
    swept = sweep(services, graph.claiming(), lambda: monotonic() > deadline, stopped)
    for done in swept.done:
        context.log.info(str(done))
    pruned = _prune(services.ledger, now, lambda: monotonic() > deadline)
    own_alerts = OwnAlerts(graph, services.ledger, now)
    _keep_undeclared(services, graph, own_alerts)
    scratch = sweep_scratch(settings().spark_conf.get_secret_value())
    rotten = _look_for_bit_rot(services, graph, own_alerts)
    for line in rotten.problems.values() if rotten else ():
        context.log.warning(line)
    _put_cursors(services.ledger, "" if swept.stopped else now.isoformat(), swept.stopped)
    return dg.SkipReason(_message(swept, pruned, rotten, scratch))


def _prune(ledger: Ledger, now: datetime, out_of_time: Callable[[], bool]) -> PrunedLog | None:
    """Prune the ledger until the time is over, from where the last tick stopped.

    Return None if less than a day has passed since the last pruning. After a kill before the cursors move, the next
    tick reads the same rows again.
    """
    with ledger.read() as connection:
        cursors = get_cursors(connection, [_PRUNED, _PRUNED_UPTO])
    after, done = cursors.get(_PRUNED_UPTO, ""), cursors.get(_PRUNED)
    if done and not after and now < datetime.fromisoformat(done) + PRUNE_PAUSE:
        return None
    days = settings().log_days
    pruned = prune_log(ledger, now, days, None, apply=True, out_of_time=out_of_time, after=after)
    with ledger.write() as connection:
        put_cursors(connection, {_PRUNED: now.isoformat(), _PRUNED_UPTO: pruned.stopped})
    return pruned


def _keep_undeclared(services: Services, graph: Graph, own_alerts: OwnAlerts) -> None:
    """Open and resolve alerts about undeclared feeds and partitions, with a time limit for the search for feeds.

    Continue where the last search stopped. Alerts about feeds that this search has not reached stay open. After a kill
    before the cursor moves, the next tick searches the same folders again.
    """
    with services.ledger.read() as connection:
        start = get_cursor(connection, _SEARCHED) or ""
    deadline = monotonic() + settings().tick_seconds / 2
    limit = WalkLimit(start, lambda: monotonic() > deadline)
    reasons, declared = unread(graph, services, own_alerts.now, limit), {*map(str, graph.by_feed)}

    def is_searched(feed: str) -> bool:
        return (feed in declared or limit.covers(feed)) and own_alerts.has(feed)

    alerts.keep(services.ledger, UNKNOWN, reasons, own_alerts.now, is_searched)
    if start != (limit.stopped or ""):
        with services.ledger.write() as connection:
            put_cursors(connection, {_SEARCHED: limit.stopped or ""})


def _look_for_bit_rot(services: Services, graph: Graph, own_alerts: OwnAlerts) -> "Rotten | None":
    """Check some newest updates for bit rot.

    This step has its own time limit, because the sweep may use up the tick's time.
    """
    from feed_assets.runs.bit_rot import look_in_turn  # pyarrow and numpy take long to load

    with services.ledger.read() as connection:
        reason_by_alert = {alert.name: alert.reason for alert in alerts.open_alerts(connection)}
    names = {
        name.removeprefix(f"{DAMAGED}:"): why for name, why in reason_by_alert.items() if name.startswith(f"{DAMAGED}:")
    }
    own_names = {name: why for name, why in names.items() if own_alerts.has_feed(name.partition("|")[0])}
    deadline = monotonic() + settings().tick_seconds / 2
    rotten = look_in_turn(services, graph.own(), own_names, own_alerts.now, lambda: monotonic() > deadline)
    if rotten:
        alerts.keep(services.ledger, DAMAGED, rotten.damaged, own_alerts.now, own_alerts.has_feed)
    return rotten


def _message(swept: Swept, pruned: PrunedLog | None, rotten: "Rotten | None", scratch: Sequence[Path]) -> str:
    lines = [str(each) for each in swept.done[:LINES_PER_MESSAGE]]
    if len(swept.done) > LINES_PER_MESSAGE:
        lines.append(f"and {len(swept.done) - LINES_PER_MESSAGE} more, see the log")
    lines += rotten.damaged.values() if rotten else ()
    lines += [f"{name} was not read completely: the time was over" for name in rotten.unfinished] if rotten else ()
    if swept.claims:
        lines.append(f"{swept.claims} old claims removed")
    if pruned and pruned.total:
        lines.append(f"{pruned.total} old rows of the ledger removed")
    lines += [f"removed {each}: scratch files of a killed Spark process" for each in scratch]
    if swept.stopped:
        lines.append("the time was over: the next tick continues")
    return "\n".join(lines) or "No orphans."


def _cursors(ledger: Ledger) -> tuple[str, str]:
    """Return when the last sweep ended ('' if it stopped halfway), and after which claim the next sweep continues."""
    with ledger.read() as connection:
        return get_cursor(connection, _LOOKED) or "", get_cursor(connection, _STOPPED) or ""


def _put_cursors(ledger: Ledger, looked: str, stopped: str) -> None:
    with ledger.write() as connection:
        put_cursors(connection, {_LOOKED: looked, _STOPPED: stopped})
