"""The slow sensor: once an hour it sweeps what attempts left, and looks for what nobody reads; the ledger it prunes
once a day."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic

import dagster as dg

from feed_assets.ledger import alerts
from feed_assets.ledger.database import Ledger, get_cursor, get_cursors, put_cursors
from feed_assets.ledger.retention import PrunedLog, prune_log
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.ours import Ours
from feed_assets.orchestration.decide.unknown import unread
from feed_assets.runs.orphans import Swept, sweep
from feed_assets.runs.services import Services
from feed_assets.settings import settings

PAUSE = timedelta(hours=1)
"""From one complete look to the next, whoever drives the sensor: `feed-assets run` evaluates it at every tick."""

PRUNE_PAUSE = timedelta(days=1)
"""From one complete pruning of the ledger to the next: it looks at every row that is old, and stays."""

UNKNOWN = "unknown"
"""The kind of alerts that say what on the blackboard nobody reads: `unknown:<feed>`."""

LINES_PER_MESSAGE = 20
"""A tick's message has so many at most; all of them are in its log."""

_LOOKED, _STOPPED = "looked for orphans", "stopped looking for orphans"
_PRUNED, _PRUNED_UPTO = "pruned the ledger", "stopped pruning the ledger"


def sweep_orphans(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """One tick: sweep until the time is over; what was done is the tick's message, which the UI shows."""
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor 'orphans' needs definitions: build its context with them.")
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        now = loading.effective_dt
    graph = Graph(context.repository_def.asset_graph)
    services = replace(Services.of(settings(), elsewhere=graph.elsewhere), now=lambda: now)
    looked, stopped = _cursors(services.ledger)
    if looked and now < (again := datetime.fromisoformat(looked) + PAUSE):
        return dg.SkipReason(f"The next look for orphans is at {again:%Y-%m-%d %H:%M} UTC.")
    deadline = monotonic() + settings().tick_seconds
    swept = sweep(services, graph.claiming(), lambda: monotonic() > deadline, stopped)
    for done in swept.done:
        context.log.info(str(done))
    pruned = _prune(services.ledger, now, lambda: monotonic() > deadline)
    alerts.keep(services.ledger, UNKNOWN, unread(graph, services, now), now, Ours(graph, services.ledger, now).has)
    _put_cursors(services.ledger, "" if swept.stopped else now.isoformat(), swept.stopped)
    return dg.SkipReason(_message(swept, pruned))


orphans_sensor = dg.SensorDefinition(
    name="orphans",
    evaluation_fn=sweep_orphans,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    asset_selection=dg.AssetSelection.all(),
    description=(
        "Once an hour: removes what dead and refused attempts left on the blackboard a day before, and old claims; "
        "opens alerts for feeds and partitions that belong to no declaration; once a day: removes what is old in the "
        "ledger. "
        "Requests nothing; a tick's message says what was done."
    ),
)


def _prune(ledger: Ledger, now: datetime, out_of_time: Callable[[], bool]) -> PrunedLog | None:
    """Prune the ledger until the time is over, from where the last tick stopped; None if it was done today.

    Killed before the cursors move, the next tick looks once more at what stays.
    """
    with ledger.read() as connection:
        known = get_cursors(connection, [_PRUNED, _PRUNED_UPTO])
    after, done = known.get(_PRUNED_UPTO, ""), known.get(_PRUNED)
    if done and not after and now < datetime.fromisoformat(done) + PRUNE_PAUSE:
        return None
    days = settings().log_days
    pruned = prune_log(ledger, now, days, None, apply=True, out_of_time=out_of_time, after=after)
    with ledger.write() as connection:
        put_cursors(connection, {_PRUNED: now.isoformat(), _PRUNED_UPTO: pruned.stopped})
    return pruned


def _message(swept: Swept, pruned: PrunedLog | None) -> str:
    lines = [str(each) for each in swept.done[:LINES_PER_MESSAGE]]
    if len(swept.done) > LINES_PER_MESSAGE:
        lines.append(f"and {len(swept.done) - LINES_PER_MESSAGE} more, see the log")
    if swept.claims:
        lines.append(f"{swept.claims} old claims removed")
    if pruned and pruned.total:
        lines.append(f"{pruned.total} old rows of the ledger removed")
    if swept.stopped:
        lines.append("the time was over: the next tick goes on")
    return "\n".join(lines) or "No orphans."


def _cursors(ledger: Ledger) -> tuple[str, str]:
    """When the last look was complete ('': one is under way), and the claim after which it goes on."""
    with ledger.read() as connection:
        return get_cursor(connection, _LOOKED) or "", get_cursor(connection, _STOPPED) or ""


def _put_cursors(ledger: Ledger, looked: str, stopped: str) -> None:
    with ledger.write() as connection:
        put_cursors(connection, {_LOOKED: looked, _STOPPED: stopped})
