"""Requests that wait for compute targets: the cost of one more look at the queue."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks import Benchmark, Goal, Pair
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State, Verdict
from feed_assets.core.resources import NOTHING, Amount, Resources
from feed_assets.core.target_room import Room
from feed_assets.ledger import due, resource_queue
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.due import AffectedOutput, DueOutput
from feed_assets.ledger.resource_queue import ResourceRequest, Rooms
from feed_assets.settings import Settings

MADE = Feed.parse("b/made/v1.0")
BEGIN = datetime(2019, 11, 24, tzinfo=UTC)
MAX_REQUESTS = 100
"""Partitions that a tick looks at."""
FULL = {name: Room(Amount(64, 1 << 38), NOTHING) for name in ("etl-a", "etl-b")}


class Waiting:
    """A ledger in which `number` partitions wait for two full targets."""

    def __init__(self, url: str, number: int) -> None:
        self.ledger: Ledger = open_ledger(Settings(ledger=url).ledger)  # pyright: ignore[reportArgumentType]
        self._ticks = count(1)
        self.items: list[DueOutput] = []
        self._tick()
        outputs = [Partition(MADE, f"{each:06}") for each in range(number)]
        with self.ledger.write() as connection:
            due.wake(connection, [AffectedOutput(each, 1, BEGIN) for each in outputs], BEGIN)
        for _ in range(number // MAX_REQUESTS):
            self.look()
            self.claim()

    def look(self) -> None:
        """Read and decide the partitions of one tick, as a tick does before it looks for room."""
        self._tick()
        with self.ledger.read() as connection:
            self.items = due.look(connection, [MADE], self.now, limit=MAX_REQUESTS)
        due.acknowledge(
            self.ledger, [(each, Verdict(each.partition, State.BUILD, "ready")) for each in self.items], self.now
        )

    def claim(self) -> None:
        """Look for room for them. None has any."""
        requests = [ResourceRequest(uuid4().hex, (each,), Resources(), is_history=False) for each in self.items]
        with self.ledger.write() as connection:
            resource_queue.lock(connection)
            still = {*due.still_as_read(connection, self.items)}
            requests = [each for each in requests if each.items[0] in still]
            places = resource_queue.claim(connection, requests, Rooms(frozenset(FULL), lambda _: FULL), self.now)
        if len(places) != MAX_REQUESTS or not all(isinstance(each, str) for each in places.values()):
            raise RuntimeError(f"{len(places)} requests were placed or waited: expected that {MAX_REQUESTS} wait")

    def take(self) -> None:
        """Claim them without targets."""
        with self.ledger.write() as connection:
            due.take(connection, due.still_as_read(connection, self.items), self.now)

    def _tick(self) -> None:
        self.now = BEGIN + next(self._ticks) * timedelta(seconds=1)


@contextmanager
def queue(number: int) -> Iterator[Pair]:
    """Compare a look for room with the claim of as many partitions without targets, in a ledger of the same content."""
    with TemporaryDirectory() as root:
        case, floor = (Waiting(f"sqlite:///{Path(root, name)}", number) for name in ("case.db", "floor.db"))

        def before() -> None:
            case.look()
            floor.look()

        yield Pair(case.claim, floor.take, before)


BENCHMARKS = [
    Benchmark(
        "queue-1000",
        f"{MAX_REQUESTS} of 1,000 waiting partitions look for room on two full targets",
        "the claim of as many without targets",
        Goal(0.5, "s"),
        10,
        3,
        lambda: queue(1_000),
    )
]
