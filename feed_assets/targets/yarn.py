"""Probe of a YARN cluster. It reads what is free for a queue from the REST API of the ResourceManager."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field

from feed_assets.core.resources import NOTHING, Amount
from feed_assets.core.target_room import Probe
from feed_assets.core.targets import Yarn
from feed_assets.targets.json_answers import AnswerPart, NoAnswer, look_at_server

Count = Annotated[int, Field(ge=0, le=1 << 40)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Factor = Annotated[float, Field(ge=-1, le=1e9, allow_inf_nan=False)]

_ROUNDED = 1e-3
"""The part of a core that is added before rounding down: YARN's percentages are inexact single-precision numbers."""


class _Metrics(AnswerPart):
    activeNodes: Count  # noqa: N815  YARN's own name, like the names below
    appsPending: Count  # noqa: N815
    availableMB: Count  # noqa: N815
    availableVirtualCores: Count  # noqa: N815
    totalMB: Count  # noqa: N815
    totalVirtualCores: Count  # noqa: N815


class _Cluster(AnswerPart):
    clusterMetrics: _Metrics  # noqa: N815


class _UsedByQueue(AnswerPart):
    memory: Count = 0
    vCores: Count = 0  # noqa: N815

    @property
    def amount(self) -> Amount:
        return Amount(self.vCores, self.memory << 20)


class _CapacityQueues(AnswerPart):
    queue: "list[_CapacityQueue]"


class _CapacityQueue(AnswerPart):
    queueName: str  # noqa: N815
    state: str = "RUNNING"
    absoluteCapacity: Percent = 100  # noqa: N815
    absoluteMaxCapacity: Percent = 100  # noqa: N815
    resourcesUsed: _UsedByQueue = _UsedByQueue()  # noqa: N815
    numApplications: Count = 0  # noqa: N815
    numPendingApplications: Count = 0  # noqa: N815
    maxApplications: Count = 1 << 31  # noqa: N815
    userLimitFactor: Factor = -1  # noqa: N815
    queues: _CapacityQueues | None = None

    @property
    def limit(self) -> float:
        """Return the percentage of the cluster that one user's runs may use. A user factor below 0 means no limit."""
        of_user = self.absoluteCapacity * self.userLimitFactor if self.userLimitFactor >= 0 else 100.0
        return min(self.absoluteMaxCapacity, of_user)


class _SchedulerInfo(AnswerPart):
    type: str
    queueName: str = "root"  # noqa: N815
    queues: _CapacityQueues | None = None


class _SchedulerPart(AnswerPart):
    schedulerInfo: _SchedulerInfo  # noqa: N815


class _SchedulerAnswer(AnswerPart):
    scheduler: _SchedulerPart


def look(target: Yarn, now: datetime) -> Probe:
    """Return the resources that are free for the target's queue.

    Raise NoAnswer if the ResourceManager gives no answer or has no node, or if the queue takes no application.
    """
    url = f"{target.url.rstrip('/')}/ws/v1/cluster"
    with look_at_server() as server:
        metrics = server.get(_Cluster, f"{url}/metrics").clusterMetrics
        info = server.get(_SchedulerAnswer, f"{url}/scheduler").scheduler.schedulerInfo
    if not metrics.activeNodes:
        raise NoAnswer("it has no active node")
    total = Amount(metrics.totalVirtualCores, metrics.totalMB << 20)
    free = Amount(metrics.availableVirtualCores, metrics.availableMB << 20)
    if info.type != "capacityScheduler":  # Other schedulers name no limits of this form.
        return Probe(now, total, free, queued=metrics.appsPending)
    return _of_queue(Probe(now, total, free), _path(info, target.queue))


def _path(info: _SchedulerInfo, name: str) -> Sequence[_CapacityQueue]:
    """Return a leaf queue's parents, then the queue. `name` is the queue's name, or its path with or without `root`."""
    for names, queues in _leaves(info.queues, info.queueName):
        if name in (names, names.partition(".")[2], queues[-1].queueName):
            return queues
    raise NoAnswer(f"it has no leaf queue {name}")


def _leaves(
    queues: _CapacityQueues | None, above: str, parents: Sequence[_CapacityQueue] = ()
) -> Iterator[tuple[str, list[_CapacityQueue]]]:
    for each in queues.queue if queues else ():
        path, names = [*parents, each], f"{above}.{each.queueName}"
        if each.queues and each.queues.queue:
            yield from _leaves(each.queues, names, path)
        else:
            yield names, path


def _of_queue(cluster: Probe, path: Sequence[_CapacityQueue]) -> Probe:
    """Return the part of a cluster that a leaf queue may use. The limits of its parents apply, too."""
    leaf = path[-1]
    if stopped := next((each for each in path if each.state != "RUNNING"), None):
        raise NoAnswer(f"its queue {stopped.queueName} is {stopped.state}, expected RUNNING")
    totals = [_share(cluster.total, each.limit) for each in path]
    within = [_share(cluster.total, each.absoluteMaxCapacity) - each.resourcesUsed.amount for each in path]
    is_full = leaf.numApplications >= leaf.maxApplications
    free = NOTHING if is_full else _least([cluster.free, *totals, *within])
    return Probe(cluster.at, _least(totals), free, queued=leaf.numPendingApplications)


def _share(total: Amount, percent: float) -> Amount:
    return Amount(int(total.cores * percent / 100 + _ROUNDED), int(total.memory * percent / 100))


def _least(amounts: Sequence[Amount]) -> Amount:
    """Return the least cores and memory, but not below 0: a queue may use more than a limit that was lowered."""
    cores, memory = min(each.cores for each in amounts), min(each.memory for each in amounts)
    return Amount(max(cores, 0), max(memory, 0))
