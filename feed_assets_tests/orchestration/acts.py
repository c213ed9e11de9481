"""Random acts on a dataset that reads a team's events: ticks, wrong rows, late requests, changes during runs, kills."""

import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from feed_assets.feeds.stores import local_root
from feed_assets.settings import settings
from feed_assets_tests.orchestration.increment_world import Shop
from feed_assets_tests.support.kill_points import call_and_die, die_at
from feed_assets_tests.support.sum_projects import later, nothing


class Acts:
    """Random acts, one at a time. `make(making)` builds the datasets on a Dagster instance of their own."""

    deaths: tuple[tuple[Callable[..., None], int], ...]
    """Functions to be killed, each with the highest number of the change at which it may die."""

    def __init__(self, folder, seed, forker, make, making_of):
        self.random, self.forker, self.done, self.kills = Random(seed), forker, [], 0  # noqa: S311
        self.shop, self.make = Shop(folder), make
        self.shop.sink.publish([])
        self.making, self.old = making_of(self.shop), []
        self.world = make(self.making)

    def act(self, *names):
        name = self.random.choice(names)
        self.done.append(name)
        getattr(self, name)()

    def tick(self):
        self.world.tick()

    def spoil(self):
        """Run once with a wrong row that nobody has noticed yet."""
        self.making.spoils = True
        self.tick()
        self.making.spoils = False

    def during(self):
        """Do another act in the middle of a run."""
        self.making.during = lambda: self.act("write", "late", "take_back", "give_back")
        self.tick()
        self.making.during = nothing

    def again(self):
        """Repeat an earlier request, or run it late."""
        self.old += [each for each in self.world.ask(name="events_shop").requests if not each.partition_key]
        if self.old:
            request = self.random.choice(self.old)
            self.run(request.run_config, request.tags)

    def kill(self):
        """Kill a tick, a run or another function at one of its changes, and pass the time that others wait for it."""
        if not self.forker:
            return self.tick()
        target, most = self.random.choice(self.deaths)
        self.making.prefix = f"{len(self.done)}."
        code = self.forker.run(target, self.make, self.making, self.random.randint(1, most), self.world.now())
        assert code in (0, -signal.SIGKILL), self.done
        self.kills += bool(code)
        later(self.world, timedelta(hours=2))
        return None


def run_and_die(make: Callable, making, number: int, moment: datetime) -> None:
    """Tick, and be killed in the run at a change after its function."""
    making.during = lambda: die_at(number, local_root(settings().blackboard))
    tested = make(making)
    tested.now = lambda: moment
    tested.tick()


def tick_and_die(make: Callable, making, number: int, moment: datetime) -> None:
    """Tick, and be killed at one of its changes."""
    tested = make(making)
    tested.now = lambda: moment
    call_and_die(number, local_root(settings().blackboard), tested.tick)
