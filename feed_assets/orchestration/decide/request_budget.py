"""The runs that a tick may request: new partitions first, then history (windows that ended long ago).

A daily limit counts the runs of history.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from feed_assets.core.attempts import ABANDONED, is_outage
from feed_assets.core.data_centers import has_several_places
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.history import History, Order, Place, Spent, fitting, why_not
from feed_assets.ledger import due, history_budget, runs
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.run_blocks import in_blocks
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.orchestration.declare.partitions import end_of
from feed_assets.runs.reconcile import GONE
from feed_assets.settings import settings

if TYPE_CHECKING:
    import sqlalchemy as sa

Blocks = list[list[Partition]]
"""A list of runs. Each run is the list of outputs that it builds."""


@dataclass(frozen=True)
class RequestedRuns:
    """The runs that a tick may request.

    `free` has the runs of new partitions, which no daily limit counts. `counted` has the runs of history, which the
    daily limit counts. `spent` has the day's count before and after the runs in `counted`. `held` has outputs that wait
    for the next day, with the reason.
    """

    free: Blocks
    counted: Blocks = field(default_factory=Blocks)
    held: Mapping[Partition, str] = field(default_factory=dict[Partition, str])
    spent: tuple[Spent, Spent] | None = None
    sizes: Mapping[Partition, int] = field(default_factory=dict[Partition, int])
    """The bytes that each output reads."""


def place(graph: Graph, output: Partition, now: datetime, order: Order | None = None) -> Place:
    """Return the place of an output in the queue. By default, the settings decide the order."""
    rules = settings().history if order is None else replace(settings().history, order=order)
    return rules.place(end_of(graph.node(output.feed).partitions_def, output.key), now)


def is_history(graph: Graph, output: Partition, now: datetime) -> bool:
    """Return whether an output counts as history: its time window ended long ago."""
    return place(graph, output, now)[0] > 0


def of_a_tick(graph: Graph, ledger: Ledger, sizes: Mapping[Partition, int], now: datetime) -> RequestedRuns:
    """Return the runs that a tick may request. `sizes` has the outputs in order, and the bytes that each reads.

    During an outage of a service, return one run with a single output, to test whether the service works again.
    """
    with ledger.read() as connection:
        outputs = [*sizes][:1] if is_a_service_out(connection, graph.by_feed) else [*sizes]
        old = [output for output in outputs if is_history(graph, output, now)]
        spent = history_budget.spent(connection, now) if old and settings().history.is_limited else None
    if spent is None:
        return RequestedRuns(in_turn(graph, ledger, outputs, now)[: settings().max_requests], sizes=sizes)
    aged = {*old}
    free = grouped(graph, ledger, [output for output in outputs if output not in aged])[: settings().max_requests]
    runs_of_both = _with_history(graph, ledger, free, {output: sizes[output] for output in old}, spent)
    return replace(runs_of_both, sizes=sizes)


def _with_history(
    graph: Graph, ledger: Ledger, free: Blocks, sizes: Mapping[Partition, int], spent: Spent
) -> RequestedRuns:
    """Return the runs in `free`, and as many runs of history as the limits of the tick and the day allow.

    `sizes` has the outputs of history in the order in which they are taken, and the bytes that each output reads.
    """
    rules, outputs = settings().history, [*sizes]
    room = _room(rules, spent)
    within = [] if room == 0 else outputs[: fitting(rules, spent, sizes.values())]
    today = grouped(graph, ledger, within)[:room]
    counted = today[: settings().max_requests - len(free)]
    after = spent.plus(len(counted), sum(sizes[output] for block in counted for output in block))
    goes = {output for block in today for output in block}
    remaining = [output for output in outputs if output not in goes]
    after = after.filled(rules) if remaining else after
    last = spent.plus(len(today), sum(sizes[output] for output in goes)).filled(rules)
    held = {output: why for output in remaining if (why := why_not(rules, last, sizes[output]))}
    return RequestedRuns(free, counted, held, (spent, after))


def _room(rules: History, spent: Spent) -> int | None:
    """Return how many more runs of history are allowed today. Return None if their number is not limited."""
    return None if rules.runs is None else max(rules.runs - spent.runs, 0)


def claimed(
    graph: Graph, ledger: Ledger, requested: RequestedRuns, listed: Mapping[Partition, DueOutput], now: datetime
) -> Blocks:
    """Select the runs to request now, claim their outputs on the due list, and return these runs.

    Outputs that exceed the day's limit stay on the due list. Runs of history are claimed together. If another process
    has meanwhile requested one of them, or used up some of the limit, none of them is claimed.
    """
    outputs = [output for block in requested.free for output in block]
    claimed_outputs = [item.partition for item in due.claim(ledger, [listed[output] for output in outputs], now)]
    # If another process has requested some of these outputs, group the others again, because a run's range must have no
    # gaps.
    free = requested.free if claimed_outputs == outputs else in_turn(graph, ledger, claimed_outputs, now)
    ready = [listed[output] for block in requested.counted for output in block]
    if requested.spent is None or not _counts(ledger, ready, requested.spent, now):
        return free
    hold(ledger, requested, listed)
    return [*free, *requested.counted]


def hold(ledger: Ledger, requested: RequestedRuns, listed: Mapping[Partition, DueOutput]) -> None:
    """Keep the outputs that exceed the day's limit on the due list until the next day.

    If the process is killed before this, the next tick decides again about these outputs, and holds them.
    """
    if requested.spent:
        due.hold(ledger, {listed[output]: why for output, why in requested.held.items()}, requested.spent[0].next_day)


def _counts(ledger: Ledger, ready: Sequence[DueOutput], spent: tuple[Spent, Spent], now: datetime) -> bool:
    before, after = spent
    return before == after or history_budget.claim(ledger, ready, before, after, now)


def in_turn(graph: Graph, ledger: Ledger, outputs: Iterable[Partition], now: datetime) -> Blocks:
    """Return outputs in blocks, one block per run. New outputs come before history, and no run has both."""
    both: dict[bool, list[Partition]] = {False: [], True: []}
    for output in outputs:
        both[is_history(graph, output, now)].append(output)
    return [block for some in both.values() for block in grouped(graph, ledger, some)]


def grouped(graph: Graph, ledger: Ledger, outputs: Sequence[Partition]) -> list[list[Partition]]:
    """Return outputs in blocks, one block per run, ordered by the first output of each block.

    An output whose last run lost its process gets a block of its own. Such an output may need too much memory, and its
    failure would end a shared run for the other outputs, too.
    """
    if not outputs:
        return []
    with ledger.read() as connection:
        alone = runs.ended_last(connection, outputs, ABANDONED, GONE)
    by_feed: dict[Feed, list[str]] = {}
    for output in (each for each in outputs if each not in alone):
        by_feed.setdefault(output.feed, []).append(output.key)
    blocks = [
        [Partition(feed, path) for path in block]
        for feed, paths in by_feed.items()
        for block in in_blocks(graph.node(feed).partitions_def, paths, _most_in_a_run(graph.node(feed)))
    ]
    blocks += [[output] for output in outputs if output in alone]
    order = {output: number for number, output in enumerate(outputs)}
    return sorted(blocks, key=lambda block: min(order[output] for output in block))


def _most_in_a_run(node: Node) -> int:
    """Return the greatest number of partitions per run of a dataset.

    A run by events builds only one, because the slices in its configuration are those of one partition. So does a run
    that may be at several places, because each partition may be at another one.
    """
    declared = node.declaration
    is_spread = isinstance(declared, Dataset) and has_several_places(declared.at)
    return 1 if node.by_events or is_spread else settings().partitions_per_run


def is_a_service_out(connection: "sa.Connection", feeds: Collection[Feed]) -> bool:
    """Return whether a service that all runs need has an outage.

    The last run of this code location shows it. Runs of other locations do not count, because they may use other
    services.
    """
    last = runs.last_ended(connection, feeds)
    return last is not None and last.state == ABANDONED and is_outage((last.reason or "").partition(":")[0])
