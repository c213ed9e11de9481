"""Latency of running services from the last manifest of the inputs to that of the output, against stock Dagster."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from benchmarks import Benchmark, Goal, Pair, at_home
from benchmarks.startup import COMMAND
from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.processes import Started, free_port, group, wait_for_port
from feed_assets.core.feeds import Feed, Partition
from feed_assets.defs.ads.sample import CAMPAIGNS, clicked_csv, days, shown_csv
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish

PATIENCE = 300
"""Seconds until a service must answer, and until an output must exist."""

OUTPUT = Feed.parse("ads/effectiveness/v1.0")
RAW = {"ads/shown_raw/v1.0": shown_csv, "ads/clicked_raw/v1.0": clicked_csv}


def wait_for(what: Callable[[], bool], service: Started) -> None:
    """Check every 20 ms until the condition holds; raise after `PATIENCE` seconds."""
    deadline = monotonic() + PATIENCE
    while not what():
        service.check()
        if monotonic() > deadline:
            raise TimeoutError(f"{service.name}: nothing after {PATIENCE} s. Look at its log.")
        sleep(0.02)


def ours(board: Blackboard, service: Started, day: str, campaign: str) -> None:
    """Publish as two teams, and wait for a valid update of the output."""
    key = f"{day}/{campaign}"
    for feed, content in RAW.items():
        parts = {"part-1.csv": content(day, campaign)}
        publish(board, Partition(Feed.parse(feed), key), parts, datetime.now(UTC))
    wait_for(lambda: read.latest(board, Partition(OUTPUT, key)).update is not None, service)


def theirs(folder: Path, service: Started, day: str, campaign: str) -> None:
    """Write files with a marker as two teams, and wait for Spark's marker beside the output."""
    for dataset, content in {"shown_raw": shown_csv, "clicked_raw": clicked_csv}.items():
        target = folder / "data" / dataset / day / campaign
        target.mkdir(parents=True)
        (target / "part-1.csv").write_bytes(content(day, campaign))
        (target / "_SUCCESS").touch()
    wait_for((folder / "data" / "effectiveness" / day / campaign / "_SUCCESS").exists, service)


STOCK = """
run_coordinator: {module: dagster, class: QueuedRunCoordinator, config: {dequeue_interval_seconds: 1}}
telemetry: {enabled: false}
"""
"""Configuration of stock Dagster, except that its queue is read every second, not every five."""


@contextmanager
def served(
    name: str, command: list[str], port: int, config: str | None = None, **named: str
) -> Iterator[tuple[Path, Started]]:
    """Run a service in a separate home, with the given dagster.yaml or with ours, until the block ends.

    Settings have their defaults, except those named.
    """
    with TemporaryDirectory() as root, at_home(Path(root), **named):
        folder = Path(root)
        if config:
            (folder / "dagster.yaml").write_text(config)
        prepare(folder)
        log = folder / "service.log"
        with group(f"{name} ({log})", command, log) as service:
            wait_for_port(service, port, PATIENCE)
            yield folder, service


@contextmanager
def against_stock() -> Iterator[Pair]:
    """Run both services; one of them works at a time."""
    port, other = free_port(), free_port()
    stock = ["-m", "dagster", "dev", "-h", "127.0.0.1", "-p", str(other), "-m", "benchmarks.stock"]
    with ExitStack() as stack:
        here, us = stack.enter_context(served("feed-assets ui", [COMMAND, "ui", "--port", str(port)], port))
        there, them = stack.enter_context(served("dagster dev", [sys.executable, *stock], other, STOCK))
        board = Blackboard.open((here / "blackboard").as_uri(), create=True)
        partitions = [(day, campaign) for day in days() for campaign in CAMPAIGNS]
        mine, others = iter(partitions), iter(partitions)
        yield Pair(lambda: ours(board, us, *next(mine)), lambda: theirs(there, them, *next(others)))


BENCHMARKS = [
    Benchmark(
        "service",
        "last input's manifest to the output's, three datasets in two levels",
        "stock Dagster: asset, sensor, a process and a Spark session for each step",
        Goal(0.33),
        8,
        3,
        against_stock,
    )
]
