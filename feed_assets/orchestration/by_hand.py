"""Builds by hand: choose partitions, plan order and inputs, then run one build after the other in this process.

A build by hand is refused if an input is missing, or if the day's limit of history is used up. It ignores the gates for
quality, late data, failed attempts and decisions by persons. It may run beside the daemon, because the ledger lets only
one run at a time build a partition.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import dagster as dg
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.history import Order, in_order
from feed_assets.core.inputs import WindowInput
from feed_assets.core.message_words import shortened
from feed_assets.core.readiness import Need, State, Verdict
from feed_assets.ledger import batch_sets, closures, history_budget, runs
from feed_assets.ledger.states.window_queries import declare
from feed_assets.orchestration.decide.decisions import decide_needs
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.decide.repartitioned import existing_partitions
from feed_assets.orchestration.decide.request_budget import is_history, place
from feed_assets.orchestration.decide.requests import request_of
from feed_assets.orchestration.execute.asset_function import ASKED_BY
from feed_assets.runs.discover import discover_all
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync_needs
from feed_assets.settings import settings

WITHOUT_INPUT = (State.WAITS_FOR_INPUT, State.WAITS_FOR_PROPAGATION)

Run = Callable[[dg.RunRequest], bool]
"""A function that executes the run of a request to its end, and returns whether the run succeeded."""


class Chosen(StrEnum):
    """Groups of partitions that a user may choose without naming them."""

    FAILED = "failed"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(frozen=True)
class Planned:
    """A partition to build: its current verdict, and the partitions that the same plan builds before it."""

    verdict: Verdict
    after: tuple[Partition, ...]
    lacks: frozenset[Partition | None]
    """The inputs that the partition waits for. None in the set means that it waits for windows."""

    @property
    def output(self) -> Partition:
        """Return the partition."""
        return self.verdict.output

    @property
    def bytes(self) -> int:
        """Return the number of bytes that the build would read."""
        return self.verdict.bytes


def choose(graph: Graph, services: Services, nodes: Sequence[Node], which: Collection[Chosen]) -> set[Partition]:
    """Return the partitions of some datasets that are in one of the groups `which`: failed, refused or missing.

    A partition counts as missing only if one of its inputs exists or is itself in the result. To find missing
    partitions, discover foreign feeds first, because ticks may not have seen their newest data.
    """
    if Chosen.MISSING in which:
        read = {parent.feed for node in nodes for parent in graph.parents(node)}
        discover_all(services, [feed for feed in graph.polled() if feed in read], graph.appendable())
    with services.ledger.read() as connection:
        missing = _missing(graph, connection, nodes) if Chosen.MISSING in which else set[Partition]()
        return {*_tried(connection, nodes, which)} | missing


def _tried(connection: sa.Connection, nodes: Sequence[Node], which: Collection[Chosen]) -> Iterator[Partition]:
    """Return the partitions whose last attempt had one of the results in `which`.

    The due list does not have all of them, because a current partition stays current if its re-run fails.
    """
    tried = runs.last_attempts(connection, runs.attempted(connection, [node.feed for node in nodes]))
    existing = {output for node in nodes if node.feed in {each.feed for each in tried} for output in node.partitions}
    left_out = closures.closed(connection, tried)
    return (
        output for output, state in tried.items() if state in which and output in existing and output not in left_out
    )


def _missing(graph: Graph, connection: sa.Connection, nodes: Sequence[Node]) -> set[Partition]:
    """Return the missing partitions that can be built from existing inputs, directly or through missing inputs.

    Leave out partitions without any existing input, because a calendar may have countless such partitions.
    """
    missing_by_feed: dict[Feed, set[Partition]] = {}
    for node in sorted(nodes, key=lambda node: graph.own().index(node.feed)):
        below = {
            output
            for parent in graph.parents(node)
            for output in graph.downstream(
                parent, node, existing_partitions(connection, parent) | missing_by_feed.get(parent.feed, set())
            )
        }
        missing_by_feed[node.feed] = below - batch_sets.newest(connection, below).keys()
    return {output for outputs in missing_by_feed.values() for output in outputs}


def look(graph: Graph, services: Services, outputs: Collection[Partition]) -> None:
    """Sync the inputs of partitions with the blackboard.

    A run must read the newest data, even if no tick has seen them. Also record the current window rules in the ledger.
    Raise InvalidDefinition if the ledger refuses the rules.
    """
    refused = declare(services.ledger, graph.tracked(), services.now())
    read = {parent.feed for each in outputs for parent in graph.parents(graph.node(each.feed))}
    for error in (error for feed, error in refused.items() if feed in read):
        raise error
    sync_needs(services, [need_of(graph, each) for each in outputs])


def plan(graph: Graph, services: Services, outputs: Collection[Partition], order: Order | None = None) -> list[Planned]:
    """Return the partitions in the order of their builds, each with the updates that its build would read.

    Inputs come before their readers. New partitions come before history. History is in `order` (oldest or newest
    first), by default the order of the settings.
    """
    now, chosen = services.now(), {*outputs}
    needs = {each: need_of(graph, each) for each in outputs}
    after = {each: chosen.intersection(need.partitions) - {each} for each, need in needs.items()}
    # If outputs have the same place in the queue, inputs come first.
    feeds = {feed: number for number, feed in enumerate(graph.own())}
    line = in_order(after, lambda output: (*place(graph, output, now, order), feeds[output.feed]))
    with services.ledger.read() as connection:
        verdicts = decide_needs(connection, [needs[each] for each in line], now)
    return [
        Planned(verdict, tuple(sorted(after[each])), _lacks(needs[each], verdict))
        for each, verdict in zip(line, verdicts, strict=True)
    ]


def _lacks(need: Need, verdict: Verdict) -> frozenset[Partition | None]:
    pinned = {pin.partition for pin in verdict.pins} | {pin.partition.parent for pin in verdict.pins}
    required = {each.partition for each in need.inputs if each.is_required and not isinstance(each, WindowInput)}
    windows = {None} if need.windows and verdict.state in WITHOUT_INPUT else set[None]()
    return frozenset(required - pinned) | windows


def with_inputs(planned: Iterable[Planned]) -> list[Planned]:
    """Return the planned partitions that lack no inputs, or only inputs that the plan builds before them."""
    kept: dict[Partition, Planned] = {}
    for each in planned:
        if each.lacks <= kept.keys():
            kept[each.output] = each
    return [*kept.values()]


def build(
    graph: Graph, services: Services, planned: Sequence[Planned], asked_by: str, run: Run
) -> dict[Partition, str]:
    """Build planned partitions one after the other. Return the reasons of failures that no run has reported.

    Decide about each partition only when its turn has come, so that its inputs include the updates that were built
    before it.
    """
    reasons, failed = dict[Partition, str](), set[Partition]()
    for each in planned:
        look(graph, services, [each.output])
        (now,) = plan(graph, services, [each.output])
        if gone := sorted(failed & {*each.after}):
            reasons[each.output] = f"it reads {shortened([*map(str, gone)], 3)}, which could not be built"
        elif now.verdict.state in WITHOUT_INPUT:
            reasons[each.output] = f"{now.verdict.state.value}: {now.verdict.reason}"
        elif _counts(graph, services, now.verdict) and (why := _no_room(services, now.verdict)):
            reasons[each.output] = why
        elif run(request_of(graph, now.verdict, {ASKED_BY: asked_by})):
            continue
        failed.add(each.output)
    return reasons


def _counts(graph: Graph, services: Services, verdict: Verdict) -> bool:
    """Return whether a run counts against the day's limit of history.

    A run that will find nothing to do does not count. So the same command can continue the next day where it stopped.
    Datasets that read event tables or are appendable are always rebuilt, so their runs count.
    """
    if not settings().history.is_limited or not is_history(graph, verdict.output, services.now()):
        return False
    node = graph.node(verdict.output.feed)
    if verdict.state is not State.CURRENT or node.is_appendable or need_of(graph, verdict.output).tables:
        return True
    with services.ledger.read() as connection:
        published = batch_sets.newest(connection, [verdict.output]).get(verdict.output)
    return published is None or published.code_version != graph.assets.get(node.key).code_version


def _no_room(services: Services, verdict: Verdict) -> str | None:
    """Return why the day's limit allows no further run of history.

    If it allows the run, count the run and return None.
    """
    return history_budget.spend(services.ledger, settings().history, verdict.bytes, services.now())
