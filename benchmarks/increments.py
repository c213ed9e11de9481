"""An increment of a table of events merged into what is there, by real builds, against a bare merge of its files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import dagster as dg
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from benchmarks import Benchmark, Built, Goal, Pair, at_home
from feed_assets import (
    ByEvents,
    EventSource,
    Plan,
    Rule,
    SqlTable,
    event_table,
    feed_asset,
    merge_by_key,
    with_automation,
)
from feed_assets.cli.loaded_location import open_instance
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink
from feed_assets.spark.session import session
from feed_assets.spark.urls import spark_path
from feed_assets.testing import Harness

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS = Feed.parse("b/orders/v1.0")
NEW = 1_000
"""Rows of an increment: half of them exist already."""
TASKS = 4


class Shop:
    """A table in Parquet of `count` rows, of which each update changes 1,000, and its events."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count, self.version = folder / "orders", count, 0
        self.written: list[int] = []
        self.sink = SqlSink(f"sqlite:///{folder / 'events.db'}", "events")
        self.sink.publish([])

    def write(self) -> None:
        """Write all rows the first time, and an increment after that."""
        self.version += 1
        whole = self.version == 1
        spark = SparkSession.active()
        ids = spark.range(0, self.count, 1, TASKS) if whole else self._changed(spark)
        rows = ids.select(
            "id",
            (sf.col("id") * 7919 % 1_000).cast("int").alias("item"),
            (sf.rand(self.version) * 100).alias("price"),
            sf.concat(sf.lit("order "), sf.col("id")).alias("note"),
            sf.lit(self.version).cast("bigint").alias("version"),
        )
        rows.write.mode("overwrite").parquet(f"{self.folder}/{self.version}")
        self.written.append(self.version)
        self._tell(Operation.UPSERT)

    def ask_for_all(self) -> None:
        """Publish an event that has everything loaded again, without new rows."""
        self.version += 1
        self._tell(Operation.OVERWRITE)

    def _tell(self, operation: Operation) -> None:
        event = WriteEvent("orders", self.version, self.version, f"c{self.version}", operation)
        self.sink.publish([(0, event)])

    def _changed(self, spark: SparkSession) -> "DataFrame":
        """Return keys spread over the whole table, and as many new ones."""
        step, half = self.count // (NEW // 2), NEW // 2
        known = spark.range(0, half, 1, 1).select((sf.col("id") * step + self.version).alias("id"))
        first = self.count + self.version * half
        return known.union(spark.range(first, first + half, 1, 1))

    def read(self, after: int, upto: int) -> "DataFrame":
        """Read the rows of a slice from its files."""
        return SparkSession.active().read.parquet(*self.paths(after, upto))

    def paths(self, after: int, upto: int) -> list[str]:
        """Return the files of a slice."""
        return [f"{self.folder}/{version}" for version in self.written if after < version <= upto]


def definitions(shop: Shop) -> dg.Definitions:
    """Define the shop's table, and a dataset that adds its increments."""
    source = EventSource("shop", (SqlTable(shop.sink.url, "events", "id"),))
    orders = event_table("shop/orders", source=source, table_name="orders")
    plans = [Rule(Plan("reload"), operations=frozenset({Operation.OVERWRITE}))]

    @feed_asset(str(ORDERS), inputs={"orders": orders}, by_events=ByEvents(plans=plans))
    def merged(orders: Any, previous: Any) -> Any:
        """Merge new orders into all previous ones."""
        new = shop.read(int(orders.start or 0), int(orders.end))
        return merge_by_key(previous, new, "id", newest_by="version")

    return with_automation(dg.Definitions(assets=[orders, merged]))


def until_idle(harness: Harness) -> Built:
    """Run until idle; raise unless exactly one run succeeds."""
    ran = harness.run_until_idle()
    if [run.succeeded for run in ran] != [True]:
        raise RuntimeError(f"{len(ran)} ended: {[run.error for run in ran]}. Expected one, and good.")
    return Built(1, 1)


def bare(board: Blackboard, shop: Shop, target: Path) -> None:
    """Do only the work that Spark must do: read both, drop replaced rows, write."""
    update = read.require(read.latest(board, Partition(ORDERS, "")))
    spark = SparkSession.active()
    known = spark.read.parquet(*(spark_path(board.url, file.key) for file in update.files))
    new = spark.read.parquet(*shop.paths(shop.written[-2], shop.version))
    merged = known.join(sf.broadcast(new), "id", "left_anti").unionByName(new)
    merged.write.mode("overwrite").parquet(str(target))


@contextmanager
def increments(count: int, against: Callable[[Harness, Shop, Path], None]) -> Iterator[Pair]:
    """Merge updates of 1,000 rows each into `count` rows; the first load is not measured."""
    with TemporaryDirectory() as root, at_home(Path(root)):
        session(settings())
        shop = Shop(Path(root), count)
        with Harness(definitions(shop), open_instance(), sources={"shop": shop.sink.url}) as harness:
            shop.write()
            until_idle(harness)
            yield Pair(lambda: until_idle(harness), lambda: against(harness, shop, Path(root, "bare")), shop.write)


def _bare(_harness: Harness, shop: Shop, target: Path) -> None:
    bare(open_board(settings()), shop, target)


def _reload(harness: Harness, shop: Shop, _target: Path) -> None:
    shop.ask_for_all()
    until_idle(harness)


def _benchmark(name: str, count: int, floor: str, goal: float, *, large: bool = False) -> Benchmark:
    against = _reload if floor == "all of them loaded" else _bare
    what = f"an increment of {NEW:,} rows merged into {count:,}, until idle"
    return Benchmark(name, what, floor, Goal(goal), 10, 3, lambda: increments(count, against), large=large)


BENCHMARKS = [
    _benchmark("increment", 1_000_000, "a bare Spark merge of the same files", 3),
    _benchmark("increment-reload", 1_000_000, "all of them loaded", 1),
    _benchmark("increment-10m", 10_000_000, "a bare Spark merge of the same files", 2, large=True),
    _benchmark("increment-reload-10m", 10_000_000, "all of them loaded", 1, large=True),
]
