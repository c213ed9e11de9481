"""Compute targets of the runs that a tick requests. A run gets its resources when the tick claims its outputs."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from types import MappingProxyType
from uuid import uuid4

import sqlalchemy as sa

from feed_assets.core.allotment import Placement, QueueEntry, allot, possible
from feed_assets.core.data_centers import EVERYWHERE, Home, common_home
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.learned_needs import Cost, Learned, learned
from feed_assets.core.readiness import State
from feed_assets.core.resources import Resources
from feed_assets.core.target_room import Room
from feed_assets.core.targets import ComputeTarget, Connect
from feed_assets.ledger import allocations, due, history_budget, resource_queue, run_costs
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.resource_queue import ResourceRequest, Rooms
from feed_assets.orchestration.decide import home_choice, request_budget
from feed_assets.orchestration.decide.decisions import decide_needs
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.home_choice import PlacedInputs
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.decide.request_budget import Blocks, RequestedRuns, is_history
from feed_assets.orchestration.declare.declarations import Dataset
from feed_assets.settings import settings
from feed_assets.targets import probes

TARGET = "feed_assets/target"
"""The tag with the compute target of a run."""

TARGET_WHY = "feed_assets/target_why"
"""The tag with the reason why a run has its target."""

ALLOCATION = "feed_assets/allocation"
"""The tag with the id of a run's resources in the ledger."""

_ONE_PROCESS: ContextVar[bool] = ContextVar("_ONE_PROCESS", default=False)

NO_PLACES: Mapping[Partition, PlacedInputs] = MappingProxyType({})
"""The default of `inputs`: places do not matter."""

_LEFT = "is left to the daemon, because this command has one Spark, which is no Connect session"


@contextmanager
def in_one_process() -> Generator[None]:
    """Within the block, use only targets that one process can use one after the other.

    A process that has started its own Spark cannot use Spark Connect later. So only the daemon uses Connect targets if
    there are targets of other kinds.
    """
    token = _ONE_PROCESS.set(True)
    try:
        yield
    finally:
        _ONE_PROCESS.reset(token)


def _declared(node: Node) -> Resources:
    declared = node.declaration.resources if isinstance(node.declaration, Dataset) else None
    return declared or Resources()


def resources_of(graph: Graph, ledger: Ledger, node: Node, outputs: Sequence[Partition], now: datetime) -> Resources:
    """Return the resources that a run of some outputs of a dataset needs."""
    if not _declared(node).learned:
        return _declared(node)
    rooms = rooms_now(ledger, now)
    with ledger.read() as connection:
        verdicts = decide_needs(connection, [need_of(graph, each) for each in outputs], now)
        return _Needs(connection, rooms).of(node, max((each.bytes for each in verdicts), default=0)).resources


def targets() -> Mapping[str, ComputeTarget]:
    """Return the compute targets of the settings. If there are none, runs need no resources and never wait for them."""
    return settings().targets.get_secret_value()


def rooms_now(ledger: Ledger, now: datetime) -> Rooms:
    """Return the free resources of the compute targets, as the targets answer now.

    Call this before a transaction, because an answer may take seconds.
    """
    by_name = targets()
    has_other = any(not isinstance(each, Connect) for each in by_name.values())
    is_limited = _ONE_PROCESS.get() and has_other
    closed = {name: _LEFT for name, each in by_name.items() if is_limited and isinstance(each, Connect)}
    usable = {name: each for name, each in by_name.items() if name not in closed}
    answers = probes.answers(ledger, usable, now)
    return Rooms(frozenset(usable), partial(probes.rooms, by_name, answers, closed=closed))


def in_queue_order(
    graph: Graph, ledger: Ledger, sizes: Mapping[Partition, int], now: datetime
) -> Mapping[Partition, int]:
    """Return outputs, each with the bytes that it reads, in the order of the queue for resources.

    A tick requests runs only for the first of these outputs. The queue may keep a target free for the request that has
    waited longest. If the output of this request were not among the first, no tick would request its run, and the
    target would stay unused. Outputs of the same place keep their order.
    """
    if not targets() or not sizes:
        return sizes
    with ledger.read() as connection:
        since = resource_queue.waits_since(connection, sizes)

    def place(output: Partition) -> tuple[bool, int, datetime]:
        resources, is_old = _declared(graph.node(output.feed)), is_history(graph, output, now)
        return QueueEntry(output.path, resources, is_old, since.get(output, now)).place(now)[:3]

    return {output: sizes[output] for output in sorted(sizes, key=place)}


def claimed(
    graph: Graph,
    ledger: Ledger,
    requested: RequestedRuns,
    listed: Mapping[Partition, DueOutput],
    now: datetime,
    *,
    inputs: Mapping[Partition, PlacedInputs] = NO_PLACES,
) -> Blocks:
    """Select the runs to request now, claim their outputs on the due list, and return these runs.

    If there are compute targets, the same transaction gives each of these runs resources of one target, in a place that
    has the run's `inputs`. The outputs of the remaining runs wait for resources.
    """
    if not targets() or not (requested.free or requested.counted):
        return request_budget.claimed(graph, ledger, requested, listed, now)
    rooms = rooms_now(ledger, now)
    with ledger.write() as connection:
        places = home_choice.homes(connection, inputs, now) if inputs else {}
        blocks = _claimed_with_room(connection, graph, _Queue(requested, listed, places), rooms, now)
    request_budget.hold(ledger, requested, listed)
    return blocks


