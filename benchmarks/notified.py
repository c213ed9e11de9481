"""Latency from a manifest in a notifying bucket to the run request; a tick every five seconds, as under the daemon."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from os import environ
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import monotonic, sleep

import dagster as dg
import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair, at_home
from benchmarks.ticks import DAYS, RAW, day, definitions
from feed_assets.core.feeds import MANIFEST
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import due
from feed_assets.orchestration.decide.run_blocks import named_by
from feed_assets.orchestration.ticks.steps import FEEDS
from feed_assets.orchestration.ticks.tick import evaluate
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.s3_notifications import NotifyingBucket, notifying_bucket
from feed_assets_tests.support.servers import BUCKET, seaweedfs_server

DAEMON_SECONDS = 5
"""Seconds between ticks of a sensor under Dagster's daemon."""

ROOT = "lake"
PATIENCE = 60


@dataclass
class Daemon:
    """A loop like the daemon's that evaluates the sensor `feeds`, and the partitions that it requested."""

    harness: Harness
    bucket: NotifyingBucket
    days: int = 0
    requested: set[str] = field(default_factory=set[str])
    heard: Event = field(default_factory=Event)
    over: Event = field(default_factory=Event)

    def run(self) -> None:
        """Evaluate the sensor every five seconds; an idle tick listens for notifications."""
        cursor = None
        while not self.over.is_set():
            began = monotonic()
            with dg.build_sensor_context(
                self.harness.instance,
                cursor,
                definitions=self.harness.definitions,
                sensor_name="feeds",
                last_sensor_start_time=1.0,
            ) as context:
                found = evaluate(context, FEEDS, None)
            cursor = found.cursor
            for request in found.run_requests or ():
                single = {"dagster/partition": request.partition_key} if request.partition_key else {}
                self.requested |= {str(key) for key in named_by(DAYS, {**request.tags, **single})}
                self.heard.set()
            for event in found.asset_events:
                self.harness.instance.report_runless_asset_event(event)
            with open_ledger(settings().ledger).write() as connection:
                connection.execute(sa.delete(due))  # Updates that no run builds here would be requested again.
            self.over.wait(max(0, DAEMON_SECONDS - (monotonic() - began)))

    def knock(self) -> None:
        """Publish an update of the next day, notify, and wait until its run is requested."""
        self.days += 1
        update_id = self.harness.drop(str(RAW), day(self.days), "n\n1\n")
        self.bucket.write(f"{ROOT}/{RAW}/{day(self.days)}/{update_id}/{MANIFEST}")
        ends = monotonic() + PATIENCE
        while day(self.days) not in self.requested:
            if monotonic() > ends:
                raise RuntimeError(f"{day(self.days)} is not requested after {PATIENCE} s")
            self.heard.wait(0.1)
            self.heard.clear()


@contextmanager
def _environment(named: dict[str, str]) -> Iterator[None]:
    before = {name: environ.get(name) for name in named}
    environ.update(named)
    try:
        yield
    finally:
        for name, value in before.items():
            environ.pop(name) if value is None else environ.update({name: value})


@contextmanager
def to_a_request() -> Iterator[Pair]:
    """Publish a manifest at a random moment of the loop; the goal is two seconds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(seaweedfs_server(folder / "s3"))
        stack.enter_context(_environment(server.env))
        told = stack.enter_context(notifying_bucket(BUCKET))
        named = {"blackboard": f"s3://{BUCKET}/{ROOT}", "s3_endpoint": server.endpoint, "blackboard_queue": told.url}
        (home := folder / "home").mkdir()
        stack.enter_context(at_home(home, **named))
        threads = {"sensors": {"use_threads": True, "num_workers": 8}}
        instance = stack.enter_context(dg.DagsterInstance.local_temp(str(home), overrides=threads))
        daemon = Daemon(Harness(definitions(), instance), told)
        stack.callback(_started(daemon.run, daemon.over))
        dice = Random(1)  # noqa: S311
        # The tick that requested a run ends first: start the next round when the loop is idle.
        yield Pair(daemon.knock, lambda: sleep(2), lambda: sleep(DAEMON_SECONDS * (1 + dice.random())))


def _started(run: Callable[[], None], over: Event) -> Callable[[], None]:
    """Start a thread; return a function that ends it."""
    thread = Thread(target=run, daemon=True)
    thread.start()

    def end() -> None:
        over.set()
        thread.join()

    return end


BENCHMARKS = [
    Benchmark(
        "notified",
        "a manifest on S3, told of through SQS (moto), to the run that a tick requests",
        "two seconds",
        Goal(1),
        100,
        10,
        to_a_request,
        tail=95,
    )
]
