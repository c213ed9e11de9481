"""500 datasets that wait for windows: the cost of 1,000 changes of windows, and the latency until a run request."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dagster as dg
import sqlalchemy as sa

from benchmarks import Benchmark, Goal, Pair, at_home
from benchmarks.events import Databases, postgresql, sqlite
from feed_assets import Completeness, feed_asset, state_table, with_automation
from feed_assets.core.feeds import Feed
from feed_assets.core.reports import Report
from feed_assets.core.windows import HOUR, WindowAddress, window_of
from feed_assets.ledger import log
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.log import Change
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.tables import due, subscription, window
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.testing import Harness

COUNT = 500
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00", end_date="2026-02-01-00:00")
NOW = datetime(2026, 2, 1, tzinfo=UTC)
CHANGED = 2
"""Hours of each table that change in a round."""


def table(number: int) -> str:
    """Return the name of a state table."""
    return f"b/table{number:03d}"


def definitions() -> dg.Definitions:
    """Return all tables, each with an hourly dataset."""
    return with_automation(dg.Definitions(assets=[each for number in range(COUNT) for each in _pair(number)]))


def _pair(number: int) -> list[Any]:
    read = state_table(table(number), partitions_def=HOURS, completeness=Completeness(tiers=("kafka",)))

    @feed_asset(f"b/made{number:03d}/v1.0", partitions_def=HOURS, inputs={"rows": read}, code_version="1")
    def made(rows: Any) -> Any:
        """Stand for a transform that never runs."""
        return rows

    return [read, made]


@dataclass
class World:
    """A ledger in which some hours of all tables are known, and complete."""

    url: str
    hours: int
    graph: Graph = field(default_factory=lambda: Graph(definitions().resolve_asset_graph()))

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, opened."""
        return open_ledger(self.url)

    def fill(self) -> "World":
        """Write the rows that as many reports would have left, with their changes."""
        with self.ledger.change() as connection:
            connection.execute(sa.text("INSERT INTO dataset (name, at) VALUES (:name, :at)"), self._datasets())
        for start in range(self.hours):
            self._cross(range(start, start + 1), is_new=True)
        with self.ledger.change() as connection:
            connection.execute(sa.insert(subscription), self._heard(log.last(connection)))
        return self

    def _heard(self, last: int) -> list[dict[str, object]]:
        """Return the subscriptions of each dataset: its table and itself."""
        edges = [
            (str(node.feed), str(feed)) for node in self.graph.datasets() for feed in self.graph.watched_feeds(node)
        ]
        return [{"subscriber": subscriber, "feed": feed, "position": last} for subscriber, feed in edges]

    def _datasets(self) -> list[dict[str, object]]:
        return [{"name": table(number), "at": NOW} for number in range(COUNT)]

    def change(self) -> None:
        """Log a change of the newest hours of each table; they are complete before and after."""
        with self.ledger.write() as connection:
            connection.execute(sa.delete(due))
        self._cross(range(self.hours - CHANGED, self.hours), is_new=False)

    def _cross(self, hours: range, *, is_new: bool) -> None:
        at = [window_of(HOUR, FIRST + timedelta(hours=hour)) for hour in hours]
        addresses = [WindowAddress(Feed.parse(table(each)), "", HOUR, one.key) for each in range(COUNT) for one in at]
        with self.ledger.change() as connection:
            changes = [Change(each.partition, log.WINDOW, HOUR, NOW, "open", "complete") for each in addresses]
            first = log.append(connection, changes)
            if is_new:
                rows = [_row(each, number) for number, each in enumerate(addresses, first)]
                connection.execute(sa.insert(window), rows)

    def decide(self) -> None:
        """Fan out the changes, and decide about each output that waits for one of the windows."""
        mine = self.graph.datasets()
        with dg.partition_loading_context(NOW):
            fan_out_to(self.graph, mine, self.ledger, NOW, _never)
            found = decide_due(self.graph, mine, self.ledger, NOW, 10_000, _never).verdicts
        ready = [verdict for _, verdict in found if verdict.state.value == "build"]
        if len(ready) != COUNT * CHANGED:
            raise RuntimeError(f"{len(ready)} are to be built, expected {COUNT * CHANGED}.")


def _row(at: WindowAddress, number: int) -> dict[str, object]:
    start = datetime.strptime(at.key, "%Y-%m-%d-%H:%M").replace(tzinfo=UTC)
    key = {"dataset": str(at.dataset), "sub_partition": "", "grain": HOUR, "key": at.key}
    times = {"start": start, "end": start + timedelta(hours=1), "since": NOW}
    return {**key, **times, "records": 1, "parts": 1, "state": "complete", "changed": number, "folded": False}


def _never() -> bool:
    return False


@contextmanager
def changes_with(opened: Databases) -> Iterator[Pair]:
    """Compare 1,000 changes after ten days of history with the same after one."""
    long, short = World(opened(), 240).fill(), World(opened(), 24).fill()

    def change() -> None:
        long.change()
        short.change()

    yield Pair(long.decide, short.decide, change)


