"""From a change to a verdict: the steps 'record' and 'decide' for the datasets of one code location."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.errors import in_short
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import Need, State, Verdict, decide
from feed_assets.ledger import announce, due, events, inbox, runs, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import Due
from feed_assets.ledger.facts import facts
from feed_assets.orchestration.declare.partitions import Standing, standing
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.settings import settings

CHANGES = 100
"""Changes that are taken from the ledger at a time."""

SOME = 100
"""Outputs that are decided about at a time."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Decided:
    """What was decided, and whether the next time has nothing to decide: no rest, and no consumers released."""

    found: Sequence[tuple[Due, Verdict]]
    is_complete: bool


def verdicts(
    graph: Graph, connection: sa.Connection, outputs: Sequence[Partition], now: datetime
) -> tuple[Verdict, ...]:
    """What to do about these outputs, and why: the same answer for sensor, condition and `explain`."""
    return decide_needs(connection, [graph.need(output) for output in outputs], now)


def decide_needs(connection: sa.Connection, needs: Sequence[Need], now: datetime) -> tuple[Verdict, ...]:
    """One verdict for each need, from the ledger's facts."""
    return decide(needs, facts(connection, needs, now, settings().max_attempts))


def fan_out(graph: Graph, datasets: Sequence[Node], ledger: Ledger, now: datetime, is_over: Callable[[], bool]) -> bool:
    """Put on the list every output of some datasets that the changes since the last time affect.

    And deliver the events since then to those that are built by events. Until the time is over: False if something is
    left. Each dataset hears of some, or the last would starve.
    """
    told = [_fan_out_to(graph, dataset, ledger, now, is_over) for dataset in datasets]
    delivered = [_deliver_to(graph, dataset, ledger, now, is_over) for dataset in datasets if dataset.by_events]
    return all(told + delivered)


def _deliver_to(graph: Graph, dataset: Node, ledger: Ledger, now: datetime, is_over: Callable[[], bool]) -> bool:
    """After the changes, which carry their events with them: what is decided next knows both or neither."""
    with ledger.read() as connection:
        upto = events.last_sequence(connection)

    def affected(place: Partition, number: int) -> list[Due]:
        return _items(graph, dataset, graph.whole(place), number, now)

    tables = [table.feed for table in graph.parents(dataset)]
    while not inbox.deliver(ledger, dataset.feed, tables, affected, upto, now):
        if is_over():
            return False
    return True


def _fan_out_to(graph: Graph, dataset: Node, ledger: Ledger, now: datetime, is_over: Callable[[], bool]) -> bool:
    while _fan_out_some(graph, dataset, ledger, now) == CHANGES:
        if is_over():
            return False
    return True


def _fan_out_some(graph: Graph, dataset: Node, ledger: Ledger, now: datetime) -> int:
    feeds = [dataset.feed, *(parent.feed for parent in graph.parents(dataset))]
    with ledger.read() as connection:
        changes = updates.changes(connection, feeds, due.fanned_out(connection, dataset.feed), CHANGES)
    if changes:
        wholes = {graph.whole(changed): number for changed, number in changes}
        affected = [item for whole, number in wholes.items() for item in _items(graph, dataset, whole, number, now)]
        due.fan_out(ledger, dataset.feed, affected, changes[-1][1], now)
    return len(changes)


def _items(graph: Graph, dataset: Node, changed: Partition, number: int, now: datetime) -> list[Due]:
    """What of a dataset is affected; the changed partition itself while that cannot be said, to be looked at again."""
    try:
        outputs = graph.affected(dataset, changed, now)
    except Exception as error:  # A mapping may be anybody's.
        _logger.exception("it cannot be said what %s affects of %s", changed, dataset.feed)
        return [Due(dataset.feed, changed, number, why_not=in_short(error))]
    return [Due(dataset.feed, output, number) for output in ([changed] if outputs is None else outputs)]


