"""From verdicts to run requests."""

from collections.abc import Collection, Mapping, Sequence
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
from feed_assets.orchestration.decide.run_config import run_config_of
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

InProgress = set[tuple[dg.AssetKey, str | None]]
Found = Sequence[tuple[Listed, Verdict]]


def in_progress(instance: dg.DagsterInstance) -> InProgress:
    """The assets and partition keys that unfinished Dagster runs make: the one thing that Dagster is asked."""
    found: InProgress = set()
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        found |= {(key, run.tags.get("dagster/partition")) for key in run.asset_selection or ()}
    return found


def requests_for(graph: Graph, ledger: Ledger, decided: Found, busy: InProgress, now: datetime) -> list[dg.RunRequest]:
    """One run for each output that is ready, at most so many; the others stay on the list.

    What was built already is the business of the automation condition, unless it is built by events: that needs tags,
    slices and a plan.
    """
    with ledger.read() as connection:
        running, limit = {run.output for run in runs.running(connection)}, most_requests(connection, graph.by_feed)
    ready = [pair for pair in decided if _is_ready(graph, pair[1]) and pair[1].output not in running]
    free = [pair for pair in ready if not is_busy(graph, pair[1].output, busy)][:limit]
    due.space_out(ledger, [item for item, _ in free], now)
    return [_request(graph, item, verdict) for item, verdict in free]


def most_requests(connection: "sa.Connection", feeds: Collection[Feed]) -> int:
    """How many runs a tick may request: one, which asks whether it is back, while a service that all need is not there.

    That is told by the run of this code location's feeds that ended last: another one may lack what this one has.
    """
    last = runs.last_ended(connection, feeds)
    is_out = last is not None and last.state == ABANDONED and is_outage((last.reason or "").partition(":")[0])
    return 1 if is_out else settings().max_requests


def _is_ready(graph: Graph, verdict: Verdict) -> bool:
    is_late = verdict.state is State.REBUILD and graph.node(verdict.output.feed).by_events is not None
    return verdict.state is State.BUILD or is_late


def is_busy(graph: Graph, partition: Partition, busy: InProgress) -> bool:
    """Whether an unfinished run makes this partition."""
    node = graph.node(partition.feed)
    return (node.key, node.key_of(graph.parent_partition(partition))) in busy


def _request(graph: Graph, item: Listed, verdict: Verdict) -> dg.RunRequest:
    return request_of(graph, verdict, PRIORITY, run_key(verdict, item.changed, item.requested))


def request_of(graph: Graph, verdict: Verdict, tags: Mapping[str, str], key: str | None = None) -> dg.RunRequest:
    """The run that a verdict asks for; by events it takes what is due."""
    node = graph.node(verdict.output.feed)
    tags = {**tags, "feed_assets/output": verdict.output.path, WHY: verdict.reason}
    config: dict[str, Any] = {}
    if node.by_events and verdict.state is not State.CURRENT:
        due = verdict.due or Due()
        plan = choose(node.by_events.plans, due.slices)
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
