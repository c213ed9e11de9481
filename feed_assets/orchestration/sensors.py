"""The sensor `feeds`: what arrived, what it affects, what can be built now, what Dagster has not been told.

It decides from the ledger. Its Dagster cursor is only the number of the tick, by which Dagster confirms that it
stored what the tick told it. The instance keeps the last confirmed number, for whoever drives the sensor; a new
instance has none, and is told everything again.
"""

from collections.abc import Sequence
from datetime import datetime

import dagster as dg

from feed_assets.core.feeds import Partition
from feed_assets.core.positions import Pin, pins_digest
from feed_assets.core.readiness import State
from feed_assets.ledger import updates
from feed_assets.ledger.facts import pins_of
from feed_assets.orchestration.decisions import decide_due, fan_out
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.orchestration.left_runs import settle_left
from feed_assets.orchestration.partitions import Standing, standing
from feed_assets.orchestration.requests import Budget, Found, InProgress, in_progress, is_busy, requests_for
from feed_assets.runs.arrive import arrive
from feed_assets.runs.workbench import Workbench
from feed_assets.settings import settings

DECISIONS = 1000
"""Outputs that one tick decides about at most; the rest follow in the next ones."""

DATA_VERSION_TAG = "dagster/data_version"

TOLD = "feed_assets/told"

ARRIVE, FAN_OUT, DECIDE = 0.35, 0.5, 0.65
"""The share of a tick's time by which each step ends: one with much to do must not starve those after it."""

NEVER_TOLD = 0
"""In place of a tick's number, for updates of what is no partition of its asset: Dagster has no place for them."""


def look_and_request(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """One tick: record foreign updates, request what was never built and now can be, tell Dagster what it missed."""
    with dg.partition_loading_context(dynamic_partitions_store=context.instance) as loading:
        return _tick(context, loading.effective_dt)


def _tick(context: dg.SensorEvaluationContext, now: datetime) -> dg.SensorResult:
    """`now` is Dagster's own: what is a partition and what is decided are of one moment."""
    if context.repository_def is None:
        raise dg.DagsterInvariantViolationError("The sensor 'feeds' needs definitions: build its context with them.")
    bench, graph = Workbench.of(settings()), Graph(context.repository_def.asset_graph)
    budget = Budget(settings().tick_seconds)
    for settled in settle_left(context.instance, bench):
        context.log.info(f"settled run {settled.run.id} of {settled.run.output}, which ended without saying so")
    foreign = graph.foreign()
    batched = {node.feed for node in foreign if node.is_appendable}
    arrivals = arrive(bench, [node.feed for node in foreign], budget.is_over(ARRIVE), batched)
    busy = in_progress(context.instance)
    mine = [node for node in graph.datasets() if not node.by_events]
    is_told = fan_out(graph, mine, bench.ledger, now, budget.is_over(FAN_OUT))
    decided = decide_due(graph, mine, bench.ledger, now, DECISIONS, budget.is_over(DECIDE))
    log_lost(context, decided.found)
    requests = requests_for(graph, bench, decided.found, busy)
    confirmed = _confirmed(context, graph, bench)
    events = _events(graph, bench, busy, confirmed, now, budget.events)
    is_idle = arrivals.is_complete and is_told and decided.is_complete and not events
    cursor = context.cursor if is_idle else str(confirmed + 1)
    return dg.SensorResult(run_requests=requests, asset_events=events, cursor=cursor)


feeds_sensor = dg.SensorDefinition(
    name="feeds",
    evaluation_fn=look_and_request,
    minimum_interval_seconds=5,
    default_status=dg.DefaultSensorStatus.RUNNING,
    asset_selection=dg.AssetSelection.all(),
    description=(
        "Records the new valid updates of foreign feeds, and requests every partition that was never built and now "
        "can be. Late data of what was built already are the automation condition's business."
    ),
)


def log_lost(context: dg.SensorEvaluationContext, decided: Found) -> None:
    """Tell the tick's log what was built and can no longer be: an input has nothing valid left, or too little."""
    for _, verdict in decided:
        if verdict.published and verdict.state in (State.WAITS_FOR_INPUT, State.WAITS_FOR_A_PERSON):
            context.log.warning(f"{verdict.output} {verdict.state.value}: {verdict.reason}")


def _confirmed(context: dg.SensorEvaluationContext, graph: Graph, bench: Workbench) -> int:
    """The last tick whose events this instance has stored; a new instance forgets what others were told."""
    storage = context.instance.daemon_cursor_storage
    known = storage.get_cursor_values({TOLD}).get(TOLD)
    if known is None:
        updates.forget_told(bench.ledger, graph.by_feed.keys())
    confirmed = max(int(known or 0), int(context.cursor or 0))
    if str(confirmed) != known:
        storage.set_cursor_values({TOLD: str(confirmed)})
    return confirmed


def _events(
    graph: Graph, bench: Workbench, busy: InProgress, confirmed: int, now: datetime, most: int
) -> list[dg.AssetMaterialization]:
    """Materializations of what Dagster has not confirmed: foreign updates, and our own whose run could not tell it."""
    with bench.ledger.read() as connection:
        untold = updates.to_tell(connection, graph.by_feed.keys(), confirmed, most)
    stands = {row: _standing(graph, row.partition, now) for row in untold}
    strange = [row for row in untold if stands[row] is Standing.NEVER]
    updates.mark_told(bench.ledger, [(row.partition, row.id) for row in strange], NEVER_TOLD)
    rows = [row for row in untold if stands[row] is Standing.IS and not is_busy(graph, row.partition, busy)]
    updates.mark_told(bench.ledger, [(row.partition, row.id) for row in rows], confirmed + 1)
    in_batches = [row for row in rows if graph.node(row.partition.feed).is_appendable]
    singles = [_event(graph, row) for row in rows if row not in in_batches]
    return singles + _set_events(graph, bench, in_batches)


def _standing(graph: Graph, partition: Partition, now: datetime) -> Standing:
    return standing(graph.node(partition.feed).partitions_def, graph.whole(partition).key, now)


def _set_events(graph: Graph, bench: Workbench, news: Sequence[updates.Row]) -> list[dg.AssetMaterialization]:
    """One materialization of each partition whose batches have news, however many: its data are the whole set."""
    by_set: dict[Partition, list[updates.Row]] = {}
    for row in news:
        by_set.setdefault(graph.whole(row.partition), []).append(row)
    with bench.ledger.read() as connection:
        sets = pins_of(connection, sorted(by_set))
    return [_set_event(graph.node(whole.feed), whole, by_set[whole], pins) for whole, pins in sets.items() if pins]


def _set_event(
    node: Node, whole: Partition, news: Sequence[updates.Row], pins: Sequence[Pin]
) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(whole),
        metadata={
            "update id": max(pin.update_id for pin in pins),
            "path": whole.path,
            "batches": len(pins),
            "new": dg.MetadataValue.json({row.partition.name: row.id for row in news}),
            "files": sum(pin.files for pin in pins),
            "bytes": sum(pin.size for pin in pins),
        },
        tags={DATA_VERSION_TAG: pins_digest(pins)},
    )


def _event(graph: Graph, row: updates.Row) -> dg.AssetMaterialization:
    node = graph.node(row.partition.feed)
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(row.partition),
        metadata={
            "update id": row.id,
            "path": f"{row.partition.path}/{row.id}",
            "files": row.files or 0,
            "bytes": row.size or 0,
            **({"dagster/row_count": row.records} if row.records is not None else {}),
        },
        tags={DATA_VERSION_TAG: row.version or row.id},
    )