def decide_due(
    graph: Graph, some: Sequence[Node], ledger: Ledger, now: datetime, limit: int, is_over: Callable[[], bool]
) -> Decided:
    """Decide what is on the list of some datasets until the time is over, and keep the verdicts there."""
    datasets = {node.feed: node for node in some}
    _look_at_awaited(graph, datasets, ledger, now, limit, is_over)
    with ledger.read() as connection:
        looked = [item for item in due.look(connection, datasets.keys(), now, limit) if not item.awaited]
    found: list[tuple[Due, Verdict]] = []
    for first in range(0, len(looked), SOME):
        if first and is_over():
            return Decided(found, is_complete=False)
        found += _decide_some(graph, ledger, looked[first : first + SOME], now)
    released = any(verdict.rolled_back for _, verdict in found)
    return Decided(found, is_complete=len(looked) < limit and not released)


def _decide_some(graph: Graph, ledger: Ledger, items: Sequence[Due], now: datetime) -> list[tuple[Due, Verdict]]:
    known = {item: _need(graph, item.partition, now) for item in items}
    needs = {item: need for item, need in known.items() if isinstance(need, Need)}
    why_not = {item: why for item, why in known.items() if not isinstance(why, Need)}
    due.await_again(ledger, [replace(item, why_not=why) for item, why in why_not.items()], now)
    with ledger.read() as connection:
        decided = decide_needs(connection, [*needs.values()], now)
    found = list(zip(needs, decided, strict=True))
    _pass_on(ledger, decided, now)
    due.settle(ledger, found, now)
    _release_consumers(ledger, decided)
    return found


def _pass_on(ledger: Ledger, decided: Iterable[Verdict], now: datetime) -> None:
    """What has gone through a dataset and left nothing new: its own event says so, and its inputs' are consumed.

    Else it would not have reached this table, and who waits for that would wait for ever. Before the verdicts are
    kept: a kill in between repeats it, and repeating it changes nothing.
    """
    for verdict in decided:
        if verdict.state is State.CURRENT:
            with ledger.read() as connection:
                told = announce.untold(connection, verdict.output, announce.correlations(connection, "", verdict.pins))
            if told or (verdict.due and verdict.due.slices):
                with ledger.write() as connection:
                    announce.pass_on(connection, told, now)
                    inbox.consume_now(connection, verdict.output, verdict.due.slices if verdict.due else (), now)


def need_if_known(graph: Graph, output: Partition, now: datetime) -> Need | None:
    """What an output needs; None if it is no partition (any more), or its inputs cannot be told.

    A dynamic one was removed, a start date moved, a mapping raises: Dagster would fail a whole tick for one of these.
    """
    need = _need(graph, output, now)
    return need if isinstance(need, Need) else None


def _need(graph: Graph, output: Partition, now: datetime) -> Need | str | None:
    """What an output needs, or why that cannot be told; None if it is no partition."""
    if standing(graph.node(output.feed).partitions_def, output.key, now) is not Standing.IS:
        return None
    try:
        return graph.need(output)
    except Exception as error:  # A mapping may be anybody's, and a lineage table out of reach.
        _logger.exception("%s cannot be decided about, and is looked at again later", output)
        return in_short(error)


def _release_consumers(ledger: Ledger, decided: Iterable[Verdict]) -> None:
    """The audit of what is published was good, and its inputs are the newest again: look at its consumers again."""
    for verdict in decided:
        if verdict.rolled_back and verdict.published:
            with ledger.write() as connection:
                runs.settle(connection, verdict.output)
                updates.change(connection, verdict.output, verdict.published)


def _look_at_awaited(
    graph: Graph, datasets: dict[Feed, Node], ledger: Ledger, now: datetime, limit: int, is_over: Callable[[], bool]
) -> None:
    """First, so that what has come into being is decided in the same tick: it may be the last for a while."""
    with ledger.read() as connection:
        looked = due.look(connection, datasets.keys(), now, limit)
    still: list[Due] = []
    for at, item in enumerate(item for item in looked if item.awaited):
        if at and is_over():
            break
        found = _items(graph, datasets[item.consumer], item.partition, item.changed, now)
        if found == [item]:
            still += found
        else:
            due.arrived(ledger, item, found, now)
    due.await_again(ledger, still, now)
