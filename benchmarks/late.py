"""100 hourly sources, some of which grow late: the cost of weighing depends on the changes, not on the history."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import dagster as dg
import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair
from feed_assets import Late, feed_asset, foreign_feed, with_automation
from feed_assets.core.feeds import Feed, Partition, update_id
from feed_assets.core.readiness import State
from feed_assets.ledger import log, update_changes, updates
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.tables import change, consumed, due, run, subscription, update
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to
from feed_assets.orchestration.decide.graph import Graph

SOURCES, DAYS, CHANGES = 100, 30, 100
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
NOW = FIRST + timedelta(days=DAYS)
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-02-01-00:00")
LATE = Late("5%", files=3, max_age=timedelta(days=2), cut_off=timedelta(days=7), check="hourly", lookback=48)
READ, BUILT = update_id(NOW - timedelta(hours=5)), update_id(NOW - timedelta(hours=4))


def definitions() -> dg.Definitions:
    """Return all sources, each with an hourly dataset that weighs late data, and their cost of a run."""
    return with_automation(dg.Definitions(assets=[each for number in range(SOURCES) for each in _pair(number)]))


def _pair(number: int) -> list[Any]:
    raw = foreign_feed(f"b/raw{number:03d}/v1.0", partitions_def=HOURS, schema="n int")
    late = Late(**{**vars(LATE), "value_per_gb": 10.0**9})

    @feed_asset(f"b/made{number:03d}/v1.0", partitions_def=HOURS, inputs={"raw": raw}, late=late, code_version="1")
    def made(raw: Any) -> Any:
        """Stand for a transform that never runs."""
        return raw

    return [raw, made]


def _feed(kind: str, number: int) -> str:
    return f"b/{kind}{number:03d}/v1.0"


@dataclass
class World:
    """A ledger in which some days of all sources are built; in each round an hour of each source grows."""

    url: str
    days: int
    graph: Graph = field(default_factory=lambda: Graph(definitions().resolve_asset_graph()))
    rounds: int = 0

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, opened."""
        return open_ledger(self.url)

    def fill(self) -> "World":
        """Write the rows that as many updates and runs would have left."""
        hours = [f"{NOW - timedelta(hours=back):%Y-%m-%d-%H:%M}" for back in range(1, 24 * self.days + 1)]
        with self.ledger.change() as connection:
            for number in range(SOURCES):
                self._fill(connection, number, hours)
            last = log.last(connection)
            connection.execute(sa.insert(subscription), self._heard(last))
        return self

    def _fill(self, connection: sa.Connection, number: int, hours: Sequence[str]) -> None:
        first = log.last(connection) + 1
        kinds = {"raw": READ, "made": BUILT}
        rows = [
            {"feed": _feed(kind, number), "partition": hour, "id": kinds[kind], "changed": first + at}
            for at, (kind, hour) in enumerate(product(kinds, hours))
        ]
        same = {"state": "published", "size": 1000, "files": 1, "at": NOW, "version": "1"}
        made = [{**row, **same, "origin": "run", "run": f"{row['feed']} {row['partition']}"} for row in rows]
        connection.execute(sa.insert(update), made)
        logged = {"kind": "update", "after": "published", "at": NOW}
        connection.execute(sa.insert(change), [_change(row) | logged for row in rows])
        connection.execute(sa.insert(consumed), [_consumed(number, hour) for hour in hours])
        connection.execute(sa.insert(run), [_run(number, at, hour) for at, hour in enumerate(hours)])

    def _heard(self, last: int) -> list[dict[str, object]]:
        edges = [
            (str(node.feed), str(feed)) for node in self.graph.datasets() for feed in self.graph.watched_feeds(node)
        ]
        return [{"subscriber": subscriber, "feed": feed, "position": last} for subscriber, feed in edges]

    def grow(self) -> None:
        """Publish an update of each source's last hour that is a tenth larger than the one read."""
        self.rounds += 1
        hour = f"{NOW - timedelta(hours=1):%Y-%m-%d-%H:%M}"
        came = update_id(NOW - timedelta(hours=3) + timedelta(seconds=self.rounds))
        values = {"version": f"round {self.rounds}", "size": 1100, "files": 2}
        with self.ledger.change() as connection:
            connection.execute(sa.delete(due))
            for number in range(CHANGES):
                at = Partition(Feed.parse(_feed("raw", number)), hour)
                unique = {"correlation": f"{at} {came}"}
                update_changes.insert(connection, at, came, updates.FOREIGN, updates.PUBLISHED, NOW, **values, **unique)

    def weigh(self) -> None:
        """Fan out the changes, and weigh the late data."""
        mine = self.graph.datasets()
        with dg.partition_loading_context(NOW):
            fan_out_to(self.graph, mine, self.ledger, NOW, _never)
            found = decide_due(self.graph, mine, self.ledger, NOW, 10_000, _never).verdicts
        again = [verdict for _, verdict in found if verdict.state is State.REBUILD]
        if len(again) != CHANGES:
            raise RuntimeError(f"{len(again)} are to be built again, expected {CHANGES}: {found[:1]}.")


def _change(row: dict[str, Any]) -> dict[str, object]:
    key = {"sequence": row["changed"], "feed": row["feed"], "partition": row["partition"], "subject": row["id"]}
    return {**key, "before": None, "why": None, "who": None}


def _consumed(number: int, hour: str) -> dict[str, object]:
    made = {"feed": _feed("made", number), "partition": hour, "id": BUILT}
    read = {"input_feed": _feed("raw", number), "input_partition": hour, "position": READ, "version": "1"}
    return {**made, **read, "size": 1000, "files": 1, "is_input": True}


def _run(number: int, at: int, hour: str) -> dict[str, object]:
    output = {"id": f"{_feed('made', number)} {hour}", "feed": _feed("made", number), "partition": hour}
    ended = NOW - timedelta(hours=4) - timedelta(minutes=at)
    ran = {"started": ended - timedelta(seconds=30), "ended": ended}
    return {**output, **ran, "state": "published", "process": "host:1:0.00", "began": 0, "finished": 0}


def _never() -> bool:
    return False


@contextmanager
def _growth() -> Iterator[Pair]:
    """Compare 100 changes after 30 days of history with the same after one."""
    with ExitStack() as stack:
        folders = [Path(stack.enter_context(TemporaryDirectory())) for _ in range(2)]
        worlds = [World(f"sqlite:///{at}/ledger.db", days).fill() for at, days in zip(folders, (DAYS, 1), strict=True)]
        long, short = worlds

        def grow() -> None:
            for world in worlds:
                world.grow()

        yield Pair(long.weigh, short.weigh, grow)
        for world in worlds:
            world.ledger.engine.dispose()


BENCHMARKS = [
    Benchmark(
        "late",
        f"{CHANGES} late changes of {SOURCES} sources x {DAYS} days x 24 hours, weighed",
        "the same with one day of history",
        Goal(1.2),
        10,
        3,
        _growth,
        clock=process_time,
    )
]
