"""Run requests for verdicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import dagster as dg

from feed_assets.core.events import in_words
from feed_assets.core.feeds import Partition
from feed_assets.core.launching import PRIORITY, run_key
from feed_assets.core.message_words import shortened
from feed_assets.core.plans import choose
from feed_assets.core.propagation import Due
from feed_assets.core.readiness import State, Verdict
from feed_assets.ledger import runs
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.home_choice import placed
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.decide.request_budget import in_turn, is_history, of_a_tick, place
from feed_assets.orchestration.decide.resource_requests import ALLOCATION, claimed, in_queue_order, target_tags
from feed_assets.orchestration.decide.run_blocks import RANGE_START, joint, named_by
from feed_assets.orchestration.decide.run_config import run_config_of
from feed_assets.orchestration.decide.unfinished_runs import UNFINISHED

WHY = "feed_assets/why"
"""The run tag with the reason of the verdict that requested the run."""

NAMED = 3
"""Greatest number of slices, and of correlation ids, that a run's tags name.

If there are more, the tags also have the number of the unnamed ones.
"""

Found = Sequence[tuple[DueOutput, Verdict]]


def in_progress(graph: Graph, ledger: Ledger, instance: dg.DagsterInstance) -> set[Partition]:
    """Return the outputs that are being built, and those that unfinished Dagster runs will build.

    Dagster shows only which runs are unfinished. In a run of many partitions, the ledger shows which builds have ended.
    The partitions of these builds are no longer in progress, even if a build failed.
    """
    unfinished = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    outputs_by_run = {run.run_id: outputs_of(graph, run) for run in unfinished}
    joint = [
        (run.run_id, output) for run in unfinished if RANGE_START in run.tags for output in outputs_by_run[run.run_id]
    ]
    with ledger.read() as connection:
        ended = runs.ended_in(connection, joint) if joint else set[tuple[str, Partition]]()
        running = {run.output for run in runs.running(connection)}
    return running | {
        output for run_id, outputs in outputs_by_run.items() for output in outputs if (run_id, output) not in ended
    }


def outputs_of(graph: Graph, run: dg.DagsterRun) -> set[Partition]:
    """Return the partitions that a Dagster run will build. Skip keys without an existing partition."""
    asset_keys = [key for key in run.asset_selection or () if key in graph.by_key and graph.by_key[key].outputs]
    outputs: set[Partition] = set()
    for node in map(graph.dataset, asset_keys):
        with suppress(Exception):  # Dagster raises errors of many classes
            outputs |= {node.partition(key) for key in named_by(node.partitions_def, run.tags)}
    return outputs


def queued(graph: Graph, instance: dg.DagsterInstance, output: Partition) -> list[str]:
    """Return a text for each run that waits in Dagster's queue to build an output."""
    queued_runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    building = [run for run in queued_runs if output in outputs_of(graph, run)]
    return [f"run {run.run_id} waits in Dagster's queue{_pools(run)}" for run in building]


def _pools(run: dg.DagsterRun) -> str:
    pools = run.run_op_concurrency.all_pools if run.run_op_concurrency else ()
    return f" for a place in the pool {shortened(sorted(pools), NAMED)}" if pools else ""


def requests_for(
    graph: Graph, ledger: Ledger, decided: Found, busy: Collection[Partition], now: datetime
) -> list[dg.RunRequest]:
    """Return run requests for ready outputs, as many as a tick may request. The other outputs stay on the due list.

    Outputs that were built before are left to the automation condition. Outputs built by events are always requested
    here, because their runs need tags, slices and a plan.
    """
    free = {
        verdict.output: (item, verdict)
        for item, verdict in decided
        if _is_ready(graph, verdict) and verdict.output not in busy
    }
    items = {output: item for output, (item, _) in free.items()}
    inputs = placed(graph, ledger, items, {output: verdict for output, (_, verdict) in free.items()}, now)
    sizes = {output: verdict.bytes for output, (_, verdict) in free.items() if inputs is None or output in inputs}
    requested = of_a_tick(graph, ledger, in_queue_order(graph, ledger, sizes, now), now)
    blocks = claimed(graph, ledger, requested, items, now, inputs=inputs or {})
    tags = target_tags(ledger, [output for block in blocks for output in block])
    return [
        joint([_tagged(_request(graph, *free[output], now), tags.get(output, {})) for output in block])
        for block in blocks
    ]


