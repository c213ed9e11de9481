"""Reading and publishing File Feeds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import Benchmark, Goal, Pair
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import publish

PARTITION = Partition(Feed.parse("a/b/v1.0"), "2019-11-24")


def write_updates(folder: Path, count: int) -> None:
    """Write `count` valid updates of one part each."""
    start = datetime(2019, 11, 25, tzinfo=UTC)
    for number in range(count):
        update = folder / update_id(start + timedelta(seconds=number))
        update.mkdir(parents=True)
        (update / "part-0.csv").write_bytes(b"a\n1\n")
        (update / "_SUCCESS").write_bytes(b"1")


def newest_folder(folder: Path) -> str:
    """Return the last folder of one directory listing, whatever it contains."""
    with os.scandir(folder) as entries:
        return max(entry.name for entry in entries if entry.is_dir())


@contextmanager
def latest_of(count: int) -> Iterator[Pair]:
    """Read the latest valid update of a partition with `count` updates, on a local blackboard."""
    with TemporaryDirectory() as root:
        folder = Path(root) / PARTITION.path
        write_updates(folder, count)
        board = Blackboard.open(Path(root).as_uri())
        yield Pair(case=lambda: read.latest(board, PARTITION), floor=lambda: newest_folder(folder))


@contextmanager
def published(count: int) -> Iterator[Pair]:
    """Publish `count` small updates, each into a partition of its own, on a local blackboard."""
    with TemporaryDirectory() as root:
        board, rounds = Blackboard.open(Path(root).as_uri()), iter(range(1_000_000))

        def publish_all() -> None:
            number = next(rounds)
            for part in range(count):
                partition = Partition(PARTITION.feed, f"2019-11-24/{number}-{part}")
                publish(board, partition, {"part-0.csv": b"a\n1\n"}, datetime.now(UTC))

        yield Pair(publish_all, lambda: write_updates(Path(root, f"bare-{next(rounds)}"), count))


LISTING = "one listing of the folder"
BENCHMARKS = [
    Benchmark("latest", "latest valid update of 100,000, local", LISTING, Goal(1.5), 30, 9, lambda: latest_of(100_000)),
    Benchmark("latest-1000", "the same of 1,000", LISTING, Goal(5), 100, 30, lambda: latest_of(1000)),
    Benchmark(
        "publish",
        "100 updates of one small file published, local",
        "the same files written without claims and looks",
        Goal(8),
        20,
        7,
        lambda: published(100),
    ),
]
