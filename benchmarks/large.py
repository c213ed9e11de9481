"""A dataset of 10 million rows, its checks and an aggregate below it, against plain scripts on the same session."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import dagster as dg

from benchmarks import Benchmark, Built, Goal, Pair, at_home, tick_once
from feed_assets import Input, checks, feed_asset, foreign_feed, with_automation
from feed_assets.cli.loaded_location import open_instance
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.write import publish
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.spark.session import session
from feed_assets.testing import Harness
from feed_assets_tests.support.spark_clusters import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS, TEXT_ROWS = 10_000_000, 5_000_000
FILES = 8
SCHEMA = "id bigint, at timestamp, item int, price double, note string"
DAY = "2026-01-01"
RAW = Feed.parse("b/sales_raw/v1.0")
Write = Callable[["SparkSession", int, Path], None]


def sales(spark: "SparkSession", rows: int) -> "DataFrame":
    """Return rows of one day with unique ids, 1,000 items, a price and a note."""
    from pyspark.sql import functions as sf

    return spark.range(0, rows, 1, FILES).select(
        "id",
        sf.timestamp_seconds(sf.lit(1_767_225_600) + sf.col("id") % 86_400).alias("at"),
        (sf.col("id") * 7919 % 1_000).cast("int").alias("item"),
        sf.round(sf.rand(7) * 100, 2).alias("price"),
        sf.concat(sf.lit("sale "), sf.col("id") % 5_000).alias("note"),
    )


def write_parquet(spark: "SparkSession", rows: int, folder: Path) -> None:
    """Write the rows as another team would."""
    sales(spark, rows).write.parquet(str(folder))


def write_csv(spark: "SparkSession", rows: int, folder: Path) -> None:
    """Write the rows as CSV; in every thousandth row `item` is not a number."""
    _texts(spark, rows).write.option("header", True).csv(str(folder))


def write_json(spark: "SparkSession", rows: int, folder: Path) -> None:
    """Write the rows as JSON lines; in every thousandth row `item` is not a number."""
    texts = _texts(spark, rows)
    numbers = ["CAST(id AS bigint) AS id", "at", "item", "price", "note"]
    lines = texts.selectExpr(f"to_json(struct({', '.join(numbers)})) AS value")
    # The items that are numbers are written as such.
    lines.selectExpr(r"""regexp_replace(value, '"item":"([0-9]+)"', '"item":$1') AS value""").write.text(str(folder))


def _texts(spark: "SparkSession", rows: int) -> "DataFrame":
    from pyspark.sql import functions as sf

    item = sf.when(sf.col("id") % 1_000 == 999, sf.lit("none")).otherwise(sf.col("item").cast("string"))
    at = sf.date_format("at", "yyyy-MM-dd HH:mm:ss")
    return sales(spark, rows).withColumns({"item": item, "at": at, "id": sf.col("id").cast("string")})


def definitions(form: str) -> dg.Definitions:
    """Define a foreign feed, a dataset of its rows with four checks, and an aggregate by item."""
    day = dg.StaticPartitionsDefinition([DAY])
    raw = foreign_feed(str(RAW), partitions_def=day, schema=SCHEMA, format=form)

    @feed_asset(
        "b/sales/v1.0",
        partitions_def=day,
        inputs={"raw": Input(raw)},
        checks=[checks.not_empty(), checks.not_null("id", "at"), checks.within("price", 0, 100), checks.unique("id")],
        event_time="at",
    )
    def cleaned(raw: Any) -> Any:
        """Return all sales with the price in cents."""
        return with_cents(raw)

    @feed_asset("b/items/v1.0", partitions_def=day, inputs={"sales": Input(cleaned)})
    def items(sales: Any) -> Any:
        """Return revenue by item."""
        return by_item(sales)

    return with_automation(dg.Definitions(assets=[raw, cleaned, items]))


def with_cents(sales: "DataFrame") -> "DataFrame":
    """Add the price in cents to the rows."""
    return sales.withColumn("cents", _cents())


def _cents() -> "Column":
    from pyspark.sql import functions as sf

    return (sf.col("price") * 100).cast("bigint")


def by_item(sales: "DataFrame") -> "DataFrame":
    """Return number and revenue of sales of each item."""
    from pyspark.sql import functions as sf

    return sales.groupBy("item").agg(sf.count("*").alias("sales"), sf.sum("cents").alias("cents"))


def bare(spark: "SparkSession", folder: Path, form: str, made: Path) -> None:
    """Run a plain script: read, write, aggregate."""
    rows, target = _read(spark, folder, form), str(made / "sales")
    if form == "parquet":
        with_cents(rows).write.mode("overwrite").parquet(target)
    else:
        good = rows.where("_bad IS NULL").drop("_bad")
        with_cents(good).write.mode("overwrite").parquet(target)
        rows.where("_bad IS NOT NULL").select("id", "_bad").write.mode("overwrite").parquet(str(made / "rejects"))
    by_item(spark.read.parquet(target)).write.mode("overwrite").parquet(str(made / "items"))


def checked(spark: "SparkSession", folder: Path, form: str, made: Path) -> None:
    """Run the plain script, then the same four checks on its output."""
    bare(spark, folder, form, made)
    found = spark.read.parquet(str(made / "sales")).selectExpr(
        "count(1)",
        "count_if(id IS NULL OR at IS NULL)",
        "count_if(NOT coalesce(price BETWEEN 0 AND 100, false))",
        "count(1) - count(DISTINCT id)",
        "min(at)",
        "max(at)",
    )
    if found.collect()[0][3]:
        raise RuntimeError("ids repeat: expected each once.")


def _read(spark: "SparkSession", folder: Path, form: str) -> "DataFrame":
    if form == "parquet":
        return spark.read.schema(SCHEMA).parquet(str(folder))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_bad"}
    reader = spark.read.options(**options, header=True).schema(f"{SCHEMA}, _bad string")
    return reader.csv(str(folder)) if form == "csv" else reader.json(str(folder))


@contextmanager
def against(script: Callable[..., None], form: str, write: Write, rows: int, **named: str) -> Iterator[Pair]:
    """Compare both datasets, run until idle in a fresh home each round, with a script in the same warm session."""
    with TemporaryDirectory() as root, at_home(Path(root), **named):
        spark, raw = session(settings()), Path(root, "raw")
        write(spark, rows, raw)
        parts = {file.name: file.read_bytes() for file in sorted(raw.glob("part-*"))}
        rounds, todo = iter(range(1_000)), list[Harness]()

        def before() -> None:
            folder = Path(root, str(next(rounds)))
            folder.mkdir()
            with at_home(folder, **named):
                tick_once(definitions(form))
                publish(Services.of(settings()).board, Partition(RAW, DAY), parts, datetime.now(UTC))
                todo[:] = [Harness(definitions(form), open_instance())]

        def case() -> Built:
            with at_home(Path(todo[0].instance.root_directory), **named), todo[0] as harness:
                ran = harness.run_until_idle()
            if [run.succeeded for run in ran] != [True, True]:
                raise RuntimeError(f"{len(ran)} ended: {[run.error for run in ran]}. Expected two, both good.")
            return Built(len(ran), len({run.id for run in ran}))

        yield Pair(case, partial(script, spark, raw, form, Path(root, "made")), before)


@contextmanager
def on_a_cluster() -> Iterator[Pair]:
    """Compare on a standalone cluster of two workers; run it alone in its process, as the session is shared."""
    with TemporaryDirectory() as folder, spark_cluster(Path(folder)) as master:
        named = {"spark_master": master, "spark_conf": '{"spark.executor.memory": "900m", "spark.cores.max": "2"}'}
        with against(bare, "parquet", write_parquet, ROWS, **named) as pair:
            yield pair


@contextmanager
def ten_times_larger() -> Iterator[Pair]:
    """Compare ten times the rows in one partition with ten runs, with a heap of 2 GB."""
    named = {"spark_conf": '{"spark.driver.memory": "2g"}'}
    with (
        against(bare, "parquet", write_parquet, ROWS, **named) as small,
        against(bare, "parquet", write_parquet, 10 * ROWS, **named) as large,
    ):

        def ten() -> None:
            for _ in range(10):
                small.before()
                small.case()

        yield Pair(large.case, ten, large.before)


def _benchmark(name: str, what: str, floor: str, most: float, prepare: Callable[[], Any]) -> Benchmark:
    return Benchmark(name, what, floor, Goal(most), 5, 2, prepare, large=True)


BENCHMARKS = [
    _benchmark(
        "large-parquet",
        f"{ROWS:,} rows with four checks, and an aggregate of them, until idle",
        "a plain PySpark script",
        1.6,
        lambda: against(bare, "parquet", write_parquet, ROWS),
    ),
    _benchmark(
        "large-checked",
        "the same",
        "a script that makes the same checks",
        1,
        lambda: against(checked, "parquet", write_parquet, ROWS),
    ),
    _benchmark("large-cluster", "the same on a cluster of two workers", "the plain script on it", 2, on_a_cluster),
    _benchmark("larger", f"{10 * ROWS:,} rows, heap of 2 GB", f"ten runs of {ROWS:,}", 1.1, ten_times_larger),
    *(
        _benchmark(
            f"large-{form}",
            f"{TEXT_ROWS:,} rows of {form.upper()}, 0.1 % of them rejected, with four checks, and an aggregate",
            "a script with PERMISSIVE and a column of corrupt records, and the same checks",
            2,
            partial(against, checked, form, write, TEXT_ROWS),
        )
        for form, write in (("csv", write_csv), ("json", write_json))
    ),
]
