"""A compute target as its probe and a request see it: its size, and what is free there."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from feed_assets.core.resources import NOTHING, Amount, Resources, in_gib


@dataclass(frozen=True)
class Grant:
    """Resources of a target that were given to a run which has not ended.

    `started` (UTC) is when the run's Spark session was up. None means that it was not up yet.
    """

    amount: Amount
    started: datetime | None = None


@dataclass(frozen=True)
class Worker:
    """A machine of a target: its size, and what is free there. An executor runs on one machine."""

    total: Amount
    free: Amount


@dataclass(frozen=True)
class Probe:
    """The answer of a target at a time (UTC): its size, what is free, and how many applications wait there.

    `workers` are its machines, if it names them. `offline` is the reason why it gave no answer, with the time since
    when it gives none.
    """

    at: datetime
    total: Amount = NOTHING
    free: Amount = NOTHING
    queued: int = 0
    offline: str | None = None
    since: datetime | None = None
    workers: Sequence[Worker] = ()


SETTLES = timedelta(seconds=10)
"""Time from the start of a run's Spark session until the target surely counts its executors."""


def _alone(resources: Resources) -> Amount:
    """Return the amount of the executors alone."""
    return resources.amount


@dataclass(frozen=True)
class Room:
    """A target as a request sees it: size, free resources, queue, labels, and the reason why it is closed.

    `needs` returns the amount that a run takes there, with what the target's kind needs beside the executors. `granted`
    is what our own runs have there. `workers` are its machines, if they are known. `may_grow` says that its size
    is that of the machines that are up now, and not of the settings.
    """

    total: Amount
    free: Amount
    queued: int = 0
    labels: Sequence[str] = ()
    closed: str | None = None
    needs: Callable[[Resources], Amount] = _alone
    granted: Amount = NOTHING
    workers: Sequence[Worker] = ()
    may_grow: bool = False

    def less(self, amount: Amount) -> "Room":
        """Return the room that is left after a request has taken an amount."""
        granted, workers = self.granted + amount, spread(self.workers, [amount])
        return replace(self, free=self.free - amount, granted=granted, workers=workers)

    def is_large_enough(self, resources: Resources) -> bool:
        """Return whether the target can hold a run if it is empty."""
        return self._holds(resources, self.total, [each.total for each in self.workers])

    def has_room(self, resources: Resources) -> bool:
        """Return whether the target is open and can hold a run now."""
        return not self.closed and self._holds(resources, self.free, [each.free for each in self.workers])

    def will_have_room(self, resources: Resources) -> bool:
        """Return whether the target is open and can hold a run once our own runs there have ended.

        All that they have is assumed to become free on each machine, because it is not known which run is where.
        """
        free = self.free + self.granted
        machines = [_least(each.total, each.free + self.granted) for each in self.workers]
        return not self.closed and self._holds(resources, free, machines)

    def _holds(self, resources: Resources, amount: Amount, machines: Sequence[Amount]) -> bool:
        return amount.holds(self.needs(resources)) and self._slots(resources, machines) >= resources.cores

    def _slots(self, resources: Resources, machines: Sequence[Amount]) -> int:
        """Return how many of a run's executors have room on machines. All have if the machines are not known."""
        memory = self.executor_memory(resources)
        return sum(_executors(each, memory) for each in machines) if machines else resources.cores

    def executor_memory(self, resources: Resources) -> int:
        """Return the bytes that one executor of a run, with its one core, takes on a machine."""
        return self.needs(resources).memory // resources.cores

    @property
    def share(self) -> float:
        """Return the free share of the cores, by which targets are compared."""
        return self.free.cores / self.total.cores if self.total.cores else 0.0

    @property
    def in_words(self) -> str:
        """Return the free resources in words."""
        if self.closed:
            return self.closed
        cores = f"{max(self.free.cores, 0)} of {self.total.cores} cores"
        is_short = self.free.cores > 0
        memory = f" and {in_gib(max(self.free.memory, 0))} of {in_gib(self.total.memory)}" if is_short else ""
        return f"{cores}{memory} free"


def _least(one: Amount, other: Amount) -> Amount:
    return Amount(min(one.cores, other.cores), min(one.memory, other.memory))


def _executors(machine: Amount, memory: int) -> int:
    """Return how many executors of one core and `memory` bytes have room in an amount of one machine."""
    return max(min(machine.cores, machine.memory // memory), 0)


def spread(workers: Sequence[Worker], amounts: Iterable[Amount]) -> Sequence[Worker]:
    """Return machines after runs have begun there, each with one executor for each core of its amount.

    Executors go to as many machines as possible, first to those with the most free cores, as Spark's master does by
    default (`spark.deploy.spreadOutApps`). This estimate is used until the target's next answer.
    """
    for amount in amounts:
        begins, executor = amount.cores, Amount(1, amount.memory // amount.cores)
        workers = sorted(workers, key=lambda each: -each.free.cores)
        while begins and any(each.free.holds(executor) for each in workers):
            for number, each in enumerate(workers):
                if begins and each.free.holds(executor):
                    workers[number] = replace(each, free=each.free - executor)
                    begins -= 1
    return workers


def unseen(probe: Probe, grants: Iterable[Grant]) -> list[Amount]:
    """Return what was given to runs that the answer of a target cannot have seen."""
    return [each.amount for each in grants if each.started is None or each.started + SETTLES > probe.at]


def free_of(probe: Probe, grants: Sequence[Grant]) -> Amount:
    """Return what is free of a target: the probe's answer, less what was given to runs that the probe cannot have seen.

    Never return more than the target's size less all that was given, whatever the probe says.
    """
    answered = probe.free - sum(unseen(probe, grants), NOTHING)
    own = probe.total - sum((each.amount for each in grants), NOTHING)
    return _least(answered, own)
