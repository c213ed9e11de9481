"""From verdicts to run requests."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from feed_assets.core.attempts import ABANDONED, is_outage
from feed_assets.core.events import in_words
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.launching import run_key
from feed_assets.core.plans import choose
from feed_assets.core.propagation import Due
from feed_assets.core.readiness import State, Verdict
from feed_assets.core.words import some
from feed_assets.ledger import due, runs
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import Listed
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.ranges import RANGE_START, in_blocks, joint, named_by
from feed_assets.orchestration.decide.run_config import run_config_of
from feed_assets.runs.reconcile import GONE
from feed_assets.settings import settings

if TYPE_CHECKING:
    import sqlalchemy as sa

PRIORITY = {"dagster/priority": "10"}
"""What is new goes before the runs of a backfill, which have priority 0 unless their tags say otherwise."""

WHY = "feed_assets/why"
"""The tag of a run that a verdict asked for: the verdict, in words."""

NAMED = 3
"""Slices and correlation ids that a run's tags name; of the others they say how many there are."""

WITH_PROCESS = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
UNFINISHED = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, *WITH_PROCESS]

Found = Sequence[tuple[Listed, Verdict]]


def in_progress(graph: Graph, ledger: Ledger, instance: dg.DagsterInstance) -> set[Partition]:
    """The outputs that are being built, and those that unfinished Dagster runs are still to make.

    Runs are the one thing that Dagster is asked. One of many is over with a partition once that has been built, or not:
    it does not wait for its neighbours.
    """
    unfinished = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    made = {run.run_id: outputs_of(graph, run) for run in unfinished}
    joint = [(run.run_id, output) for run in unfinished if RANGE_START in run.tags for output in made[run.run_id]]
    with ledger.read() as connection:
        ended = runs.ended_in(connection, joint) if joint else set[tuple[str, Partition]]()
        running = {run.output for run in runs.running(connection)}
    return running | {output for run_id, outputs in made.items() for output in outputs if (run_id, output) not in ended}


def outputs_of(graph: Graph, run: dg.DagsterRun) -> set[Partition]:
    """The partitions of datasets that a run of Dagster is to build; of a key that no partition has (any more) none."""
    known = [key for key in run.asset_selection or () if key in graph.by_key and graph.by_key[key].outputs]
    found: set[Partition] = set()
    for node in map(graph.dataset, known):
        with suppress(Exception):  # Dagster raises errors of many classes, of its own and of Python.
            found |= {node.partition(key) for key in named_by(node.partitions_def, run.tags)}
    return found


def queued(graph: Graph, instance: dg.DagsterInstance, output: Partition) -> list[str]:
    """What waits in Dagster's queue to build an output, in words."""
    found = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    mine = [run for run in found if output in outputs_of(graph, run)]
    return [f"run {run.run_id} waits in Dagster's queue{_pools(run)}" for run in mine]


def _pools(run: dg.DagsterRun) -> str:
    pools = run.run_op_concurrency.all_pools if run.run_op_concurrency else ()
    return f", and needs a place in the pool {some(sorted(pools), NAMED)}" if pools else ""


def requests_for(
    graph: Graph, ledger: Ledger, decided: Found, busy: Collection[Partition], now: datetime
) -> list[dg.RunRequest]:
    """Runs for the outputs that are ready, at most so many, each for a block of them; the others stay on the list.

    What was built already is the business of the automation condition, unless it is built by events: that needs tags,
    slices and a plan.
    """
    free = {
        verdict.output: (item, verdict)
        for item, verdict in decided
        if _is_ready(graph, verdict) and verdict.output not in busy
    }
    blocks = of_a_tick(graph, ledger, [*free])
    outputs = [output for block in blocks for output in block]
    mine = [item.partition for item in due.claim(ledger, [free[output][0] for output in outputs], now)]
    if mine != outputs:  # Another one has requested the rest since: a range has no gaps.
        blocks = grouped(graph, ledger, mine)
    return [joint([_request(graph, *free[output]) for output in block]) for block in blocks]


def of_a_tick(graph: Graph, ledger: Ledger, outputs: Sequence[Partition]) -> list[list[Partition]]:
    """The runs that a tick may request of these outputs, each by what it builds: at most so many.

    One, which asks whether it is back, while a service is not there: of a run none but its first partition would begin.
    """
    with ledger.read() as connection:
        if is_a_service_out(connection, graph.by_feed):
            return [[output] for output in outputs[:1]]
    return grouped(graph, ledger, outputs)[: settings().max_requests]