@dataclass
class _Needs:
    """The resources that runs need now.

    If the needs of a dataset are learned from its earlier runs, these runs are read once.
    """

    connection: sa.Connection
    rooms: Rooms
    _costs: dict[Feed, list[Cost]] = field(default_factory=dict[Feed, list[Cost]])

    def of(self, node: Node, size: int, groups: Sequence[frozenset[str]] = ()) -> Learned:
        """Return the resources that a run of a dataset needs if the run reads `size` bytes.

        With `groups`, only these targets can have the run.
        """
        declared = _declared(node)
        if not declared.learned:
            return Learned(declared)
        if node.feed not in self._costs:
            self._costs[node.feed] = run_costs.core_seconds(self.connection, node.feed)
        needed = learned(declared, size, self._costs[node.feed])
        allowed = frozenset[str]().union(*groups) if groups else self._empty_rooms.keys()
        empty = {name: room for name, room in self._empty_rooms.items() if name in allowed}
        return replace(needed, resources=possible(needed.resources, declared, empty))

    @cached_property
    def _empty_rooms(self) -> Mapping[str, Room]:
        """Return the targets as if no run used them, because only their sizes count here."""
        return self.rooms.less({})


class _Queue:
    """The runs of a tick, as requests for resources."""

    def __init__(
        self, requested: RequestedRuns, listed: Mapping[Partition, DueOutput], homes: Mapping[Partition, Home]
    ) -> None:
        self.requested = requested
        self._listed, self._homes = listed, homes
        self.blocks: dict[str, list[Partition]] = {}

    def of(self, graph: Graph, blocks: Blocks, needs: "_Needs", now: datetime) -> list[ResourceRequest]:
        """Return a request for resources for each block, which has the outputs of one run.

        Leave out a block that no place can have any more: a copy was withdrawn, or a place is down. The next tick notes
        the reason.
        """
        requests, sizes = list[ResourceRequest](), self.requested.sizes
        for block in blocks:
            home = common_home([self._homes.get(output, EVERYWHERE) for output in block])
            if home.why:
                continue
            size = max(sizes.get(each, 0) for each in block)
            resources = needs.of(graph.node(block[0].feed), size, home.groups).resources
            items = tuple(self._listed[output] for output in block)
            is_old = is_history(graph, block[0], now)
            requests.append(ResourceRequest(uuid4().hex, items, resources, is_old, home.groups))
            self.blocks[requests[-1].id] = block
        return requests


def _claimed_with_room(connection: sa.Connection, graph: Graph, queue: _Queue, rooms: Rooms, now: datetime) -> Blocks:
    """Claim the blocks that get a target. Skip a block if another process has requested one of its outputs."""
    spent, counted = queue.requested.spent, queue.requested.counted
    if spent and history_budget.locked(connection, now) != spent[0]:
        spent, counted = None, Blocks()
    allocations.lock(connection)
    needs = _Needs(connection, rooms)
    free, of_history = (queue.of(graph, blocks, needs, now) for blocks in (queue.requested.free, counted))
    requests = _as_read(connection, [*free, *of_history])
    places = resource_queue.claim(connection, requests, rooms, now)
    going = [each for each in requests if isinstance(places[each.id], Placement)]
    if spent:
        gone = [queue.blocks[each.id] for each in of_history if each in going]
        sizes = sum(queue.requested.sizes.get(output, 0) for block in gone for output in block)
        # Use the count that was planned for the day only if all planned runs are requested.
        after = spent[1] if len(gone) == len(counted) else spent[0].plus(len(gone), sizes)
        history_budget.put(connection, after)
    return [queue.blocks[each.id] for each in going]


def _as_read(connection: sa.Connection, requests: Sequence[ResourceRequest]) -> list[ResourceRequest]:
    items = [item for each in requests for item in each.items]
    unchanged = {*due.still_as_read(connection, items)} if items else set[DueOutput]()
    return [each for each in requests if unchanged.issuperset(each.items)]


def target_tags(ledger: Ledger, outputs: Iterable[Partition]) -> dict[Partition, dict[str, str]]:
    """Return the tags with the target of each output's next run. Leave out outputs without a target."""
    if not targets():
        return {}
    with ledger.read() as connection:
        granted = allocations.of_outputs(connection, [*outputs])
    return {
        output: {TARGET: each.target, TARGET_WHY: each.reason, ALLOCATION: each.id} for output, each in granted.items()
    }


def preview(graph: Graph, ledger: Ledger, sizes: Mapping[Partition, int], now: datetime) -> dict[Partition, str]:
    """Return for each output which compute target a run by hand would get now, or why the run would wait.

    `sizes` has the bytes that each output reads. If a run needs more than its dataset declares, the text gives the
    reason. Return {} if there are no targets. No run gets resources from this function.
    """
    if not targets():
        return {}
    with in_one_process():
        rooms = rooms_now(ledger, now)
    with ledger.read() as connection:
        queue, free = resource_queue.waiting(connection, now), rooms.less(allocations.grants(connection))
        needs = _Needs(connection, rooms)
        needed = {output: needs.of(graph.node(output.feed), size) for output, size in sizes.items()}
    reasons: dict[Partition, str] = {}
    for output, own in needed.items():
        is_old, home = is_history(graph, output, now), home_choice.home_of_run(graph, ledger, [output], {}, now)
        if home.why:
            reasons[output] = home.why
            continue
        entry = QueueEntry(output.path, own.resources, is_old, since=now, usable=rooms.usable, groups=home.groups)
        rivals = [each for each in queue if each.output != output.path]
        place = allot([entry, *rivals], free, now)[entry.name]
        is_placed = isinstance(place, Placement)
        reason = place.reason if is_placed else f"{State.WAITS_FOR_RESOURCES.value}: {place}"
        reasons[output] = f"{reason}; {own.resources.amount} are {own.why}" if own.why else reason
    return reasons
