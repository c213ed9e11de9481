"""Worlds of events: a ledger with a history of them and 1,000 new ones, and another team's table beside it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import sqlalchemy as sa

from benchmarks import at_home
from benchmarks.article import is_time_to_trigger
from benchmarks.histories import PIPELINES, TABLES, fill_events, fill_team, moment, written
from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset, with_automation
from feed_assets.core import propagation
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Consumer, Due
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import event_store, inbox
from feed_assets.ledger.database import Ledger, open_ledger, put_cursors
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets.ledger.tables import change, due, event, marker, subscription
from feed_assets.ledger.tables import inbox as inbox_table
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink
from feed_assets.testing import Harness

NOW = datetime.now(UTC)
REPORT = Feed.parse("b/report/v1.0")
MINE = PIPELINES["p0"] + PIPELINES["p1"]
CONSUMER = Consumer(
    REPORT,
    frozenset(map(Feed.parse, MINE)),
    {name: frozenset(map(Feed.parse, tables)) for name, tables in PIPELINES.items()},
)
WHOLE = Partition(REPORT)
AFFECTED = Affected([(WHOLE, NOW)], takes_events=True)
COMPLETE = 199
"""Updates among the new events that have reached all of their pipeline's tables."""


@dataclass
class World:
    """A ledger with `known` events, all consumed, and 1,000 new ones for a consumer of 10 of the 200 tables."""

    url: str
    known: int

    def __post_init__(self) -> None:
        fill_events(self.ledger.engine, self.known)
        with self.ledger.write() as connection:
            last = [(feed, encode(moment(self.known - len(TABLES) + at))) for at, feed in enumerate(MINE)]
            connection.execute(sa.insert(marker), [_consumed(feed, upto) for feed, upto in last])

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, opened."""
        return open_ledger(self.url)

    def publish(self) -> None:
        """Record the new events."""
        with self.ledger.change() as connection:
            event_store.record(connection, "team", written(self.known, MINE), NOW, refuse_out_of_order=False)

    def forget(self) -> None:
        """Undo the deliveries of the previous round."""
        with self.ledger.write() as connection:
            connection.execute(sa.delete(inbox_table))
            connection.execute(sa.delete(due))
            rows = [{"subscriber": str(REPORT), "feed": feed, "position": self.known} for feed in MINE]
            connection.execute(sa.delete(subscription))
            connection.execute(sa.insert(subscription), rows)

    def due(self) -> Due:
        """Deliver the new events, and judge them."""
        edges = [(str(REPORT), feed) for feed in MINE]
        fan_out(self.ledger, edges, lambda _consumer, _changed: AFFECTED, NOW, lambda: False)
        with self.ledger.read() as connection:
            waiting = inbox.waiting(connection, [WHOLE])
            seen = inbox.seen_by(connection, [CONSUMER], waiting)[REPORT]
        found = propagation.due(CONSUMER, waiting[WHOLE], seen)
        _check(self.known, len(found.correlations))
        return found

    def frame(self) -> pl.DataFrame:
        """Read the table of events with the columns that the article's function needs, as a polling reader does."""
        query = sa.select(event.c.feed.label("table_name"), event.c.marker, event.c.correlation.label("correlation_id"))
        with self.ledger.read() as connection:
            return pl.read_database(query, connection)

    def trigger(self, frame: pl.DataFrame) -> None:
        """Apply the article's function to a frame."""
        found = is_time_to_trigger(frame, encode(moment(self.known - 1)), MINE)
        _check(self.known, found["correlation_id"].n_unique())


def _consumed(feed: str, upto: str) -> dict[str, Any]:
    key = {"feed": str(REPORT), "partition": "", "input_feed": feed, "input_partition": ""}
    return {**key, "marker": upto, "event_marker": upto, "at": NOW}


def _check(known: int, complete: int) -> None:
    if complete != COMPLETE:
        raise RuntimeError(f"{known} known: {complete} updates are complete, expected {COMPLETE}.")


@dataclass
class Tick:
    """A world whose new events stand in another team's table, with all its history, and a sensor that reads it."""

    folder: Path
    world: World
    team: str
    harness: Harness
    cursor: str = field(init=False)

    def __post_init__(self) -> None:
        engine = sa.create_engine(self.team)
        SqlSink(self.team, "events").publish([])
        fill_team(engine, self.world.known - 1, self.world.known)
        self.cursor = self._position()
        fill_team(engine, 0, self.world.known - 1)
        SqlSink(self.team, "events").publish([(0, each) for each in written(self.world.known, MINE)])
        engine.dispose()

    def _position(self) -> str:
        """Return the position after the last known event; only the reader can tell it."""
        with at_home(self.folder):
            (part,) = source(self.team).parts
            return part.reader(lambda _: open_board(settings())).read(None, 1).position or ""

    def forget(self) -> None:
        """Undo the changes to the ledger of the previous round."""
        self.world.forget()
        with self.world.ledger.write() as connection:
            for table in (event, change):
                connection.execute(sa.delete(table).where(table.c.sequence > self.world.known))
            put_cursors(connection, {"read team/0": self.cursor})

    def tick(self) -> None:
        """Evaluate the sensor once; raise unless it requests one run for all complete updates."""
        with at_home(self.folder, ledger=self.world.url):
            asked = self.harness.ask(f"log:{self.world.known}/0", "events_team")
        took = [each.tags["feed_assets/correlation"] for each in asked.requests]
        if len(took) != 1 or f"and {COMPLETE - 3} more" not in took[0]:
            raise RuntimeError(f"{self.world.known} known: runs are requested for {took}, expected one for {COMPLETE}.")


def source(url: str) -> EventSource:
    """Return the team's table as an event source."""
    return EventSource("team", (SqlTable(url, "events", "id"),))


def definitions(url: str) -> dg.Definitions:
    """Define the team's tables and one dataset made from a few of them, which never runs."""
    tables = {name: event_table(name, source=source(url)) for name in TABLES}
    inputs = dict(zip("abcdefghij", [tables[name] for name in MINE], strict=True))

    @feed_asset(str(REPORT), inputs=inputs, by_events=ByEvents(pipelines=PIPELINES))
    def report(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any, j: Any) -> Any:
        """Stand for a transform that never runs."""
        return a, b, c, d, e, f, g, h, i, j

    return with_automation(dg.Definitions(assets=[*tables.values(), report]))
