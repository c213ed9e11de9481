"""The sensors of what is built by events: one for datasets that read feeds alone, one for each event source.

They decide from the ledger, as the sensor `feeds` does: what is due stays due until a run has consumed it, whatever
happens to a tick or a run. Their Dagster cursor only counts ticks that left something to do.
"""

from datetime import datetime

import dagster as dg

from feed_assets.orchestration.decisions import decide_due, fan_out
from feed_assets.orchestration.graph import Graph
from feed_assets.orchestration.requests import Budget, in_progress, requests_for
from feed_assets.orchestration.sensors import DECISIONS, log_lost
from feed_assets.runs.workbench import Workbench
from feed_assets.settings import settings

EVENTS = "events"
"""The sensor of datasets by events that read feeds alone; that of an event source is called `events_<source>`."""

FAN_OUT, DECIDE = 0.4, 0.7
"""The share of a tick's time by which each step ends."""


def _look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """One tick: deliver what was published since the last one, request the runs that are due."""
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        return _tick(context, None, loading.effective_dt)


def _tick(context: dg.SensorEvaluationContext, source: str | None, now: datetime) -> dg.SensorResult:
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError(
            f"The sensor {EVENTS!r} needs definitions: build its context with them."
        )
    bench, graph = Workbench.of(settings()), Graph(context.repository_def.asset_graph)
    budget = Budget(settings().tick_seconds)
    mine = graph.by_events(source)
    busy = in_progress(context.instance)
    is_told = fan_out(graph, mine, bench.ledger, now, budget.is_over(FAN_OUT))
    decided = decide_due(graph, mine, bench.ledger, now, DECISIONS, budget.is_over(DECIDE))
    log_lost(context, decided.found)
    requests = requests_for(graph, bench, decided.found, busy)
    is_idle = is_told and decided.is_complete
    cursor = context.cursor if is_idle else str(int(context.cursor or 0) + 1)
    return dg.SensorResult(run_requests=requests, cursor=cursor)


events_sensor = dg.SensorDefinition(
    name=EVENTS,
    evaluation_fn=_look,
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
    asset_selection=dg.AssetSelection.all(),
    description="Requests the runs of datasets by events, once an update has reached all that they read.",
)
