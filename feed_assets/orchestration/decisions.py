"""From a change to a verdict: the steps 'record' and 'decide' for the datasets of one code location."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import Verdict, decide
from feed_assets.ledger import due, runs, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import Due
from feed_assets.ledger.facts import facts
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.settings import settings

CHANGES = 1000
"""Changes that are taken from the ledger at a time."""


def verdicts(
    graph: Graph, connection: sa.Connection, outputs: Sequence[Partition], now: datetime
) -> tuple[Verdict, ...]:
    """What to do about these outputs, and why: the same answer for sensor, condition and `explain`."""
    needs = [graph.need(output) for output in outputs]
    return decide(needs, facts(connection, needs, now, settings().max_attempts))


def fan_out(graph: Graph, ledger: Ledger, now: datetime) -> None:
    """Put on the list every output that the changes since the last time affect, and what has come into being."""
    for dataset in graph.datasets():
        while _fan_out_some(graph, dataset, ledger, now) == CHANGES:
            pass


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
    outputs = graph.affected(dataset, changed, now)
    return [Due(dataset.feed, output, number) for output in ([changed] if outputs is None else outputs)]


def decide_due(graph: Graph, ledger: Ledger, now: datetime, limit: int) -> list[tuple[Due, Verdict]]:
    """Decide what is on the list, and keep the verdicts there."""
    datasets = {node.feed: node for node in graph.datasets()}
    _look_at_awaited(graph, datasets, ledger, now, limit)
    with ledger.read() as connection:
        looked = [item for item in due.look(connection, datasets.keys(), now, limit) if not item.awaited]
        decided = verdicts(graph, connection, [item.partition for item in looked], now)
    found = list(zip(looked, decided, strict=True))
    due.settle(ledger, found, now)
    _release_consumers(ledger, decided)
    return found


def _release_consumers(ledger: Ledger, decided: Iterable[Verdict]) -> None:
    """The audit of what is published was good, and its inputs are the newest again: look at its consumers again."""
    for verdict in decided:
        if verdict.rolled_back and verdict.published:
            with ledger.write() as connection:
                runs.settle(connection, verdict.output)
                updates.change(connection, verdict.output, verdict.published)


def _look_at_awaited(graph: Graph, datasets: dict[Feed, Node], ledger: Ledger, now: datetime, limit: int) -> None:
    """First, so that what has come into being is decided in the same tick: it may be the last for a while."""
    with ledger.read() as connection:
        looked = due.look(connection, datasets.keys(), now, limit)
    still: list[Due] = []
    for item in (item for item in looked if item.awaited):
        found = _items(graph, datasets[item.consumer], item.partition, item.changed, now)
        if found == [item]:
            still.append(item)
        else:
            due.arrived(ledger, item, found, now)
    due.await_again(ledger, still, now)
