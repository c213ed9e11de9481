"""Copies of updates into a second folder, against a bare copy of the same files, and against one with checksums."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from hashlib import file_digest
from itertools import count
from os import urandom
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import Benchmark, Goal, Pair, at_home
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.setting_types import DataCenter
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.ledger.database import open_ledger
from feed_assets.replication.places import Place
from feed_assets.replication.replicator import replicate
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.settings import settings

FEED = Feed.parse("shop/sales/v1.0")
LARGE, FILES = 32 << 20, 8
UPDATES, SMALL = 100, 10_000


def bare(source: Path, copy: Path) -> None:
    """Copy a file, and read the copy back. Nothing is compared."""
    shutil.copyfile(source, copy)
    copy.read_bytes()


def checked(source: Path, copy: Path) -> None:
    """Copy a file, and compare the SHA-256 of both, as `cp` and `sha256sum` do."""
    shutil.copyfile(source, copy)
    digests = set[bytes]()
    for path in (source, copy):
        with path.open("rb") as file:
            digests.add(file_digest(file, "sha256").digest())
    if len(digests) != 1:
        raise RuntimeError(f"{copy} has other bytes than {source}")


def _nothing_made() -> Any:
    raise AssertionError("nothing is made")


@contextmanager
def _copies(updates: int, files: int, size: int, peer: Callable[[Path, Path], None] = bare) -> Iterator[Pair]:
    """Publish updates, and copy them. The peer copies the same files one after the other.

    Each round first removes the files of the round before: memory that a virtual machine never used is slower.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        stack.enter_context(at_home(folder / "home"))
        ledger, source = open_ledger(settings().ledger), open_board(settings())
        stack.callback(ledger.engine.dispose)
        board = Blackboard.open((folder / "b").as_uri(), create=True)
        place = Place("b", DataCenter(url="file:///b", datasets=("*",), keep=1), board)
        parts = {f"part-{number}.parquet": urandom(size) for number in range(files)}
        days, paths = count(), list[Path]()

        def publish() -> None:
            paths.clear()
            for old in (folder / "home" / "blackboard" / "shop", folder / "b" / "shop", folder / "peer"):
                shutil.rmtree(old, ignore_errors=True)
            for _ in range(updates):
                partition, now = Partition(FEED, f"day-{next(days):06}"), datetime.now(UTC)
                update = write.publish(source, partition, parts, now)
                sync(source, ledger, partition, now)
                paths.extend(folder / "home" / "blackboard" / file.key for file in update.files)

        def replicated() -> None:
            result = replicate(Services(source, ledger, _nothing_made), place)
            if (result.done, result.failed) != (updates, 0):
                raise RuntimeError(f"{result}: expected {updates} done.")

        def copied() -> None:
            (folder / "peer").mkdir()
            for number, path in enumerate(paths):
                peer(path, folder / "peer" / str(number))

        yield Pair(replicated, copied, publish)


BENCHMARKS = [
    Benchmark(
        "replicate",
        f"one update of {FILES} files of {LARGE >> 20} MiB copied into another folder, verified",
        "a bare copy that is read back",
        Goal(1.1),
        10,
        3,
        lambda: _copies(1, FILES, LARGE),
    ),
    Benchmark(
        "replicate-checked",
        "the same",
        "a copy, and the SHA-256 of both files",
        Goal(1),
        10,
        3,
        lambda: _copies(1, FILES, LARGE, checked),
    ),
    Benchmark(
        "replicate-small",
        f"{UPDATES} updates of one file of {SMALL // 1000} kB, recorded and in order",
        "a bare copy that is read back",
        Goal(5, "s"),
        10,
        3,
        lambda: _copies(UPDATES, 1, SMALL),
        tail=95,
    ),
]
