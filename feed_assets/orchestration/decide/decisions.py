"""The step 'decide': verdicts about the listed outputs of one code location's datasets."""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.isolation import failing_alone
from feed_assets.core.propagation import Due
from feed_assets.core.readiness import Need, State, Verdict, decide
from feed_assets.core.windows import WindowAddress, address_of
from feed_assets.ledger import announce, batch_sets, due, event_store, inbox, late_decisions, log, quality
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.fact_queries import facts
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets.ledger.log import Change
from feed_assets.ledger.tainted import BuildDeclarations
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.decide.pipeline_tables import consumer_of
from feed_assets.orchestration.decide.redeclared import look_at_redeclared
from feed_assets.orchestration.decide.repartitioned import look_at_repartitioned
from feed_assets.orchestration.declare.by_events import TOLD, Pipelines
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.orchestration.declare.partitions import Existence, end_of, existence
from feed_assets.settings import settings

if TYPE_CHECKING:
    from dagster._core.definitions.assets.graph.base_asset_graph import BaseAssetGraph

_log = logging.getLogger(__name__)
DECISIONS_AT_ONCE = 100
"""Number of outputs decided as one group. The tick checks its time budget after each group."""

_known_pipelines: "WeakKeyDictionary[BaseAssetGraph[Any], dict[Feed, Pipelines | None]]" = WeakKeyDictionary()
"""For each loaded set of definitions: the datasets that this process has decided about, with the pipelines used.

The pipelines of a dataset are None if they cannot change or were not needed yet.
"""

_checked_feeds: "WeakKeyDictionary[BaseAssetGraph[Any], set[Feed]]" = WeakKeyDictionary()
"""For each loaded set of definitions: the datasets whose current declaration is recorded in the ledger."""

_released: "WeakKeyDictionary[BaseAssetGraph[Any], set[Feed]]" = WeakKeyDictionary()
"""For each loaded set of definitions: the datasets that `look_at_held` has handled in this process."""


@dataclass(frozen=True)
class Decided:
    """Verdicts of one step. `is_complete` means that nothing is left to decide and no change waits for its fan-out."""

    verdicts: Sequence[tuple[DueOutput, Verdict]]
    is_complete: bool


def verdicts(
    graph: Graph, connection: sa.Connection, outputs: Sequence[Partition], now: datetime
) -> tuple[Verdict, ...]:
    """Return what to do about these outputs, and why. The sensor, the condition and `explain` all use this function."""
    return decide_needs(connection, [need_of(graph, output) for output in outputs], now)


def due_of(
    graph: Graph, connection: sa.Connection, nodes: Iterable[Node], now: datetime, problems: dict[str, str]
) -> dict[Partition, Due]:
    """Return what each output with unconsumed events has to consume: propagations and slices.

    The rules are the same as for decisions. If the needs of a dataset cannot be determined, its feed is added to
    `problems`.
    """
    waiting: dict[Feed, list[Partition]] = {}
    for output in inbox.outputs(connection):
        waiting.setdefault(output.feed, []).append(output)
    needs: list[Need] = []
    for node in nodes:
        with failing_alone(problems, str(node.feed)):
            outputs = waiting.get(node.feed, ()) if consumer_of(graph, node) else ()
            needs += [need_of(graph, each) for each in outputs if _is_there(node, each, now)]
    return {each.output: each.due for each in decide_needs(connection, needs, now) if each.due}


def _is_there(node: Node, output: Partition, now: datetime) -> bool:
    return existence(node.partitions_def, output.key, now) is Existence.EXISTS


def decide_needs(connection: sa.Connection, needs: Sequence[Need], now: datetime) -> tuple[Verdict, ...]:
    """Return one verdict for each need, from the ledger's facts."""
    return decide(needs, facts(connection, needs, now, settings().max_attempts, settings().run_cost))


def decide_due(
    graph: Graph,
    datasets: Sequence[Node],
    ledger: Ledger,
    now: datetime,
    limit: int,
    out_of_time: Callable[[], bool],
    busy: Collection[Partition] = (),
) -> Decided:
    """Decide the due outputs of some datasets until the time budget is used up, and store the verdicts on the due list.

    Skip ready outputs of history that are in `busy`: a run is building them, and they are decided again after the run.
    """
    feeds = [node.feed for node in datasets]
    _look_at_stopped(graph, datasets, ledger, now)
    with ledger.read() as connection:
        looked = due.look(connection, feeds, now, limit=limit, history=settings().history, busy=busy)
        before = log.last(connection)
    decided: list[tuple[DueOutput, Verdict]] = []
    for first in range(0, len(looked), DECISIONS_AT_ONCE):
        if first and out_of_time():
            return Decided(decided, is_complete=False)
        decided += _decide_some(graph, ledger, looked[first : first + DECISIONS_AT_ONCE], now)
    with ledger.read() as connection:
        moved = log.has_after(connection, before) or any(_consumes_without_a_run(verdict) for _, verdict in decided)
    return Decided(decided, is_complete=len(looked) < limit and not moved)


