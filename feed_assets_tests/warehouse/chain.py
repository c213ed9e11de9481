"""From a topic into a table, each part a process of its own: the connector, the loader, now and then a Spark job."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic, sleep

from feed_assets.core.topics import Topic
from feed_assets.kafka import service
from feed_assets.warehouse import loader, table
from feed_assets_tests.faults.forks import Forks
from feed_assets_tests.kafka.connectors import MEMBER, job_killed_after
from feed_assets_tests.kafka.world import FIELDS, MORE, POISON, Place, World
from feed_assets_tests.servers import wait_until
from feed_assets_tests.warehouse.topics import loading_of

KILLED = -9
CONNECTOR, LOADER, JOB = "connector", "loader", "job"


def connects(place: Place, name: str, topic: Topic) -> None:
    """Be a connector until the end."""
    service.run(place.chunking(MEMBER), {name: topic}, Event(), (0.1, 1))


def loads(place: Place, url: str, name: str, topic: Topic, log: Path) -> None:
    """Be a loader until the end, and note where loads begin and end; the lease of the one before is over."""
    loader.LEASE_SECONDS, loader.LOOK_SECONDS, load = 0.0, 0.02, table.load

    def noted(*arguments):
        _note(log, "<")
        found = load(*arguments)
        _note(log, ">")
        return found

    table.load = noted
    loader.run(loading_of(place, url, seconds=0.05), {name: topic}, Event(), (0.05, 0.1))


def _note(log: Path, what: str) -> None:
    with log.open("a") as file:
        file.write(what)


@dataclass
class Chain:
    """The processes of a world whose topic is loaded; `log` has the beginnings and ends of loads."""

    world: World
    url: str
    fork: Forks
    log: Path
    lives: dict[str, int] = field(default_factory=dict)

    def start(self, who: str) -> None:
        common = self.world.place, self.world.name, self.world.settings
        if who == CONNECTOR:
            self.lives[who] = self.fork.start(connects, *common)
        if who == LOADER:
            self.lives[who] = self.fork.start(loads, common[0], self.url, *common[1:], self.log)

    def kill(self, who: str) -> None:
        os.kill(self.lives[who], signal.SIGKILL)
        assert self.fork.wait(self.lives.pop(who)) == KILLED, f"the {who} had ended by itself"

    def end(self) -> None:
        for who in [*self.lives]:
            self.kill(who)

    def loads(self) -> tuple[int, int]:
        """Loads that were begun, and that were ended."""
        noted = self.log.read_text()
        return noted.count("<"), noted.count(">")

    def life(self, victim: str, chance: Random) -> None:
        """Let somebody produce, and then kill one of them; half of the loaders in the middle of a load."""
        produce = partial(produced, self.world, chance)
        produce()
        if victim == JOB:
            self.kill(CONNECTOR)
            job = self.world.place, self.world.name, self.world.settings, self.log.with_name("puts")
            assert self.fork.run(job_killed_after, *job, chance.uniform(0, 4), meanwhile=produce) == KILLED
            return
        _until_over(chance.uniform(0.02, 0.6), produce)
        if victim == LOADER and chance.random() < 0.5:
            wait_until(lambda: self._loads_what(produce), "a load", pause=0)
            sleep(chance.uniform(0, 0.015))
        self.kill(victim)

    def _loads_what(self, produce: Callable[[], None]) -> bool:
        """Whether a load is under way, once there is more to load."""
        produce()
        begun, ended = self.loads()
        return begun > ended


def _until_over(seconds: float, work: Callable[[], None]) -> None:
    until = monotonic() + seconds
    while monotonic() < until:
        work()


def produced(world: World, chance: Random) -> None:
    """A few messages: deletes, another schema, what is no record."""
    sleep(0.02)  # A load that leaves the others the time to get somewhere.
    world.produce(chance.randint(1, 4), fields=MORE if chance.random() < 0.1 else FIELDS)
    if chance.random() < 0.2:
        world.send(None, chance.randint(0, 6))
    if chance.random() < 0.1:
        world.send(POISON)