def grouped(graph: Graph, ledger: Ledger, outputs: Sequence[Partition]) -> list[list[Partition]]:
    """Outputs in blocks that one run each may build, as the first of each block came.

    One whose process ended in the middle of it is by itself: if it is what ends its process (it may take too much
    memory), it does so to no other one.
    """
    with ledger.read() as connection:
        alone = runs.ended_last(connection, outputs, ABANDONED, GONE)
    by_feed: dict[Feed, list[str]] = {}
    for output in (each for each in outputs if each not in alone):
        by_feed.setdefault(output.feed, []).append(output.key)
    found = [
        [Partition(feed, path) for path in block]
        for feed, paths in by_feed.items()
        for block in in_blocks(graph.node(feed).partitions_def, paths, _most_in_a_run(graph.node(feed)))
    ]
    found += [[output] for output in outputs if output in alone]
    order = {output: number for number, output in enumerate(outputs)}
    return sorted(found, key=lambda block: min(order[output] for output in block))


def joined(graph: Graph, ledger: Ledger, requests: Iterable[dg.RunRequest]) -> list[dg.RunRequest]:
    """Requests of Dagster's automation, which asks for one run for each partition: those of neighbours as one.

    Assets that are none of ours stay as they are: nothing is known of what their functions can.
    """
    found, ours = list[dg.RunRequest](), dict[object, dict[Partition, dg.RunRequest]]()
    for each in requests:
        keys = frozenset(each.asset_selection or ())
        if keys and keys <= graph.by_key.keys():
            node = graph.dataset(min(keys))
            alike = keys, frozenset(each.asset_check_keys or ())
            ours.setdefault(alike, {})[node.partition(each.partition_key)] = each
        else:
            found.append(each)
    blocks = (
        [those[output] for output in block] for those in ours.values() for block in grouped(graph, ledger, [*those])
    )
    return [*found, *map(joint, blocks)]


def _most_in_a_run(node: Node) -> int:
    """How many partitions one run builds at most: by events each run is told what it alone takes."""
    return 1 if node.by_events else settings().partitions_per_run


def is_a_service_out(connection: "sa.Connection", feeds: Collection[Feed]) -> bool:
    """Whether a service that all runs need is not there.

    That is told by the run of this code location's feeds that ended last: another one may lack what this one has.
    """
    last = runs.last_ended(connection, feeds)
    return last is not None and last.state == ABANDONED and is_outage((last.reason or "").partition(":")[0])


def _is_ready(graph: Graph, verdict: Verdict) -> bool:
    is_late = verdict.state is State.REBUILD and graph.node(verdict.output.feed).by_events is not None
    return verdict.state is State.BUILD or is_late


def _request(graph: Graph, item: Listed, verdict: Verdict) -> dg.RunRequest:
    return request_of(graph, verdict, PRIORITY, run_key(verdict, item.changed, item.requested))


def request_of(graph: Graph, verdict: Verdict, tags: Mapping[str, str], key: str | None = None) -> dg.RunRequest:
    """The run that a verdict asks for; by events it takes what is due."""
    node = graph.node(verdict.output.feed)
    tags = {**tags, "feed_assets/output": verdict.output.path, WHY: verdict.reason}
    config: dict[str, Any] = {}
    if node.by_events and verdict.state is not State.CURRENT:
        due = verdict.due or Due()
        plan = choose(node.by_events.plans, due.slices, reloads=verdict.reloads)
        tags |= {**_tags_of(due), "feed_assets/plan": plan.kind, **plan.tags}
        config = run_config_of(node, graph.need(verdict.output), verdict, plan)
    return dg.RunRequest(
        run_key=key,
        partition_key=node.key_of(verdict.output),
        asset_selection=node.outputs,
        asset_check_keys=graph.checks(node),
        run_config=config,
        tags=tags,
    )


def _tags_of(due: Due) -> dict[str, str]:
    """What a run consumes, for people who look for it in the UI: a few of many."""
    slices = [f"{each.partition} ({in_words(each.start)}, {in_words(each.end)}]" for each in due.slices]
    tags = {"feed_assets/correlation": some(due.correlations, NAMED), "feed_assets/slices": some(slices, NAMED)}
    return {name: value for name, value in tags.items() if value}
