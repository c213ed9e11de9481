"""A topic loaded into a table by separate processes: the connector, the loader, now and then a Spark job."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from math import inf
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic, sleep
from typing import Any

from feed_assets.core.topics import Topic
from feed_assets.kafka import service
from feed_assets.warehouse import loader, table
from feed_assets_tests.support.forked_processes import Forks
from feed_assets_tests.support.kafka_topics import FIELDS, MORE, POISON, Place, World
from feed_assets_tests.support.killed_connectors import MEMBER, job_killed_after
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import loading_of

KILLED = -9
CONNECTOR, LOADER, JOB = "connector", "loader", "job"

TOLD = "told"
"""File that tells a loader at which statement a load waits to be killed."""

STATEMENTS = 30
"""Approximate number of statements of a load with rows; a shorter load is killed or paused at its end."""


def connects(place: Place, name: str, topic: Topic) -> None:
    """Run as a connector until killed."""
    service.run(place.chunking(MEMBER), {name: topic}, Event(), (0.1, 1))


def loads(place: Place, url: str, name: str, topic: Topic, log: Path) -> None:
    """Run as a loader until killed, and log where loads begin and end; the lease of the previous loader is over."""
    loader.LEASE_SECONDS, loader.LOOK_SECONDS = 0.0, 0.02
    loading = loading_of(place, url, seconds=0.05)
    with opened(loading.engine) as connection:
        noted(log, type(connection))
    loader.run(loading, {name: topic}, Event(), (0.05, 0.1))


def noted(log: Path, kind: Any) -> None:
    """Log loads; a load that is told to waits to be killed, before a given statement, or at its end."""
    load, execute, told, left = table.load, kind.execute, log.with_name(TOLD), inf

    def loaded(*arguments: Any) -> Any:
        nonlocal left
        _note(log, "<")
        left = int(told.read_text()) if told.exists() else inf
        found = load(*arguments)
        if left < inf:
            _wait(log)
        _note(log, ">")
        return found

    def executed(self: Any, statement: str) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            _wait(log)
        return execute(self, statement)

    table.load, kind.execute = loaded, executed


def _wait(log: Path) -> None:
    _note(log, "!")
    signal.pause()


def _note(log: Path, what: str) -> None:
    with log.open("a") as file:
        file.write(what)


@dataclass
class Chain:
    """Processes of a world whose topic is loaded; `log` has the beginnings and ends of loads."""

    world: World
    url: str
    fork: Forks
    log: Path
    lives: dict[str, int] = field(default_factory=dict)
    _formats: Iterator[str] = field(default_factory=lambda: cycle(["csv", "parquet"]))

    def start(self, who: str) -> None:
        self.world.change(format=next(self._formats))  # A topic's format may change whenever its connector starts.
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

    def loads(self) -> tuple[int, int, int]:
        """Return how many loads the log has as begun, as ended, and as killed in the middle."""
        noted = self.log.read_text()
        return noted.count("<"), noted.count(">"), noted.count("!")

    def life(self, victim: str, chance: Random) -> None:
        """Produce messages, then kill one process; half of the loaders in the middle of a load."""
        is_cut_off = chance.random() < 0.5  # The first number: how many others are drawn is a matter of time.
        produce = partial(produced, self.world, chance)
        produce()
        if victim == JOB:
            self.kill(CONNECTOR)
            job = self.world.place, self.world.name, self.world.settings, self.log.with_name("puts")
            assert self.fork.run(job_killed_after, *job, chance.uniform(0, 4), meanwhile=produce) == KILLED
            return
        _until_over(chance.uniform(0.02, 0.6), produce)
        if victim == LOADER and is_cut_off:
            self._cut_off(chance.randint(1, STATEMENTS), produce)
        self.kill(victim)

    def _cut_off(self, at: int, produce: Callable[[], None]) -> None:
        """Let a load wait at a given statement, once there is more to load."""
        *_, before = self.loads()
        told, written = self.log.with_name(TOLD), self.log.with_name("written")
        written.write_text(str(at))
        written.rename(told)
        wait_until(lambda: (produce(), self.loads()[2] > before)[1], "a load", pause=0)
        told.unlink()


def _until_over(seconds: float, work: Callable[[], None]) -> None:
    until = monotonic() + seconds
    while monotonic() < until:
        work()


def produced(world: World, chance: Random) -> None:
    """Produce a few messages: some are deletes, some have another schema, some are not records."""
    sleep(0.02)  # A load that leaves the others the time to get somewhere.
    world.produce(chance.randint(1, 4), fields=MORE if chance.random() < 0.1 else FIELDS)
    if chance.random() < 0.2:
        world.send(None, chance.randint(0, 6))
    if chance.random() < 0.1:
        world.send(POISON)
