"""Rules for which run gets which compute target. Requests that wait for a target form a queue."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from feed_assets.core.learned_needs import with_cores
from feed_assets.core.message_words import shortened
from feed_assets.core.resources import Amount, Resources, in_gib
from feed_assets.core.target_room import Room

STEP = timedelta(minutes=10)
"""Waiting time that raises the priority of a request by one. After this time, a target is kept for the request.

Until then, smaller requests may overtake it: they take room that is too small for it.
"""

NEEDS = "it needs "
"""Beginning of each reason why a request waits."""

_NAMED = 5
"""Greatest number of targets that a reason names."""


@dataclass(frozen=True)
class QueueEntry:
    """A request of one run for resources. It has waited since `since` (UTC)."""

    name: str
    resources: Resources
    is_history: bool
    since: datetime
    output: str = ""
    """The first partition that the run builds, as a reason names it."""
    usable: frozenset[str] | None = None
    """The targets that the process of the request can use. None means all."""
    groups: tuple[frozenset[str], ...] = ()
    """The only targets that may do, by preference: those of the places that have the data. () means all."""

    def allows(self, target: str) -> bool:
        """Return whether a target is in a place that has the data of the request."""
        return not self.groups or any(target in each for each in self.groups)

    def can_use(self, target: str) -> bool:
        """Return whether the process of the request can use a target that has its data."""
        return self.allows(target) and (self.usable is None or target in self.usable)

    @property
    def kept_targets(self) -> frozenset[str]:
        """Return the targets that other processes keep for the request."""
        allowed = frozenset[str]().union(*self.groups)
        return frozenset(self.usable or ()) & allowed if self.groups else frozenset(self.usable or ())

    def place(self, now: datetime) -> tuple[bool, int, datetime, str, str]:
        """Return the sort key: new partitions before history, then by priority, then longest waiting first.

        Each STEP of waiting raises the priority by one. So no request waits for ever behind higher priorities.
        """
        return self.is_history, -(self.resources.priority + self._steps(now)), self.since, self.output, self.name

    def has_waited(self, now: datetime) -> bool:
        """Return whether the request has waited so long that a target is kept for it."""
        return self._steps(now) >= 1

    def _steps(self, now: datetime) -> int:
        return max((now - self.since) // STEP, 0)


@dataclass(frozen=True)
class Placement:
    """The target that a request gets, with the amount that it takes there and the reason."""

    target: str
    amount: Amount
    reason: str


class Nowhere(str):
    """The reason why no target can hold a request until the settings or the targets change."""

    __slots__ = ()


@dataclass
class _Pass:
    """One pass over the queue: the free room that each target still has, and the request for which a target is kept.

    The keys of both are names of targets.
    """

    rooms: dict[str, Room]
    kept: dict[str, QueueEntry] = field(default_factory=dict[str, QueueEntry])

    def place(self, request: QueueEntry, now: datetime) -> Placement | str:
        own = {
            name: room
            for name, room in self.rooms.items()
            if request.can_use(name) or (room.closed and request.allows(name))
        }
        fitting = _fitting(request.resources, own)
        with_room = {
            name for name, room in fitting.items() if name not in self.kept and room.has_room(request.resources)
        }
        if open_rooms := next((both for group in request.groups if (both := with_room & group)), with_room):
            name = min(open_rooms, key=lambda each: (-self.rooms[each].share, self.rooms[each].queued, each))
            amount = self.rooms[name].needs(request.resources)
            reason = self._because(name, fitting)
            self.rooms[name] = self.rooms[name].less(amount)
            return Placement(name, amount, reason)
        self._keep(request, fitting, now)
        return self._why(request, fitting)

    def _keep(self, request: QueueEntry, fitting: Mapping[str, Room], now: datetime) -> None:
        """Keep the largest target free for a request that has waited long. Otherwise smaller requests would go first.

        The choice depends only on sizes and names, so it is the same in each pass while the target is online. A target
        is not kept if other programs use so much of it that the request would not fit even after our runs have ended.
        """
        if request.has_waited(now):
            usable = {name: room for name, room in fitting.items() if name not in self.kept}
            if online := [name for name, room in usable.items() if room.will_have_room(request.resources)]:
                largest = min(online, key=lambda name: (-fitting[name].total.cores, name))
                self.kept[largest] = request

    def _why(self, request: QueueEntry, fitting: Mapping[str, Room]) -> str:
        needs, target = f"{NEEDS}{request.resources.amount}", request.resources.target
        if target in self.rooms and not request.allows(target):
            return f"{needs} of {target}, which is in none of the places where it can run now"
        if not fitting:
            allowed = {name: room for name, room in self.rooms.items() if request.allows(name)}
            reason = f"{needs}, but {_why_none(request.resources, allowed)}"
            return reason if _may_fit(request.resources, allowed) else Nowhere(reason)
        reason = f"{needs}: {shortened([self._state(name, request) for name in sorted(fitting)], _NAMED)}"
        return reason if any(map(request.can_use, fitting)) else Nowhere(reason)

    def _because(self, name: str, fitting: Mapping[str, Room]) -> str:
        rivals = [self._state(each, None) for each in sorted(fitting) if each != name]
        kind = "the least busy target with room" if rivals else "the only target that fits"
        words = [self.rooms[name].in_words, *([shortened(rivals, _NAMED)] if rivals else [])]
        return f"{name} is {kind}: {'; '.join(words)}"

    def _state(self, name: str, request: QueueEntry | None) -> str:
        """Return the state of a target in words."""
        room, first = self.rooms[name], self.kept.get(name)
        if first and first != request and not room.closed:
            return f"{name} is kept for {first.output}"
        if not request or room.closed or not room.free.holds(room.needs(request.resources)):
            return f"{name} {room.in_words}"
        largest = max((each.free.memory for each in room.workers if each.free.cores > 0), default=0)
        executor = f"an executor needs {in_gib(room.executor_memory(request.resources))}"
        return f"{name} {room.in_words}, at most {in_gib(largest)} on a machine with a free core: {executor}"


def allot(queue: Iterable[QueueEntry], rooms: Mapping[str, Room], now: datetime) -> dict[str, Placement | str]:
    """Return the placement of each request, or the reason why the request waits. The keys are the requests' names.

    Requests are served in the order of `QueueEntry.place`. Each takes the least busy target with room. A request
    without room lets later requests pass until it has waited for STEP. From then on, a target is kept for it: no later
    request gets room there. So the runs on this target end, and the request gets its room.
    """
    going = _Pass({**rooms})
    return {request.name: going.place(request, now) for request in sorted(queue, key=lambda each: each.place(now))}


def possible(needed: Resources, declared: Resources, rooms: Mapping[str, Room]) -> Resources:
    """Return the learned resources `needed`, with as many of their cores as some open target can hold.

    If no open target can hold more than the declared cores, return `declared`.
    """
    open_rooms = {name: room for name, room in rooms.items() if not room.closed}
    fewer = (with_cores(declared, cores) for cores in range(needed.cores, declared.cores, -1))
    return next((each for each in fewer if _fitting(each, open_rooms)), declared)


def _fitting(resources: Resources, rooms: Mapping[str, Room]) -> dict[str, Room]:
    """Return the targets that could hold a request if they were empty, among those that the request allows.

    Closed targets are included, because their size may be unknown.
    """
    return {
        name: room
        for name, room in rooms.items()
        if _is_named(resources, name, room) and (room.closed or room.is_large_enough(resources))
    }


def _is_named(resources: Resources, name: str, room: Room) -> bool:
    return resources.target in (None, name) and {*resources.labels} <= {*room.labels}


def _may_fit(resources: Resources, rooms: Mapping[str, Room]) -> bool:
    """Return whether a target that is too small now may grow: one of its machines may be down, or not up yet."""
    return any(room.may_grow for name, room in rooms.items() if _is_named(resources, name, room))


def _why_none(resources: Resources, rooms: Mapping[str, Room]) -> str:
    if resources.target is not None and resources.target not in rooms:
        return f"FEED_ASSETS_TARGETS has no {resources.target!r}: it has {', '.join(sorted(rooms))}"
    named = {name: room for name, room in rooms.items() if _is_named(resources, name, room)}
    if not named and resources.target is not None:
        return f"{resources.target} has not the labels {', '.join(resources.labels)}: correct them, or the target"
    if not named:
        return f"no target has the labels {', '.join(resources.labels)}: correct them, or FEED_ASSETS_TARGETS"
    sizes = [f"{name} has {room.total}{_largest(room, resources)}" for name, room in sorted(named.items())]
    now = " now" if _may_fit(resources, named) else ""
    return f"no target is so large{now}: {shortened(sizes, _NAMED)}"


def _largest(room: Room, resources: Resources) -> str:
    """Describe the memory of the largest machine: one executor of a run must have room there."""
    if not room.workers:
        return ""
    largest, executor = max(each.total.memory for each in room.workers), room.executor_memory(resources)
    return f", {in_gib(largest)} on one machine: an executor needs {in_gib(executor)}"
