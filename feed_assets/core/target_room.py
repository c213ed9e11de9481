"""The room of a compute target: its size, and the resources that are free for further runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from feed_assets.core.resources import NOTHING, Amount, Resources, in_gib


@dataclass(frozen=True)
class Grant:
    """Resources of a target that are granted to a run until the run ends.

    `started` (UTC) is when the run's Spark session started. None means that it has not started yet.
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

    `workers` are the target's machines, if it names them. `offline` is the reason why the target gave no answer.
    `since` is when it went offline.
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

    `needs` returns the amount that a run takes there, including what it takes beside the executors, such as a driver.
    `granted` is the amount of our own runs there. `workers` are the target's machines, if they are known. `may_grow` is
    True if `total` comes from the machines that are up now, and not from the settings.
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

        It is not known which run is on which machine. So the resources of all our runs count as free on each machine.
        """
        free = self.free + self.granted
        machines = [_least(each.total, each.free + self.granted) for each in self.workers]
        return not self.closed and self._holds(resources, free, machines)

    def _holds(self, resources: Resources, amount: Amount, machines: Sequence[Amount]) -> bool:
        return amount.holds(self.needs(resources)) and self._slots(resources, machines) >= resources.cores

    def _slots(self, resources: Resources, machines: Sequence[Amount]) -> int:
        """Return how many executors of a run fit on these machines. If the machines are unknown, all executors fit."""
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
    """Return how many executors, each with one core and `memory` bytes, fit into an amount of one machine."""
    return max(min(machine.cores, machine.memory // memory), 0)


def spread(workers: Sequence[Worker], amounts: Iterable[Amount]) -> Sequence[Worker]:
    """Return machines after runs with these amounts have started there. Each core of a run is one executor.

    Executors go to as many machines as possible, and first to the machines with the most free cores. Spark's master
    does this by default (`spark.deploy.spreadOutApps`). This estimate is used until the target's next answer.
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
    """Return the amounts of the grants that a target's answer cannot include yet."""
    return [each.amount for each in grants if each.started is None or each.started + SETTLES > probe.at]


def free_of(probe: Probe, grants: Sequence[Grant]) -> Amount:
    """Return the free resources of a target: the probe's answer, minus the grants that the answer cannot include yet.

    The result is never more than the target's size minus all grants, whatever the probe says.
    """
    answered = probe.free - sum(unseen(probe, grants), NOTHING)
    own = probe.total - sum((each.amount for each in grants), NOTHING)
    return _least(answered, own)
