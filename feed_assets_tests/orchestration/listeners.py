"""Ticks that listen as under the daemon, by a clock that advances only while a tick sleeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg

from feed_assets.orchestration.ticks import tick as ticks
from feed_assets.orchestration.ticks.tick import Budget, Step, evaluate
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.support.sum_projects import given, opened, short

SINCE = 1.0
"""Start time of the sensor, which only the daemon passes."""


@dataclass
class Clock:
    """A clock that advances only while a tick sleeps."""

    seconds: float = 0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def clocked(patch) -> Clock:
    """Have ticks use a fake clock, and return it."""
    clock = Clock()
    patch.setattr(ticks, "monotonic", clock.now)
    patch.setattr(ticks, "sleep", lambda seconds: clock.sleep(seconds))
    patch.setattr(ticks, "Budget", partial(Budget, started=0.0))
    return clock


def listening(*, use_threads: bool = True) -> Harness:
    """Build a world whose daemon has a thread for each sensor, or one for all."""
    instance = dg.DagsterInstance.ephemeral(settings={"sensors": {"use_threads": use_threads, "num_workers": 2}})
    return opened.enter_context(Harness(short().definitions, instance, maker=PlainMaker(given)))


def evaluated(world: Harness, steps: Sequence[Step], since: float | None) -> list[str]:
    """Return the partitions that a tick of these steps requests."""
    return [request.partition_key for request in ticked(world, steps, since).run_requests or ()]


def ticked(world: Harness, steps: Sequence[Step], since: float | None) -> dg.SensorResult:
    """Return the result of a tick of these steps."""
    context = dg.build_sensor_context(
        world.instance, definitions=world.definitions, sensor_name="feeds", last_sensor_start_time=since
    )
    with context:
        return evaluate(context, steps, None)