def _look_at_stopped(graph: Graph, datasets: Sequence[Node], ledger: Ledger, now: datetime) -> None:
    """Schedule a new decision about waiting outputs if their dataset or its pipelines are new to this process.

    New definitions may remove the reason for which they wait, such as too many failed attempts.
    """
    recorded = _known_pipelines.setdefault(graph.assets, {})
    current = _current_pipelines(graph, datasets, ledger)
    judged_by = {node.feed: current.get(node.feed, recorded.get(node.feed)) for node in datasets}
    if new := {feed for feed, pipelines in judged_by.items() if feed not in recorded or recorded[feed] != pipelines}:
        due.look_at_stopped(ledger, new, now)
        recorded |= judged_by


def _current_pipelines(graph: Graph, datasets: Sequence[Node], ledger: Ledger) -> dict[Feed, Pipelines]:
    """Return the current pipelines of datasets that wait for a propagation.

    Only pipelines from a lineage table or file are returned. This table or file is read each time, because no event
    reports a change of it.
    """
    external = [node for node in datasets if node.by_events and isinstance(node.by_events.pipelines, TOLD)]
    if not external:
        return {}
    with ledger.read() as connection:
        waiting = due.consumers_in(connection, State.WAITS_FOR_PROPAGATION)
    pipelines: dict[Feed, Pipelines] = {}
    for node in [node for node in external if node.feed in waiting]:
        with suppress(FeedAssetsError):  # reported when a decision needs the pipelines
            pipelines |= {node.feed: consumer.pipelines} if (consumer := consumer_of(graph, node)) else {}
    return pipelines


def look_at_held(graph: Graph, datasets: set[Feed], ledger: Ledger, now: datetime) -> None:
    """Schedule a new decision about outputs that wait for a time. A process does this once for each dataset.

    They may wait because of the daily limit of history, which new settings may have raised. Only processes that request
    outputs, and so apply this limit, call this function.
    """
    if new := datasets - _released.setdefault(graph.assets, set()):
        due.look_at_held(ledger, new, now)
        _released[graph.assets] |= new


def _decide_some(
    graph: Graph, ledger: Ledger, items: Sequence[DueOutput], now: datetime
) -> list[tuple[DueOutput, Verdict]]:
    needs_or_reasons = {item: _need(graph, item.partition, now) for item in items}
    needs = {item: need for item, need in needs_or_reasons.items() if isinstance(need, Need)}
    due.postpone(ledger, {item: why for item, why in needs_or_reasons.items() if not isinstance(why, Need)}, now)
    with ledger.read() as connection:
        decided = decide_needs(connection, [*needs.values()], now)
    pairs = list(zip(needs, decided, strict=True))
    _pass_on(ledger, pairs, now)
    _release(ledger, decided, now)
    # Do this before the verdicts are stored, so that it is repeated after a kill.
    late_decisions.record(ledger, decided, now)
    due.acknowledge(ledger, [(item, each) for item, each in pairs if not _consumes_without_a_run(each)], now)
    return pairs


def _consumes_without_a_run(verdict: Verdict) -> bool:
    """Return whether an output is current although it has unconsumed events, because none of them changes the output.

    Such events are consumed without a run. Then later events of the output are decided.
    """
    return verdict.state is State.CURRENT and verdict.due is not None and bool(verdict.due.slices)


def _pass_on(ledger: Ledger, decided: Sequence[tuple[DueOutput, Verdict]], now: datetime) -> None:
    """Record events for datasets that an update left unchanged, and consume the events of their inputs.

    Otherwise consumers would wait for events of these datasets forever. Do both before the verdicts are stored, so that
    both are repeated after a kill. A repetition does no harm. Outputs that consume events here stay on the due list,
    because they may have more events.
    """
    current = {verdict.output: (item, verdict) for item, verdict in decided if verdict.state is State.CURRENT}
    with ledger.read() as connection:
        newest = batch_sets.newest(connection, current) if current else {}
        # Skip outputs for which a run has published an update since the decision.
        published = {at: row for at, row in newest.items() if row.id == current[at][1].published}
        unreported = announce.to_pass_on(connection, {row: current[at][1].pins for at, row in published.items()}, now)
        last = log.last_of(connection, published)
    slices = {at: each.due.slices for at, (_, each) in current.items() if each.due and each.due.slices}
    # These outputs are older than a change of their inputs, but stay unchanged. Consumers may wait for their entry
    # UNCHANGED in the log.
    woken = {at: row.id for at, row in published.items() if last[at] < current[at][0].changed}
    if unreported or slices or woken:
        with ledger.change() as connection:
            event_store.record(connection, event_store.OURS, unreported, now, refuse_out_of_order=False)
            inbox.consume_now(connection, slices, now)
            log.append(connection, [Change(at, log.UNCHANGED, update_id, now) for at, update_id in woken.items()])


