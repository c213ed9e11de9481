"""Reading File Feeds."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import Benchmark, Pair
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard

PARTITION = Partition(Feed.parse("a/b/v1.0"), "2019-11-24")


def write_updates(folder: Path, count: int) -> None:
    """As many valid updates of one part each."""
    start = datetime(2019, 11, 25, tzinfo=UTC)
    for number in range(count):
        update = folder / update_id(start + timedelta(seconds=number))
        update.mkdir(parents=True)
        (update / "part-0.csv").write_bytes(b"a\n1\n")
        (update / "_SUCCESS").write_bytes(b"1")


@contextmanager
def latest_of_1000() -> Iterator[Pair]:
    """The latest valid update of a partition with 1,000, on a local blackboard."""
    with TemporaryDirectory() as root:
        folder = Path(root) / PARTITION.path
        write_updates(folder, 1000)
        board = Blackboard.open(Path(root).as_uri())
        pair = Pair(case=lambda: read.latest(board, PARTITION), floor=lambda: max(os.listdir(folder)))  # noqa: PTH208
        yield pair


BENCHMARKS = [Benchmark("latest valid update among 1,000, local", "os.listdir and max", latest_of_1000)]
