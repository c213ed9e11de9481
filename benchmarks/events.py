"""What is new in a table of events: what it costs must not depend on the history, next to the article's own function.

The peer is that of "Data Orchestration via Events" (2024): it judges propagation by counts over the whole table.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import polars as pl
import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair, at_home
from benchmarks.histories import NEW, TABLES, fill_events, fill_team, moment, written
from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset, with_automation
from feed_assets.core.events import WriteEvent, encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Consumer, Due
from feed_assets.ledger import events, inbox
from feed_assets.ledger.database import Ledger, open_ledger, put_cursor
from feed_assets.ledger.due import Due as Item
from feed_assets.ledger.tables import due, event, marker
from feed_assets.ledger.tables import inbox as inbox_table
from feed_assets.runs.workbench import open_board
from feed_assets.settings import settings
from feed_assets.sources.outlets import SqlOutlet
from feed_assets.testing import Harness
from feed_assets_tests.servers import postgresql_server

NOW = datetime.now(UTC)
REPORT = Feed.parse("b/report/v1.0")
PIPELINES = {f"p{number}": TABLES[5 * number : 5 * number + 5] for number in range(len(TABLES) // 5)}
MINE = PIPELINES["p0"] + PIPELINES["p1"]
CONSUMER = Consumer(
    REPORT,
    frozenset(map(Feed.parse, MINE)),
    {name: frozenset(map(Feed.parse, tables)) for name, tables in PIPELINES.items()},
)
COMPLETE = 199
"""Updates among the new events that have reached all of their pipeline's tables."""
SMALL, MILLION = 10_000, 1_000_000
BATCHES = 10

Databases = Callable[[], str]
"""Makes an empty database; its SQLAlchemy URL."""


@contextmanager
def sqlite() -> Iterator[Databases]:
    """Databases in files of their own."""
    with TemporaryDirectory() as folder:
        numbers = count()
        yield lambda: f"sqlite:///{Path(folder) / f'{next(numbers)}.db'}"


@contextmanager
def postgresql() -> Iterator[Databases]:
    """Databases of one server."""
    with postgresql_server() as server:
        yield server.database


@dataclass
class World:
    """A ledger with so many events, all consumed, and 1,000 new ones for one consumer, of 10 tables of 200."""

    url: str
    known: int

    def __post_init__(self) -> None:
        fill_events(self.ledger.engine, self.known)
        with self.ledger.write() as connection:
            last = [(feed, encode(moment(self.known - len(TABLES) + at))) for at, feed in enumerate(MINE)]
            connection.execute(sa.insert(marker), [_consumed(feed, upto) for feed, upto in last])

    @property
    def ledger(self) -> Ledger:
        """Open since it was made."""
        return open_ledger(self.url)

    def publish(self) -> None:
        """Record the new events."""
        with self.ledger.write() as connection:
            events.record(connection, "team", written(self.known, MINE), NOW, refuse_out_of_order=False)

    def forget(self) -> None:
        """Take back that they were delivered in the round before."""
        with self.ledger.write() as connection:
            connection.execute(sa.delete(inbox_table))
            connection.execute(sa.delete(due))
            for feed in MINE:
                put_cursor(connection, f"events of {feed} to {REPORT}", str(self.known))

    def due(self) -> Due:
        """Deliver what is new, and judge it."""
        with self.ledger.read() as connection:
            upto = events.last_sequence(connection)
        for feed in MINE:
            while not inbox.deliver(self.ledger, REPORT, Feed.parse(feed), _report, upto, NOW):
                pass
        with self.ledger.read() as connection:
            found = inbox.due_of(connection, CONSUMER)[""]
        _check(self.known, len(found.correlations))
        return found

    def frame(self) -> pl.DataFrame:
        """The whole table of events, as who polls it reads it: the columns that the article's function needs."""
        query = sa.select(event.c.feed.label("table_name"), event.c.marker, event.c.correlation.label("correlation_id"))
        with self.ledger.read() as connection:
            return pl.read_database(query, connection)

    def trigger(self, frame: pl.DataFrame) -> None:
        """The article's answer over a frame."""
        found = is_time_to_trigger(frame, encode(moment(self.known - 1)), MINE)
        _check(self.known, found["correlation_id"].n_unique())


