"""Ticks that listen, as under the daemon, with a clock on which time passes only as a tick sleeps."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg

from feed_assets.orchestration.ticks import tick as ticks
from feed_assets.orchestration.ticks.tick import Budget, Step, evaluate
from feed_assets.testing import Harness, PlainMaker
from feed_assets_tests.support.sum_projects import given, opened, short

SINCE = 1.0
"""Since when the sensor runs, which the daemon alone says."""


@dataclass
class Clock:
    """Time that passes only as a tick sleeps."""

    seconds: float = 0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def clocked(patch) -> Clock:
    """The clock by which ticks go from now on."""
    found = Clock()
    patch.setattr(ticks, "monotonic", found.now)
    patch.setattr(ticks, "sleep", lambda seconds: found.sleep(seconds))
    patch.setattr(ticks, "Budget", partial(Budget, started=0.0))
    return found


def listening(*, use_threads: bool = True) -> Harness:
    """A world on an instance whose daemon has a thread for each sensor, or one for all."""
    instance = dg.DagsterInstance.ephemeral(settings={"sensors": {"use_threads": use_threads, "num_workers": 2}})
    return opened.enter_context(Harness(short().definitions, instance, maker=PlainMaker(given)))


def evaluated(world: Harness, steps: Sequence[Step], since: float | None) -> list[str]:
    """The partitions that a tick of these steps requests."""
    return [request.partition_key for request in ticked(world, steps, since).run_requests or ()]


def ticked(world: Harness, steps: Sequence[Step], since: float | None) -> dg.SensorResult:
    """What a tick of these steps tells."""
    context = dg.build_sensor_context(
        world.instance, definitions=world.definitions, sensor_name="feeds", last_sensor_start_time=since
    )
    with context:
        return evaluate(context, steps, None)
