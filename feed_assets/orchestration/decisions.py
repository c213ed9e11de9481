"""From what is on the list to a verdict: the step 'decide' for the datasets of one code location."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

import sqlalchemy as sa

from feed_assets.core.errors import in_short
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Due
from feed_assets.core.readiness import Need, State, Verdict, decide
from feed_assets.ledger import announce, due, inbox, log, quality, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import Listed
from feed_assets.ledger.facts import facts
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets.ledger.log import Change
from feed_assets.orchestration.declare.partitions import Standing, standing
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.settings import settings

DECISIONS_AT_ONCE = 100
"""Outputs that are decided about at a time: then the time is looked at."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decided:
    """What was decided, and whether the next time has nothing to decide: no rest, and no consumers released."""

    found: Sequence[tuple[Listed, Verdict]]
    is_complete: bool


def verdicts(
    graph: Graph, connection: sa.Connection, outputs: Sequence[Partition], now: datetime
) -> tuple[Verdict, ...]:
    """What to do about these outputs, and why: the same answer for sensor, condition and `explain`."""
    return decide_needs(connection, [graph.need(output) for output in outputs], now)


def due_of(graph: Graph, connection: sa.Connection, node: Node, now: datetime) -> dict[str, Due]:
    """What is due of each partition of a dataset by events that has not consumed everything, as it is decided."""
    if graph.consumer(node) is None:
        return {}
    waiting = inbox.outputs(connection, node.feed)
    there = [each for each in waiting if standing(node.partitions_def, each.key, now) is Standing.IS]
    return {each.output.key: each.due for each in verdicts(graph, connection, there, now) if each.due}


def decide_needs(connection: sa.Connection, needs: Sequence[Need], now: datetime) -> tuple[Verdict, ...]:
    """One verdict for each need, from the ledger's facts."""
    return decide(needs, facts(connection, needs, now, settings().max_attempts))


def decide_due(
    graph: Graph, datasets: Sequence[Node], ledger: Ledger, now: datetime, limit: int, is_over: Callable[[], bool]
) -> Decided:
    """Decide what is on the list of some datasets until the time is over, and keep the verdicts there."""
    with ledger.read() as connection:
        looked = due.look(connection, [node.feed for node in datasets], now, limit)
    found: list[tuple[Listed, Verdict]] = []
    for first in range(0, len(looked), DECISIONS_AT_ONCE):
        if first and is_over():
            return Decided(found, is_complete=False)
        found += _decide_some(graph, ledger, looked[first : first + DECISIONS_AT_ONCE], now)
    released = any(verdict.is_good_again or _consumes_without_a_run(verdict) for _, verdict in found)
    return Decided(found, is_complete=len(looked) < limit and not released)


def _decide_some(graph: Graph, ledger: Ledger, items: Sequence[Listed], now: datetime) -> list[tuple[Listed, Verdict]]:
    known = {item: _need(graph, item.partition, now) for item in items}
    needs = {item: need for item, need in known.items() if isinstance(need, Need)}
    due.postpone(ledger, {item: why for item, why in known.items() if not isinstance(why, Need)}, now)
    with ledger.read() as connection:
        decided = decide_needs(connection, [*needs.values()], now)
    found = list(zip(needs, decided, strict=True))
    passed = {verdict.output for item, verdict in found if _pass_on(ledger, item, verdict, now)}
    _release(ledger, decided, now)
    due.acknowledge(ledger, [(item, verdict) for item, verdict in found if verdict.output not in passed], now)
    return found


def _consumes_without_a_run(verdict: Verdict) -> bool:
    """Whether what is due of an output leaves it as it is: what comes after that is decided next."""
    return verdict.state is State.CURRENT and verdict.due is not None and bool(verdict.due.slices)


def _pass_on(ledger: Ledger, item: Listed, verdict: Verdict, now: datetime) -> bool:
    """What has gone through a dataset and left nothing new: its own event says so, and its inputs' are consumed.

    Else it would not have reached this table, and who waits for that would wait for ever. Before the verdict is kept:
    a kill in between repeats it, and repeating it changes nothing. True if events were consumed: there may be more.
    """
    if verdict.state is not State.CURRENT:
        return False
    slices = verdict.due.slices if verdict.due else ()
    with ledger.read() as connection:
        untold = announce.untold(connection, verdict.output, announce.correlations(connection, "", verdict.pins))
        published = updates.newest(connection, verdict.output)
        wakes = published is not None and log.last_of(connection, verdict.output) < item.changed
    if untold or slices or wakes:
        with ledger.change() as connection:
            announce.pass_on(connection, untold, now)
            inbox.consume_now(connection, verdict.output, slices, now)
            if published and wakes:  # What its rows are made of has changed: its consumers may have waited for that.
                log.append(connection, [Change(verdict.output, log.UNCHANGED, published.id, now)])
    return _consumes_without_a_run(verdict)


def fan_out_to(
    graph: Graph, datasets: Sequence[Node], ledger: Ledger, now: datetime, is_over: Callable[[], bool]
) -> bool:
    """Fan out what these datasets have not heard of their inputs and themselves; False if something is left."""
    edges = {(str(node.feed), str(feed)) for node in datasets for feed in graph.heard(node)}

    @cache
    def affected(consumer: str, changed: Partition) -> Affected:
        return _affected(graph, consumer, changed, now)

    return fan_out(ledger, edges, affected, now, is_over)


def _affected(graph: Graph, consumer: str, changed: Partition, now: datetime) -> Affected:
    """What a change concerns of one consumer; or why that cannot be said, and then it is looked at again."""
    node, parent = graph.node(Feed.parse(consumer)), graph.whole(changed)
    takes_events = node.by_events is not None and node.feed != parent.feed
    try:
        return Affected(graph.affected(node, parent, now), takes_events)
    except Exception as error:  # A mapping may be anybody's.
        _logger.exception("it cannot be said what %s affects of %s", changed, consumer)
        return Affected(None, takes_events, in_short(error))


def _need(graph: Graph, output: Partition, now: datetime) -> Need | str | None:
    """What an output needs, or why that cannot be told; None if it is no partition (any more).

    A dynamic one was removed, a start date moved, a mapping raises: Dagster would fail a whole tick for one of these.
    """
    if standing(graph.node(output.feed).partitions_def, output.key, now) is not Standing.IS:
        return None
    try:
        return graph.need(output)
    except Exception as error:  # A mapping may be anybody's, and a lineage table out of reach.
        _logger.exception("%s cannot be decided about, and is looked at again later", output)
        return in_short(error)


def _release(ledger: Ledger, decided: Iterable[Verdict], now: datetime) -> None:
    """What is published passed its audit, and is built from the newest inputs again: its quality is good."""
    for verdict in decided:
        if verdict.is_good_again:
            with ledger.change() as connection:
                quality.release(
                    connection, verdict.output, "decision", now, "its inputs are those of the last audit that passed"
                )