def fan_out_to(
    graph: Graph, datasets: Sequence[Node], ledger: Ledger, now: datetime, out_of_time: Callable[[], bool]
) -> bool:
    """Fan out new changes of these datasets and their inputs, and mark outputs made from bad data.

    Return False if changes are left.
    """
    _look_at_declarations(graph, datasets, ledger, now)
    edges = {(str(node.feed), str(feed)) for node in datasets for feed in graph.watched_feeds(node)}

    @cache
    def affected(consumer: str, changed: Partition) -> Affected:
        return _affected(graph, consumer, changed, now)

    declared = [node.declaration for node in datasets]
    kept = {each.feed for each in declared if isinstance(each, Dataset) and each.reprocess == "never"}
    build_declarations = BuildDeclarations(partial(_windows_read, graph), kept)
    return fan_out(ledger, edges, affected, now, out_of_time, declarations=build_declarations)


def _look_at_declarations(graph: Graph, datasets: Sequence[Node], ledger: Ledger, now: datetime) -> None:
    """Check for datasets that are declared differently than before, once per process and definitions."""
    checked = _checked_feeds.setdefault(graph.assets, set())
    unchecked = [node for node in datasets if node.feed not in checked]
    look_at_repartitioned(graph, unchecked, ledger, now)
    look_at_redeclared(graph, unchecked, ledger, now)
    checked |= {node.feed for node in datasets}


def _windows_read(graph: Graph, output: Partition, read: Collection[Partition]) -> list[WindowAddress] | None:
    """Return the windows of feeds that an output waits for.

    Return None if they are unknown. The output then keeps its mark, which says that it was made of bad data.
    """
    problems, mapping = dict[str, str](), f"the mapping of {output} to the windows that it was made from"
    with failing_alone(problems, mapping):  # the declaration may have changed since the output was made
        return graph.windows_read(output, read)
    _log.warning("%s is unknown, so its mark stays: %s", mapping, problems[mapping])
    return None


def _affected(graph: Graph, consumer: str, changed: Partition, now: datetime) -> Affected:
    """Return the outputs of a consumer that a change affects.

    If the mapping fails, return the reason instead. The change is then mapped again later.
    """
    node, address = graph.node(Feed.parse(consumer)), address_of(changed)
    takes_events = node.by_events is not None and node.feed != changed.feed
    problems, mapping = dict[str, str](), f"the mapping of {changed} to {consumer}"
    with failing_alone(problems, mapping):
        outputs = (
            graph.affected_by_window(node, address, now)
            if address
            else graph.affected(node, graph.parent_partition(changed), now)
        )
        begins = max((at for output, at in outputs or () if at > now and _is_there(node, output, now)), default=None)
        # Some of the outputs can be decided only later. The due list has one time per output, and another change may
        # have made one of them due now. So do not list them, but map the change again later.
        if begins:
            return Affected(None, takes_events, look_at=begins)
        ends = {output: end for output, _ in outputs or () if (end := end_of(node.partitions_def, output.key))}
        return Affected(outputs, takes_events, ends=ends)
    return Affected(None, takes_events, problems[mapping])


def _need(graph: Graph, output: Partition, now: datetime) -> Need | str | None:
    """Return what an output needs, or the reason why its needs are unknown.

    Return None if its partition does not exist. A removed dynamic partition, a moved start date or a failing mapping
    must not fail the whole tick.
    """
    if not _is_there(graph.node(output.feed), output, now):
        return None
    problems, decision = dict[str, str](), f"the decision about {output}"
    with failing_alone(problems, decision):  # a mapping may be user code, and a lineage table unreachable
        return need_of(graph, output)
    return problems[decision]


def _release(ledger: Ledger, decided: Iterable[Verdict], now: datetime) -> None:
    """Set failed checks to passed for outputs whose published update is good and matches the newest inputs again."""
    good = {verdict.output for verdict in decided if verdict.is_good_again}
    if good:
        with ledger.change() as connection:
            quality.release(
                connection, good, "decision", now, "its inputs are again those of the last audit that passed"
            )
