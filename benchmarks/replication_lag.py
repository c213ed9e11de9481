"""Lag of a data center on an idle link: from a publication until the copy is visible there, in a running service."""

import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import count
from os import urandom
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import sleep

import dagster as dg

from benchmarks import Benchmark, Goal, Pair
from benchmarks.notified import DAEMON_SECONDS
from benchmarks.replications import bare
from benchmarks.service import served, wait_for
from benchmarks.startup import COMMAND
from feed_assets import foreign_feed, with_automation
from feed_assets.cli.processes import free_port
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.sync import sync
from feed_assets.settings import settings

FEED = Feed.parse("shop/sales/v1.0")
BYTES = 10_000


@dg.definitions
def definitions() -> dg.Definitions:
    """Return the code location of the service: one feed that a data center gets."""
    return with_automation(dg.Definitions(assets=[foreign_feed(str(FEED), schema="n int")]))


@contextmanager
def _lag() -> Generator[Pair]:
    """Publish one small update after the other, each at a random moment between two ticks of the daemon.

    The update is in the ledger when it is published, as that of a run is. The floor is a bare copy, read back.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        place = Blackboard.open((folder / "b").as_uri(), create=True)
        centers = json.dumps({"b": {"url": place.url, "datasets": ["shop/*"]}})
        port, content = free_port(), urandom(BYTES)
        command = [COMMAND, "ui", "--port", str(port), "--module", "benchmarks.replication_lag"]
        named = {"data_centers": centers, "spark_remote": "sc://127.0.0.1:1"}  # No run needs Spark.
        _, service = stack.enter_context(served("feed-assets ui", command, port, **named))
        ledger, source = open_ledger(settings().ledger), open_board(settings())
        stack.callback(ledger.engine.dispose)
        days, dice = count(), Random(1)  # noqa: S311  It only spreads moments.

        def published() -> None:
            partition, now = Partition(FEED, f"day-{next(days):06}"), datetime.now(UTC)
            update = write.publish(source, partition, {"part-0.parquet": content}, now)
            sync(source, ledger, partition, now)
            wait_for(lambda: _newest(place, partition) == update.id, service)

        (original := folder / "original").write_bytes(content)
        yield Pair(published, lambda: bare(original, folder / "copy"), lambda: sleep(DAEMON_SECONDS * dice.random()))


def _newest(place: Blackboard, partition: Partition) -> str | None:
    update = read.latest(place, partition).update
    return update.id if update else None


BENCHMARKS = [
    Benchmark(
        "replicate-lag",
        f"one update of {BYTES // 1000} kB from its publication until it is visible in a data center, by a service",
        "a bare copy that is read back",
        Goal(10, "s"),
        200,
        10,
        _lag,
        tail=95,
    )
]
