"""The sensors of what is built by events: one for datasets that read feeds alone, one for each event source.

They decide from the ledger, as the sensor `feeds` does: what is due stays due until a run has consumed it, whatever
happens to a tick or a run. Their Dagster cursor says what Dagster was told, and counts unfinished ticks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import dagster as dg

from feed_assets.ledger import events
from feed_assets.ledger.database import Ledger
from feed_assets.orchestration.decisions import decide_due, fan_out
from feed_assets.orchestration.declarations import Declaration
from feed_assets.orchestration.event_tables import declared_sources, learn, materialization, newest_events, sources_of
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.orchestration.outlets import publish_events
from feed_assets.orchestration.requests import EVENTS as MOST_EVENTS
from feed_assets.orchestration.requests import Budget, in_progress, requests_for
from feed_assets.orchestration.sensors import DECISIONS, log_lost
from feed_assets.orchestration.watch import digest, evaluations, watch
from feed_assets.runs.workbench import Workbench
from feed_assets.settings import settings

EVENTS = "events"
"""The sensor of datasets by events that read feeds alone; that of an event source is called `events_<source>`."""

LEARN, FAN_OUT, DECIDE, PUBLISH, WATCH = 0.3, 0.5, 0.7, 0.8, 0.9
"""The share of a tick's time by which each step ends."""


@dataclass(frozen=True)
class _Tick:
    """One tick of one of these sensors."""

    context: dg.SensorEvaluationContext
    graph: Graph
    bench: Workbench
    budget: Budget
    now: datetime

    def request(self, mine: Sequence[Node]) -> tuple[list[dg.RunRequest], bool]:
        """The runs that are due of some datasets, and whether nothing is left to look at."""
        busy = in_progress(self.context.instance)
        is_told = fan_out(self.graph, mine, self.bench.ledger, self.now, self.budget.is_over(FAN_OUT))
        over = self.budget.is_over(DECIDE)
        decided = decide_due(self.graph, mine, self.bench.ledger, self.now, DECISIONS, over)
        log_lost(self.context, decided.found)
        return requests_for(self.graph, self.bench, decided.found, busy), is_told and decided.is_complete


def _begin(context: dg.SensorEvaluationContext, now: datetime) -> _Tick:
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensors of events need definitions: build their context so.")
    bench, graph = Workbench.of(settings()), Graph(context.repository_def.asset_graph)
    return _Tick(context, graph, bench, Budget(settings().tick_seconds), now)


def _look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Deliver what was published since the last tick, request what is due, publish it besides, tell what is wrong."""
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        tick = _begin(context, loading.effective_dt)
        requests, is_idle = tick.request(tick.graph.by_events(None))
        publish_events(tick.bench, tick.budget.is_over(PUBLISH))
        watch(tick.graph, tick.bench.ledger, tick.now, tick.budget.is_over(WATCH))
        checks = evaluations(tick.graph, tick.bench.ledger)
        known, _, unfinished = (context.cursor or "/0").rpartition("/")
        cursor = f"{digest(checks)}/{int(unfinished) + (not is_idle)}"
        told = checks if digest(checks) != known else []
        return dg.SensorResult(run_requests=requests, asset_events=told, cursor=cursor)


def _look_at(name: str, context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Learn what is new in an event source, tell Dagster of it, and request the runs that are due."""
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        tick = _begin(context, loading.effective_dt)
        source = sources_of(tick.graph)[name]
        learned = learn(tick.graph, tick.bench, source, tick.now, tick.budget.is_over(LEARN))
        for problem in learned.problems:
            context.log.warning(problem)
        if learned.rejected:
            context.log.warning(f"{learned.rejected} rows are no events: feed-assets events ls --rejected lists them")
        requests, is_idle = tick.request(tick.graph.by_events(name))
        told, unfinished = _cursor(context.cursor, _recent(tick.bench.ledger))
        new = newest_events(tick.graph, tick.bench, name, told, tick.budget.events)
        found = [each for event in new if (each := materialization(tick.graph, event, tick.now))]
        upto = new[-1].sequence if new else told
        cursor = f"{upto}/{unfinished + (not (is_idle and learned.is_complete))}"
        return dg.SensorResult(run_requests=requests, asset_events=found, cursor=cursor)


def _cursor(text: str | None, otherwise: int) -> tuple[int, int]:
    """Up to which event Dagster was told, and how many ticks left something to do."""
    told, _, unfinished = (text or f"{otherwise}/0").partition("/")
    return int(told), int(unfinished)


def _recent(ledger: Ledger) -> int:
    """Where a new Dagster instance begins to be told: not with all of the history."""
    with ledger.read() as connection:
        return max(0, events.last_sequence(connection) - MOST_EVENTS)


def event_sensors(declarations: Sequence[Declaration]) -> list[dg.SensorDefinition]:
    """The sensor of datasets that read feeds alone, and one for each event source that is declared."""
    return [_sensor(None), *(_sensor(name) for name in sorted(declared_sources(declarations)))]


def _sensor(source: str | None) -> dg.SensorDefinition:
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        return _look_at(source, context) if source else _look(context)

    read = f"Reads the event source {source}, and requests" if source else "Requests"
    return dg.SensorDefinition(
        name=f"{EVENTS}_{source}" if source else EVENTS,
        evaluation_fn=look,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=dg.AssetSelection.all(),
        description=f"{read} the runs of datasets by events, once an update has reached all that they read.",
    )