def _consumed(feed: str, upto: str) -> dict[str, Any]:
    key = {"feed": str(REPORT), "partition": "", "input_feed": feed, "input_partition": ""}
    return {**key, "marker": upto, "event_marker": upto, "at": NOW}


def _report(place: Partition, number: int) -> list[Item]:  # noqa: ARG001
    return [Item(REPORT, Partition(REPORT), number)]


def _check(known: int, complete: int) -> None:
    if complete != COMPLETE:
        raise RuntimeError(f"{known} known: {complete} updates are complete, expected {COMPLETE}.")


TABLE_TO_PIPELINE = pl.DataFrame(
    [(table, name) for name, tables in PIPELINES.items() for table in tables], ["table_name", "pipeline"], orient="row"
)


def keep_only_complete_propagation(frame: pl.DataFrame) -> pl.DataFrame:
    """As the article has it: complete is what has as many events as its pipeline's longest update."""
    return (
        frame.join(TABLE_TO_PIPELINE, on="table_name", how="left")
        .with_columns(pl.len().over(["correlation_id", "pipeline"]).alias("count"))
        .with_columns(pl.max("count").over("pipeline").alias("max"))
        .filter(pl.col("count") == pl.col("max"))
        .drop("pipeline", "count", "max")
    )


def is_time_to_trigger(frame: pl.DataFrame, last_marker: str, dependencies: list[str]) -> pl.DataFrame:
    """As the article has it, and the events themselves in place of whether there are any.

    The marker comes last: among what is new alone, an update that is partial may be the longest of its pipeline.
    """
    frame = frame.filter(pl.col("table_name").is_in(dependencies))
    return keep_only_complete_propagation(frame).filter(pl.col("marker") > last_marker)


@dataclass
class Tick:
    """A world whose new events stand in another team's table, with that table's whole history, and a sensor for it."""

    folder: Path
    world: World
    team: str
    harness: Harness
    cursor: str = field(init=False)

    def __post_init__(self) -> None:
        engine = sa.create_engine(self.team)
        SqlOutlet(self.team, "events").publish([])
        fill_team(engine, self.world.known - 1, self.world.known)
        self.cursor = self._position()
        fill_team(engine, 0, self.world.known - 1)
        SqlOutlet(self.team, "events").publish([(0, each) for each in written(self.world.known, MINE)])
        engine.dispose()

    def _position(self) -> str:
        """Where reading goes on after the last known event: told by the reader while there is no other."""
        with at_home(self.folder):
            (part,) = source(self.team).parts
            return part.reader(open_board(settings())).read(None, 1).position or ""

    def forget(self) -> None:
        """Take back what the ledger has learnt in the round before."""
        self.world.forget()
        with self.world.ledger.write() as connection:
            connection.execute(sa.delete(event).where(event.c.sequence > self.world.known))
            put_cursor(connection, "read team/0", self.cursor)

    def tick(self) -> None:
        """One evaluation of the sensor, which must ask for one run that takes all that is complete."""
        with at_home(self.folder, ledger=self.world.url):
            asked = self.harness.ask(f"{self.world.known}/0", "events_team")
        took = [each.tags["feed_assets/correlation"] for each in asked.requests]
        if len(took) != 1 or f"and {COMPLETE - 3} more" not in took[0]:
            raise RuntimeError(f"{self.world.known} known: runs are requested for {took}, expected one for {COMPLETE}.")


def source(url: str) -> EventSource:
    """The team's table as an event source."""
    return EventSource("team", (SqlTable(url, "events", "id"),))


