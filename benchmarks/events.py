"""New events in a table: the cost must not depend on the history, and is compared with the article's way."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair
from benchmarks.event_worlds import NOW, Tick, World, definitions
from benchmarks.histories import NEW, TABLES, written
from feed_assets.core.events import WriteEvent, encode
from feed_assets.ledger import event_store
from feed_assets.ledger.tables import event
from feed_assets.testing import Harness
from feed_assets_tests.support.servers import postgresql_server

SMALL, MILLION, TEN_MILLION = 10_000, 1_000_000, 10_000_000
BATCHES = 10

Databases = Callable[[], str]
"""Function that creates an empty database and returns its SQLAlchemy URL."""


@contextmanager
def sqlite() -> Iterator[Databases]:
    """Provide databases in separate files."""
    with TemporaryDirectory() as folder:
        numbers = count()
        yield lambda: f"sqlite:///{Path(folder) / f'{next(numbers)}.db'}"


@contextmanager
def postgresql() -> Iterator[Databases]:
    """Provide databases of one server."""
    with postgresql_server() as server:
        yield server.database


@contextmanager
def due_with(databases: Databases, known: int) -> Iterator[Pair]:
    """Compare the judging of new events with `known` events in the ledger and with 10,000."""
    large, small = worlds = [_published(databases(), size) for size in (known, SMALL)]
    yield Pair(large.due, small.due, lambda: [world.forget() for world in worlds])


def _published(url: str, known: int) -> World:
    world = World(url, known)
    world.publish()
    return world


@contextmanager
def polars_with(databases: Databases, in_memory: bool) -> Iterator[Pair]:
    """Compare the judging with a million events known and the article's function, with or without its read."""
    world = _published(databases(), MILLION)
    frame = world.frame()
    yield Pair(world.due, lambda: world.trigger(frame if in_memory else world.frame()), world.forget)


@contextmanager
def tick_with(databases: Databases, known: int) -> Iterator[Pair]:
    """Compare a tick of the source's sensor with `known` events and with 10,000."""
    with ExitStack() as stack:
        ticks: list[Tick] = []
        for size in (known, SMALL):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            instance = stack.enter_context(dg.DagsterInstance.local_temp(str(folder)))
            team = databases()
            harness = Harness(definitions(team), instance, sources={"team": team})
            ticks.append(Tick(folder, World(databases(), size), team, harness))
        yield Pair(ticks[0].tick, ticks[1].tick, lambda: [each.forget() for each in ticks])


@contextmanager
def record_with(databases: Databases) -> Iterator[Pair]:
    """Compare recording batches of 1,000 events with bare inserts of the same rows, ten transactions each."""
    ours, bare = World(databases(), SMALL), World(databases(), SMALL)
    numbers, sequences = count(SMALL, NEW), count(SMALL + 1)
    batches: list[list[WriteEvent]] = []
    rows: list[list[dict[str, Any]]] = []

    def write() -> None:
        batches[:] = [written(next(numbers), TABLES) for _ in range(BATCHES)]
        rows[:] = [[_row(each, next(sequences)) for each in batch] for batch in batches]

    def record() -> None:
        for batch in batches:
            with ours.ledger.change() as connection:
                event_store.record(connection, "team", batch, NOW, refuse_out_of_order=False)

    def insert() -> None:
        for each in rows:
            with bare.ledger.write() as connection:
                connection.execute(sa.insert(event), each)

    yield Pair(record, insert, write)


def _row(new: WriteEvent, sequence: int) -> dict[str, Any]:
    at = encode(new.marker)
    key = {"source": "team", "feed": new.table_name, "partition": new.partition_key, "correlation": new.correlation_id}
    values = {"operation": new.write_operation.value, "context": json.dumps(dict(new.context)), "flag": None, "at": NOW}
    markers = {"marker": at, "previous": at, "start": at, "event_marker": encode(new.event_marker)}
    return {"sequence": sequence, **key, **values, **markers}


def _on(suffix: str, where: str, server: Callable[[], AbstractContextManager[Databases]]) -> list[Benchmark]:
    """Return the cases for one kind of database."""

    def case(name: str, what: str, floor: str, goal: float, rounds: tuple[int, int], *made: Any) -> Benchmark:
        return Benchmark(f"{name}{suffix}", f"{what}{where}", floor, Goal(goal), *rounds, lambda: opened(server, *made))

    judged, ticked = "1,000 new events delivered and judged", "a tick that reads 1,000 new events"
    few, article = "10,000 known", "the article's function in Polars"
    return [
        case("due", f"{judged}, 1 million known", few, 1.5, (15, 5), due_with, MILLION),
        case("event-tick", f"{ticked}, 1 million known", few, 1.5, (15, 5), tick_with, MILLION),
        replace(case("due-10m", f"{judged}, 10 million known", few, 1.5, (15, 5), due_with, 10 * MILLION), large=True),
        replace(
            case("event-tick-10m", f"{ticked}, 10 million", few, 1.5, (15, 5), tick_with, 10 * MILLION), large=True
        ),
        case("due-polars", f"{judged} among 1 million", f"{article}, with its read", 0.05, (7, 3), polars_with, False),
        case("due-frame", f"{judged} among 1 million", f"{article}, in memory", 0.05, (7, 3), polars_with, True),
        case("record", "10 times 1,000 events recorded", "a bare batched insert", 2, (20, 7), record_with),
    ]


@contextmanager
def opened(
    server: Callable[[], AbstractContextManager[Databases]],
    make: Callable[..., AbstractContextManager[Pair]],
    *options: Any,
) -> Iterator[Pair]:
    """Open the databases, and make the pair on them."""
    with server() as databases, make(databases, *options) as pair:
        yield pair


BENCHMARKS = [*_on("", "", sqlite), *_on("-pg", ", on PostgreSQL", postgresql)]
