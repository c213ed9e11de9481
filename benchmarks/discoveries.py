"""Calls of the store by an idle tick's discovery of a foreign feed, by one and by two code locations on one ledger."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from benchmarks import Benchmark, Goal, Pair, Requests
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.discover import discover
from feed_assets.runs.services import Services
from feed_assets.settings import Settings
from feed_assets_tests.support.counted_blackboards import with_operations

RAW, HOURS = Feed.parse("b/raw/v1.0"), 13
FIRST, TICK = datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=5)


@dataclass
class Idle:
    """A feed of 13 known hours on local disk, and the ticks of code locations, which find nothing new."""

    folder: Path
    now: datetime = FIRST
    board: Blackboard = field(init=False)

    def __post_init__(self) -> None:
        self.board = Blackboard.open((self.folder / "blackboard").as_uri(), create=True)
        url = f"sqlite:///{self.folder / 'ledger.db'}"
        self.ledger = open_ledger(Settings(ledger=url).ledger)  # pyright: ignore[reportArgumentType]
        for number in range(HOURS):
            key = f"{FIRST + number * timedelta(hours=1):%Y-%m-%d-%H:%M}"
            write.publish(self.board, Partition(RAW, key), {"part-1": b"1"}, FIRST)
        self.tick("ads/made")

    def tick(self, *locations: str) -> Requests:
        """Discover once for each code location. Return the calls of the store."""
        self.now += TICK
        board, operations = with_operations(self.board)
        services = Services(board, self.ledger, _no_maker, lambda: self.now)
        for location in locations:
            discover(services, [RAW], lambda: False, location=location)
        words = [action.split()[0] for action in operations]
        return Requests(words.count("list"), words.count("read"))

    def list_once(self) -> None:
        """List the feed's files: the least work that could find a change."""
        self.board.files(str(RAW))


def _no_maker() -> NoReturn:
    raise RuntimeError("discovery makes nothing")


@contextmanager
def idle(*locations: str, is_bare: bool) -> Iterator[Pair]:
    """Compare the discoveries of code locations with that of one, or with a bare listing."""
    with TemporaryDirectory() as root:
        world = Idle(Path(root))
        yield Pair(lambda: world.tick(*locations), world.list_once if is_bare else lambda: world.tick(locations[0]))


BENCHMARKS = [
    Benchmark(
        "discovery",
        "an idle tick's discovery of 13 known hours, local disk",
        "one listing of their files",
        Goal(10),
        200,
        50,
        lambda: idle("ads/made", is_bare=True),
    ),
    Benchmark(
        "discovery-two",
        "the same by the ticks of two code locations on one ledger",
        "the tick of one",
        Goal(1.5),
        200,
        50,
        lambda: idle("ads/made", "shop/made", is_bare=False),
    ),
]
