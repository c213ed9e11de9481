"""A tick of the sensor with 10 new partitions: the cost must not depend on the number of known ones."""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair, at_home
from benchmarks.dataset_worlds import logged
from feed_assets import feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition, Update, update_id
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import subscriptions
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import consumed, due, update
from feed_assets.orchestration.decide.run_blocks import named_by
from feed_assets.orchestration.ticks.reporter import REPORTED, LogPosition
from feed_assets.settings import settings
from feed_assets.testing import Harness

RAW, MADE = Feed.parse("b/raw/v1.0"), Feed.parse("b/made/v1.0")
FIRST = date(1970, 1, 1)
DAYS = dg.DailyPartitionsDefinition(FIRST.isoformat())
NOW = datetime.now(UTC)
ID = update_id(datetime(2019, 11, 25, tzinfo=UTC))
NEW = 10
FEW = "10 known and 10 new"


def definitions() -> dg.Definitions:
    """Define a foreign feed and one dataset made from it, by day."""
    raw = foreign_feed(str(RAW), partitions_def=DAYS, schema="n int")

    @feed_asset(str(MADE), partitions_def=DAYS, inputs={"raw": raw})
    def made(raw: Any) -> Any:
        """Stand for a transform that never runs."""
        return raw

    return with_automation(dg.Definitions(assets=[raw, made]))


def day(number: int) -> str:
    """Return the partition key of the day with this number."""
    return (FIRST + timedelta(days=number)).isoformat()


@dataclass
class Home:
    """A home whose first `known` days are built and reported; each round the same 10 days are new."""

    folder: Path
    known: int
    harness: Harness
    cursor: str | None = "1"

    def fill(self) -> None:
        """Make the known days in bulk, as they would be after as many runs."""
        with at_home(self.folder):
            self._drop(range(self.known))
            made = self.folder / "blackboard" / MADE.name  # The sensor reads built updates too: use the input's files.
            shutil.copytree(made.with_name("raw"), made, copy_function=os.link)  # Links to folders are not followed.
            board = open_board(settings())
            found = [read.require(read.latest(board, Partition(RAW, day(each)))) for each in range(self.known)]
            with open_ledger(settings().ledger).write() as connection:
                connection.execute(sa.insert(update), [row for at, each in enumerate(found) for row in _rows(at, each)])
                connection.execute(sa.insert(consumed), [_consumed(each) for each in found])
                connection.execute(logged())
                for feed in (RAW, MADE):
                    subscriptions.advance(connection, str(MADE), 2 * self.known, str(feed))
            told = {f"{REPORTED}/feeds": str(LogPosition(2 * self.known))}
            self.harness.instance.daemon_cursor_storage.set_cursor_values(told)

    def _drop(self, numbers: range) -> None:
        for number in numbers:
            folder = self.folder / "blackboard" / Partition(RAW, day(number)).path / ID
            folder.mkdir(parents=True)
            (folder / "part-0.csv").write_bytes(b"n\n1\n")
            (folder / "_SUCCESS").write_bytes(b"1")

    def land(self) -> None:
        """Undo the previous round, and publish its days again."""
        new = range(self.known, self.known + NEW)
        for number in new:
            shutil.rmtree(self.folder / "blackboard" / Partition(RAW, day(number)).path, ignore_errors=True)
        with at_home(self.folder), open_ledger(settings().ledger).write() as connection:
            connection.execute(sa.delete(due))
            connection.execute(sa.delete(update).where(update.c.partition.in_([day(each) for each in new])))
        self._drop(new)

    def tick(self) -> None:
        """Evaluate the sensor once; raise unless it requests each new day."""
        with at_home(self.folder):
            asked = self.harness.ask(self.cursor)
        self.cursor = asked.cursor
        found = [key for each in asked.requests for key in named_by(DAYS, each.tags)]
        if found != [day(each) for each in range(self.known, self.known + NEW)]:
            raise RuntimeError(f"{self.known} known: {found} are requested, expected the {NEW} new days.")


def _rows(at: int, raw: Update) -> list[dict[str, object]]:
    same = {"partition": raw.partition.key, "id": ID, "state": "published", "at": NOW, "files": 1, "size": 4}
    foreign = {"feed": str(RAW), "version": raw.files_digest, "origin": "foreign", "run": None, "changed": 2 * at + 1}
    return [
        {**same, **foreign},
        {**same, "feed": str(MADE), "version": "x", "origin": "run", "run": "x", "changed": 2 * at + 2},
    ]


def _consumed(raw: Update) -> dict[str, object]:
    output = {"feed": str(MADE), "partition": raw.partition.key, "id": ID}
    position = {"input_feed": str(RAW), "input_partition": raw.partition.key, "position": ID}
    return {**output, **position, "version": raw.files_digest, "size": 4, "files": 1, "is_input": True}


@contextmanager
def tick_with(known: int) -> Iterator[Pair]:
    """Compare a tick with `known` days with a tick with 10."""
    made = definitions()
    with ExitStack() as stack:
        homes: list[Home] = []
        for count in (known, 10):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            instance = stack.enter_context(dg.DagsterInstance.local_temp(str(folder)))
            with at_home(folder):  # A Harness refuses the home of the project.
                homes.append(Home(folder, count, Harness(made, instance)))
            homes[-1].fill()

        def land() -> None:
            for home in homes:
                home.land()

        yield Pair(homes[0].tick, homes[1].tick, land)


BENCHMARKS = [
    Benchmark("tick-1000", "tick, 1,000 partitions known and 10 new", FEW, Goal(2), 20, 7, lambda: tick_with(1000)),
    Benchmark("tick-10000", "tick, 10,000 known and 10 new", FEW, Goal(2), 20, 7, lambda: tick_with(10_000)),
]