@contextmanager
def _on_sqlite() -> Iterator[Pair]:
    with sqlite() as databases, changes_with(databases) as pair:
        yield pair


@contextmanager
def _on_postgresql() -> Iterator[Pair]:
    with postgresql() as databases, changes_with(databases) as pair:
        yield pair


@dataclass
class Stock:
    """The same graph in stock Dagster, where each dataset has the condition `eager()`."""

    definitions: dg.Definitions = field(init=False)
    instance: dg.DagsterInstance = field(init=False)
    cursor: Any = None
    hour: int = 0

    def open(self, folder: Path, stack: ExitStack) -> "Stock":
        """Evaluate once, before any materialization."""
        raws = [dg.AssetSpec(["b", f"table{number:03d}"], partitions_def=HOURS) for number in range(COUNT)]
        self.definitions = dg.Definitions(assets=[*raws, *(_eager(each) for each in raws)])
        self.instance = stack.enter_context(dg.DagsterInstance.local_temp(str(folder)))
        self._evaluate()
        return self

    def report(self) -> None:
        """Report a materialization, the last part of an hour; the next evaluation must request the run."""
        key = dg.AssetKey(["b", "table000"])
        event = dg.AssetMaterialization(key, partition=HOURS.get_last_partition_key())
        self.instance.report_runless_asset_event(event)
        if (asked := self._evaluate()) != 1:
            raise RuntimeError(f"{asked} are requested in stock Dagster, expected 1.")

    def idle(self) -> None:
        """Evaluate once, so that earlier requests no longer count as new."""
        self._evaluate()

    def _evaluate(self) -> int:
        found = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self.cursor, evaluation_time=NOW
        )
        self.cursor = found.cursor
        return found.total_requested


def _eager(above: dg.AssetSpec) -> dg.AssetsDefinition:
    name = above.key.path[-1].replace("table", "made")

    @dg.asset(key=["b", name], deps=[above], partitions_def=HOURS, automation_condition=dg.AutomationCondition.eager())
    def made() -> None:
        """Stand for an asset that never runs."""

    return made


@dataclass
class Home:
    """A home in which the datasets wait; each round reports the last part of another hour."""

    folder: Path
    url: str
    harness: Harness = field(init=False)
    cursor: str | None = None
    hour: int = 0

    def open(self, stack: ExitStack) -> "Home":
        """Tick until idle."""
        instance = stack.enter_context(dg.DagsterInstance.local_temp(str(self.folder)))
        self.harness = Harness(definitions(), instance, now=lambda: NOW)
        with at_home(self.folder, ledger=self.url):
            self.cursor = self.harness.ask().cursor
        return self

    def prepare(self) -> None:
        """Report all of the next hour except its last part."""
        self.hour += 1
        self._tell("kafka", range(12), "all")
        self._tell("", range(11), "first")
        with at_home(self.folder, ledger=self.url):
            self.cursor = self.harness.ask(self.cursor).cursor

    def report(self) -> None:
        """Report the last part; the next tick must request the run."""
        self._tell("", range(11, 12), "last")
        with at_home(self.folder, ledger=self.url):
            asked = self.harness.ask(self.cursor)
        if len([each for each in asked.requests if each.partition_key == self.key]) != 1:
            raise RuntimeError(f"{len(asked.requests)} are requested, expected the hour {self.key}.")

    @property
    def key(self) -> str:
        """Return the partition key of this round's hour."""
        return (FIRST + timedelta(hours=self.hour)).strftime("%Y-%m-%d-%H:%M")

    def _tell(self, tier: str, windows: range, part: str) -> None:
        start = FIRST + timedelta(hours=self.hour)
        told = tuple((start + number * timedelta(minutes=5), 100) for number in windows)
        report(open_ledger(self.url), [Report(Feed.parse(table(0)), "", f"{self.key} {part}", told, tier)], NOW)


@contextmanager
def latency() -> Iterator[Pair]:
    """Measure from the report of the last part to the run request, against a materialization and `eager()`."""
    with ExitStack() as stack:
        opened = stack.enter_context(sqlite())
        home = Home(Path(stack.enter_context(TemporaryDirectory())), opened()).open(stack)
        stock = Stock().open(Path(stack.enter_context(TemporaryDirectory())), stack)

        def before() -> None:
            home.prepare()
            stock.idle()

        yield Pair(home.report, stock.report, before)


_WHAT = f"{COUNT * CHANGED:,} changes of windows decided, {COUNT} datasets, 240 hours of history"
_FLOOR = "24 hours"

BENCHMARKS = [
    Benchmark("windows", _WHAT, _FLOOR, Goal(1, "s"), 10, 3, _on_sqlite),
    Benchmark("windows-pg", f"{_WHAT}, PostgreSQL", _FLOOR, Goal(1, "s"), 10, 3, _on_postgresql),
    Benchmark(
        "windows-latency",
        f"the last part reported to the run requested, {COUNT} datasets that wait",
        "eager() in stock Dagster",
        Goal(0.5),
        10,
        3,
        latency,
        tail=95,
    ),
]
