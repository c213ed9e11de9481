"""The slow sensor: once an hour it sweeps what attempts left, looks for what nobody reads, and prunes the log."""

from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic

import dagster as dg

from feed_assets.ledger import alerts, log
from feed_assets.ledger.database import Ledger, get_cursor, put_cursors
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.ours import Ours
from feed_assets.orchestration.decide.unknown import unread
from feed_assets.runs.orphans import Swept, sweep
from feed_assets.runs.services import Services
from feed_assets.settings import settings

PAUSE = timedelta(hours=1)
"""From one complete look to the next, whoever drives the sensor: `feed-assets run` evaluates it at every tick."""

UNKNOWN = "unknown"
"""The kind of alerts that say what on the blackboard nobody reads: `unknown:<feed>`."""

LINES_PER_MESSAGE = 20
"""A tick's message has so many at most; all of them are in its log."""

_LOOKED, _STOPPED = "looked for orphans", "stopped looking for orphans"


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
    with services.ledger.write() as connection:
        log.prune(connection, now - timedelta(days=settings().log_days))
    alerts.keep(services.ledger, UNKNOWN, unread(graph, services, now), now, Ours(graph, services.ledger, now).has)
    _put_cursors(services.ledger, "" if swept.stopped else now.isoformat(), swept.stopped)
    return dg.SkipReason(_message(swept))


orphans_sensor = dg.SensorDefinition(
    name="orphans",
    evaluation_fn=sweep_orphans,
    minimum_interval_seconds=300,
    default_status=dg.DefaultSensorStatus.RUNNING,
    asset_selection=dg.AssetSelection.all(),
    description=(
        "Once an hour: removes what dead and refused attempts left on the blackboard a day before, and old claims; "
        "opens alerts for feeds and partitions that belong to no declaration. "
        "Requests nothing; a tick's message says what was done."
    ),
)


def _message(swept: Swept) -> str:
    lines = [str(each) for each in swept.done[:LINES_PER_MESSAGE]]
    if len(swept.done) > LINES_PER_MESSAGE:
        lines.append(f"and {len(swept.done) - LINES_PER_MESSAGE} more, see the log")
    if swept.claims:
        lines.append(f"{swept.claims} old claims removed")
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
