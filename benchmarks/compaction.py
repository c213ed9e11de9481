"""A compaction against a bare script, and queries of a compacted partition against queries of its small files."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import duckdb
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks import Benchmark, Goal, Pair, Sorting, at_home, cpu_seconds
from feed_assets import Compact, feed_asset, foreign_feed, with_automation
from feed_assets.cli.loaded_location import open_instance
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.stores import local_root
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.spark.session import session
from feed_assets.testing import Harness

ROWS, FILES, HOURS = 2_000_000, 200, 24
POLICY = Compact(sort_by=("id",), when="published")
FEED = Feed.parse("b/small/v1.0")
POINT = "SELECT price FROM read_parquet({files}) WHERE id = 1234567"
SCAN = "SELECT item, sum(price) FROM read_parquet({files}) GROUP BY item"


def partition(key: int) -> Partition:
    """Return one of the partitions."""
    return Partition(FEED, f"p{key}")


def files_of(at: Partition, update_id: str | None = None) -> list[str]:
    """Return the files of an update, by default of the newest one."""
    services = Services.of(settings())
    update = read.named(services.board, at, update_id) if update_id else read.require(read.latest(services.board, at))
    return [str(local_root(settings().blackboard) / each.key) for each in update.files]


def harness_of(rows: Sequence[int]) -> Harness:
    """Return a world of partitions without order, with so many rows. A whole one has `FILES` files."""
    names = dg.StaticPartitionsDefinition([f"p{key}" for key in range(len(rows))])
    raw = foreign_feed("b/raw/v1.0", partitions_def=names, schema="count long")

    @feed_asset(str(FEED), partitions_def=names, inputs={"raw": raw}, code_version="1")
    def small(raw: DataFrame) -> DataFrame:
        """Return rows in a random order."""
        [number] = raw.first()
        ids = raw.sparkSession.range(number)
        rows = ids.select("id", (sf.col("id") * 7919 % 1_000).cast("int").alias("item"), sf.rand(1).alias("price"))
        return rows.repartition(max(1, FILES * number // ROWS))

    return Harness(with_automation(dg.Definitions(assets=[raw, small])), open_instance())


@contextmanager
def built(rows: Sequence[int]) -> Iterator[Path]:
    """Yield the folder of a world whose partitions are built."""
    with TemporaryDirectory() as root, at_home(Path(root)):
        session(settings())
        with harness_of(rows) as world:
            for key, number in enumerate(rows):
                world.drop("b/raw/v1.0", f"p{key}", f"count\n{number}\n")
            world.run_until_idle(max_ticks=30 + len(rows))
            yield Path(root)


@dataclass
class Measured:
    """The work of compactions and of their floor: memory of Spark's stages, and CPU for each GB."""

    stage: int = 0
    of_floor: float = 0

    def floor(self, run: Callable[[], object]) -> None:
        """Run the floor."""
        self._peak()
        run()
        self.of_floor = self._peak()

    def compact(self, keys: Sequence[int]) -> Sorting:
        """Compact partitions, and return what it took."""
        self._peak()
        cpu, size = cpu_seconds(), sum(Path(each).stat().st_size for key in keys for each in files_of(partition(key)))
        for key in keys:
            compact_partition(Services.of(settings()), partition(key), POLICY)
        return Sorting(self._peak(), self.of_floor, (cpu_seconds() - cpu) / size * 1e9)

    def _peak(self) -> float:
        """Return the largest memory in MB that tasks of a stage since the last call took for sorts and the like."""
        store, most = SparkSession.active().sparkContext._jsc.sc().statusStore(), 0  # pyright: ignore
        while True:
            try:
                most = max(most, store.lastStageAttempt(self.stage).peakExecutionMemory())
            except Py4JJavaError:  # There is no such stage yet.
                return most / 1_000_000
            self.stage += 1


@contextmanager
def compaction() -> Iterator[Pair]:
    """Compact a partition each round, against a script that reads, sorts and writes the same files."""
    with built([ROWS] * 4) as root:
        case, floor, measured = count(), count(), Measured()

        def script() -> None:
            number = next(floor)
            rows = SparkSession.active().read.parquet(*files_of(partition(number)))
            ordered = rows.repartitionByRange(1, "id").sortWithinPartitions("id")
            ordered.write.parquet(f"{root}/bare/{number}")

        yield Pair(lambda: measured.compact([next(case)]), lambda: measured.floor(script))


@contextmanager
def hours() -> Iterator[Pair]:
    """Compact the 24 hours of a day each round, against a day of the same rows in one partition."""
    rounds = 4
    with built([*[ROWS] * rounds, *[ROWS // HOURS] * HOURS * rounds]):
        day, hour, measured = count(), count(rounds), Measured()
        yield Pair(
            lambda: measured.compact([next(hour) for _ in range(HOURS)]),
            lambda: measured.floor(
                lambda: compact_partition(Services.of(settings()), partition(next(day)), POLICY),
            ),
        )


@contextmanager
def query(sql: str, run: Callable[[str, list[str]], object]) -> Iterator[Pair]:
    """Query the same rows in one sorted file, and in many small ones."""
    with built([ROWS]):
        done = compact_partition(Services.of(settings()), partition(0), POLICY)
        if done is None:
            raise RuntimeError("nothing was compacted: expected 200 files to become one.")
        merged, small = files_of(partition(0), done.after), files_of(partition(0), done.before)
        yield Pair(lambda: run(sql, merged), lambda: run(sql, small))


def by_duckdb(sql: str, files: list[str]) -> object:
    """Run a query in DuckDB."""
    return duckdb.sql(sql.format(files=files)).fetchall()


def by_spark(sql: str, files: list[str]) -> object:
    """Run a query in Spark."""
    spark = SparkSession.active()
    spark.read.parquet(*files).createOrReplaceTempView("files")
    return spark.sql(sql.format(files="").replace("read_parquet()", "files")).collect()


def _query(name: str, what: str, sql: str, run: Callable[[str, list[str]], object], goal: float) -> Benchmark:
    return Benchmark(name, what, f"the same in {FILES} files", Goal(goal), 20, 5, lambda: query(sql, run), large=True)


BENCHMARKS = [
    Benchmark(
        "compact",
        f"{ROWS:,} rows in {FILES} files sorted into one, checked and published",
        "a Spark script that sorts and writes them",
        Goal(2),
        3,
        3,
        compaction,
        large=True,
    ),
    Benchmark(
        "compact-hours",
        f"{HOURS} hours of a day with {ROWS:,} rows sorted into a file each",
        "the day sorted into one file",
        Goal(4),
        3,
        3,
        hours,
        large=True,
    ),
    _query("compacted-point", f"DuckDB finds one of {ROWS:,} compacted rows", POINT, by_duckdb, 0.5),
    _query("compacted-scan", f"DuckDB sums {ROWS:,} compacted rows", SCAN, by_duckdb, 1),
    _query("compacted-point-spark", f"Spark finds one of {ROWS:,} compacted rows", POINT, by_spark, 0.5),
    _query("compacted-scan-spark", f"Spark sums {ROWS:,} compacted rows", SCAN, by_spark, 1),
]