def joined(graph: Graph, ledger: Ledger, requests: Iterable[dg.RunRequest], now: datetime) -> list[dg.RunRequest]:
    """Join the requests for neighbouring partitions. Dagster's automation makes one request per partition.

    Requests for assets that are not ours are not joined, because their functions may not support several partitions.
    History comes last.
    """
    kept, groups = list[dg.RunRequest](), dict[object, dict[Partition, dg.RunRequest]]()
    requests = [*requests]
    tags = target_tags(ledger, _outputs_of(graph, requests))
    for each in requests:
        keys = frozenset(each.asset_selection or ())
        if keys and keys <= graph.by_key.keys():
            node = graph.dataset(min(keys))
            output = node.partition(each.partition_key)
            is_old = is_history(graph, output, now)
            of_target = tags.get(output, {})  # Neighbours may have different targets, but a run has one.
            alike = is_old, keys, frozenset(each.asset_check_keys or ()), of_target.get(ALLOCATION)
            request = _without_priority(each) if is_old else each
            groups.setdefault(alike, {})[output] = _tagged(request, of_target)
        else:
            kept.append(each)
    blocks = [(those, block) for those in groups.values() for block in in_turn(graph, ledger, those, now)]
    blocks.sort(key=lambda each: place(graph, each[1][0], now))
    return [*kept, *(joint([those[output] for output in block]) for those, block in blocks)]


def _outputs_of(graph: Graph, requests: Iterable[dg.RunRequest]) -> list[Partition]:
    """Return the outputs of requests for our own datasets."""
    own = [each for each in requests if each.asset_selection and {*each.asset_selection} <= graph.by_key.keys()]
    return [graph.dataset(min(each.asset_selection or ())).partition(each.partition_key) for each in own]


def _tagged(request: dg.RunRequest, tags: Mapping[str, str]) -> dg.RunRequest:
    return request.with_replaced_attrs(tags={**request.tags, **tags}) if tags else request


def _without_priority(request: dg.RunRequest) -> dg.RunRequest:
    """Return a request for history without the priority tag.

    The sensor has this tag, and Dagster copies it to each request.
    """
    tags = {name: value for name, value in request.tags.items() if name not in PRIORITY}
    return request.with_replaced_attrs(tags=tags)


def _is_ready(graph: Graph, verdict: Verdict) -> bool:
    is_late = verdict.state is State.REBUILD and graph.node(verdict.output.feed).by_events is not None
    return verdict.state is State.BUILD or is_late


def _request(graph: Graph, item: DueOutput, verdict: Verdict, now: datetime) -> dg.RunRequest:
    tags = {} if is_history(graph, verdict.output, now) else PRIORITY
    return request_of(graph, verdict, tags, run_key(verdict, item.changed, item.requested))


def request_of(graph: Graph, verdict: Verdict, tags: Mapping[str, str], key: str | None = None) -> dg.RunRequest:
    """Return Dagster's run request that builds a verdict's output.

    If the output is built by events, the run reads the new slices of its tables.
    """
    node = graph.node(verdict.output.feed)
    tags = {**tags, "feed_assets/output": verdict.output.path, WHY: verdict.reason}
    config: dict[str, Any] = {}
    if node.by_events and verdict.state is not State.CURRENT:
        due = verdict.due or Due()
        plan = choose(node.by_events.plans, due.slices, reloads=verdict.reloads)
        tags |= {**_tags_of(due), "feed_assets/plan": plan.kind, **plan.tags}
        config = run_config_of(node, need_of(graph, verdict.output), verdict, plan)
    return dg.RunRequest(
        run_key=key,
        partition_key=node.key_of(verdict.output),
        asset_selection=node.outputs,
        asset_check_keys=graph.checks(node),
        run_config=config,
        tags=tags,
    )


def _tags_of(due: Due) -> dict[str, str]:
    """Return Dagster tags that name some slices and correlation ids of a run, so that people find the run in the UI."""
    slices = [f"{each.partition} ({in_words(each.start)}, {in_words(each.end)}]" for each in due.slices]
    tags = {
        "feed_assets/correlation": shortened(due.correlations, NAMED),
        "feed_assets/slices": shortened(slices, NAMED),
    }
    return {name: value for name, value in tags.items() if value}
