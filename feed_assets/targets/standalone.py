"""Probe of a standalone cluster of Spark. It reads what is free from the JSON page of the master's web UI."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from feed_assets.core.resources import NOTHING, Amount
from feed_assets.core.target_room import Probe, Worker
from feed_assets.core.targets import Standalone
from feed_assets.targets.json_answers import AnswerPart, NoAnswer, look_at_server

Count = Annotated[int, Field(ge=0, le=1 << 40)]

LEAST_MIB = 512
"""Least free memory in MiB that a worker needs to start an executor."""


MOST_MACHINES = 500
"""Greatest number of workers that a probe lists: a request for resources reads the list while it locks the queue."""


class _Worker(AnswerPart):
    state: str
    cores: Count
    coresfree: Count
    memory: Count
    memoryfree: Count

    @property
    def size(self) -> Amount:
        return Amount(self.cores, self.memory << 20)

    @property
    def free(self) -> Amount:
        return Amount(self.coresfree, self.memoryfree << 20)


class _Application(AnswerPart):
    state: str


class _Master(AnswerPart):
    status: str
    workers: list[_Worker]
    activeapps: list[_Application]


def look(target: Standalone, now: datetime) -> Probe:
    """Return the free resources. Raise NoAnswer if the master gives no answer, is not active, or has no worker."""
    with look_at_server() as server:
        master = server.get(_Master, f"{target.url.rstrip('/')}/json/")
    if master.status != "ALIVE":
        raise NoAnswer("its master is not the active one")
    alive = [each for each in master.workers if each.state == "ALIVE"]
    if not alive:
        raise NoAnswer("its master has no worker")
    total = sum((each.size for each in alive), NOTHING)
    # An executor needs a free core and enough free memory on the same worker.
    useful = [each for each in alive if each.coresfree and each.memoryfree >= LEAST_MIB]
    free = sum((each.free for each in useful), NOTHING)
    workers = tuple(Worker(each.size, each.free) for each in alive) if len(alive) <= MOST_MACHINES else ()
    waiting = sum(each.state == "WAITING" for each in master.activeapps)
    return Probe(now, total, free, queued=waiting, workers=workers)