def definitions(url: str) -> dg.Definitions:
    """The team's tables and one dataset made from a few of them, never run here."""
    tables = {name: event_table(name, source=source(url)) for name in TABLES}
    inputs = dict(zip("abcdefghij", [tables[name] for name in MINE], strict=True))

    @feed_asset(str(REPORT), inputs=inputs, by_events=ByEvents(pipelines=PIPELINES))
    def report(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> Any:
        """Never run here."""
        return a, b, c, d, e, f, g, h, i, j

    return with_automation(dg.Definitions(assets=[*tables.values(), report]))


@contextmanager
def due_with(databases: Databases, known: int) -> Iterator[Pair]:
    """What is due with so many events known, against 10,000."""
    large, small = worlds = [_published(databases(), count) for count in (known, SMALL)]
    yield Pair(large.due, small.due, lambda: [world.forget() for world in worlds])


def _published(url: str, known: int) -> World:
    world = World(url, known)
    world.publish()
    return world


@contextmanager
def due_and_polars(databases: Databases, *, in_memory: bool) -> Iterator[Pair]:
    """What is due with a million events known, against the article's function, with or without its read."""
    world = _published(databases(), MILLION)
    frame = world.frame()
    yield Pair(world.due, lambda: world.trigger(frame if in_memory else world.frame()), world.forget)


@contextmanager
def tick_with(databases: Databases, known: int) -> Iterator[Pair]:
    """A tick of the source's sensor with so many events known, against 10,000."""
    with ExitStack() as stack:
        ticks: list[Tick] = []
        for count in (known, SMALL):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            instance = stack.enter_context(dg.DagsterInstance.local_temp(str(folder)))
            team = databases()
            harness = Harness(definitions(team), instance)
            ticks.append(Tick(folder, World(databases(), count), team, harness))
        yield Pair(ticks[0].tick, ticks[1].tick, lambda: [each.forget() for each in ticks])


@contextmanager
def record_with(databases: Databases) -> Iterator[Pair]:
    """Batches of 1,000 events recorded, against the same rows inserted as they are: ten transactions of each."""
    ours, bare = World(databases(), SMALL), World(databases(), SMALL)
    numbers = count(SMALL, NEW)
    batches: list[list[WriteEvent]] = []
    rows: list[list[dict[str, Any]]] = []

    def write() -> None:
        batches[:] = [written(next(numbers), TABLES) for _ in range(BATCHES)]
        rows[:] = [[_row(each) for each in batch] for batch in batches]

    def record() -> None:
        for batch in batches:
            with ours.ledger.write() as connection:
                events.record(connection, "team", batch, NOW, refuse_out_of_order=False)

    def insert() -> None:
        for each in rows:
            with bare.ledger.write() as connection:
                connection.execute(sa.insert(event), each)

    yield Pair(record, insert, write)


def _row(new: WriteEvent) -> dict[str, Any]:
    at = encode(new.marker)
    key = {"source": "team", "feed": new.table_name, "partition": new.partition_key, "correlation": new.correlation_id}
    told = {"operation": new.write_operation.value, "context": json.dumps(dict(new.context)), "flag": None, "at": NOW}
    return {**key, **told, "marker": at, "previous": at, "event_marker": encode(new.event_marker)}


def _on(suffix: str, where: str, opened: Callable[[], AbstractContextManager[Databases]]) -> list[Benchmark]:
    """The cases on one kind of database."""

    def of(make: Callable[..., AbstractContextManager[Pair]], **options: Any) -> Callable[[], Any]:
        @contextmanager
        def prepared() -> Iterator[Pair]:
            with opened() as databases, make(databases, **options) as pair:
                yield pair

        return prepared

    small, polars = "the same with 10,000 known", "the article's function in Polars"
    sizes = (("", MILLION, "1 million"), ("-10m", 10 * MILLION, "10 million"))
    grown = [
        Benchmark(
            f"{name}{size}{suffix}",
            f"{what}, {words} known{where}",
            small,
            Goal(1.5),
            15,
            5,
            of(make, known=known),
            known > MILLION,
        )
        for name, make, what in (
            ("due", due_with, "1,000 new events delivered and judged"),
            ("event-tick", tick_with, "a tick that reads 1,000 new events"),
        )
        for size, known, words in sizes
    ]
    peers = [
        Benchmark(
            f"due-{name}{suffix}",
            f"1,000 of a million events judged{where}",
            f"{polars}{what}",
            Goal(0.05),
            7,
            3,
            of(due_and_polars, in_memory=in_memory),
        )
        for name, in_memory, what in (
            ("polars", False, ", which reads the table"),
            ("frame", True, ", the table in memory"),
        )
    ]
    bare = Benchmark(
        f"record{suffix}",
        f"10 times 1,000 events recorded{where}",
        "a bare batched insert of the same rows",
        Goal(2),
        20,
        7,
        of(record_with),
    )
    return [*grown, *peers, bare]


BENCHMARKS = [*_on("", "", sqlite), *_on("-pg", ", on PostgreSQL", postgresql)]
