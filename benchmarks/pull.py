"""A poll of a partner's files, nearly all of them known, against a bare listing of the same folders."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair, Requests
from feed_assets.core.feeds import Feed, File
from feed_assets.core.pulls import Pull
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.intake.pull import pull
from feed_assets.intake.pull_turns import PullSource
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.tables import intake_file
from feed_assets.runs.services import Services

FEED = Feed.parse("partners/women/v1.0")
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAYS, FILES, NEW = 10, 100_000, 50


def _known(file: File) -> dict[str, object]:
    """Return the registry row of a file that was pulled."""
    batch = f"2026-11-01-00:00/{file.key.rpartition('/')[2]}"
    done = {"time": NOW, "state": "done", "batch": batch, "update_id": "20261101.000000", "at": NOW}
    return {"feed": str(FEED), "name": file.key, "size": file.size, "etag": file.etag, **done}


def _listed(folders: Sequence[Path]) -> int:
    """List names, sizes and times of all files, the least that a poll must read."""
    total = 0
    for folder in folders:
        with os.scandir(folder) as entries:
            total += len(sorted((entry.name, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries))
    return total


class Counted(Blackboard):
    """A blackboard that counts S3 requests: pages of listings, and objects read."""

    pages = objects = 0

    def file_pages(self, begins: str, after: str = "") -> Iterator[tuple[File, ...]]:
        """Count each page of a listing."""
        for page in super().file_pages(begins, after):
            self.pages += 1
            yield page

    def get(self, key: str, limit: int | None = None) -> bytes | None:
        """Count the object, and return its bytes."""
        self.objects += 1
        return super().get(key, limit)

    def stream(self, key: str, start: int = 0) -> tuple[File, Iterator[bytes]] | None:
        """Count the object, and return its chunks."""
        self.objects += 1
        return super().stream(key, start)


class World:
    """A partner with files of ten days, all known to the ledger; each round adds some more."""

    def __init__(self, root: Path) -> None:
        self.theirs = Counted.open((root / "theirs").as_uri(), create=True)
        self.ours = Blackboard.open((root / "ours").as_uri(), create=True)
        self.ledger: Ledger = open_ledger(f"sqlite:///{root / 'ledger.db'}")
        self.folders = [root / "theirs" / f"{NOW - timedelta(days=back):%Y-%m-%d}" / "05" for back in range(DAYS)]
        self.rounds = 0
        source = Pull("women", "%Y-%m-%d/%H/*.csv", lookback=DAYS - 1)
        self.source = PullSource(FEED, source, lambda moment: f"{moment:%Y-%m-%d-%H:%M}")
        self._fill()

    def _fill(self) -> None:
        for folder in self.folders:
            folder.mkdir(parents=True)
            for number in range(FILES // DAYS):
                (folder / f"{number:06}.csv").write_bytes(b"id\n1\n")
        with self.ledger.write() as connection:
            for folder in self.folders:
                files = self.theirs.files(f"{folder.parent.name}/05")
                connection.execute(sa.insert(intake_file), [_known(file) for file in files])

    def add(self) -> None:
        """Add new files, spread over the days."""
        self.rounds += 1
        for number in range(NEW):
            name = f"new-{self.rounds}-{number}.csv"
            (self.folders[number % DAYS] / name).write_bytes(f"id\n{self.rounds}{number}\n".encode())

    def look(self) -> Requests:
        """Pull the new files; raise unless all of them are registered."""
        self.theirs.pages = self.theirs.objects = 0
        services = Services(self.ours, self.ledger, lambda: None, other_boards={"women": self.theirs})
        pull(services, self.source, NOW, lambda: False)
        if (count := self.count()) != FILES + NEW * self.rounds:
            raise AssertionError(f"{count} files are in the registry")
        return Requests(self.theirs.pages, self.theirs.objects)

    def count(self) -> int:
        """Return the number of files in the registry."""
        with self.ledger.read() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(intake_file)).scalar_one()


@contextmanager
def looks() -> Iterator[Pair]:
    """Compare polls, each of which finds new files."""
    with TemporaryDirectory() as root:
        world = World(Path(root))
        yield Pair(case=world.look, floor=lambda: _listed(world.folders), before=world.add)
        world.ledger.engine.dispose()


BENCHMARKS = [
    Benchmark(
        "pull",
        f"CPU of a look at {FILES:,} files of a partner, {NEW} of them new and copied",
        "one bare listing of the same folders",
        Goal(10),
        15,
        3,
        looks,
        clock=process_time,
    )
]
