"""The ads domain's transforms as a plain PySpark script: the same rows from the same files, and nothing around them.

No manifests, ledger, pins, audits, digests, previews or charts; each path is given and is overwritten.
"""

from functools import reduce
from pathlib import Path

import dagster as dg
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from feed_assets import Input
from feed_assets.defs.ads.effectiveness import clicked_raw, shown_raw, with_ctr

Rules = list[tuple[Column, str]]


def clean_shown(spark: SparkSession, raw: Path, day: str, target: Path) -> None:
    """Clean impressions: keep each once, in its day, at a valid item and position."""
    rules = [
        (~sf.coalesce(sf.col("item_id") >= 0, sf.lit(False)), "item_id: missing or negative"),
        (~sf.coalesce(sf.col("position").between(1, 3), sf.lit(False)), "position: not 1, 2 or 3"),
    ]
    _clean(_read(spark, raw, _schema(shown_raw)), "timestamp", day, rules, target)


def clean_clicked(spark: SparkSession, raw: Path, day: str, target: Path) -> None:
    """Clean clicks: keep the first click on each impression."""
    _clean(_read(spark, raw, _schema(clicked_raw)), "clicked_at", day, [], target)


def _schema(feed: dg.AssetSpec) -> str | None:
    return Input(feed).source("raw").schema


def effectiveness(spark: SparkSession, shown: Path, clicked: Path, target: Path) -> None:
    """Write the click-through rate of each policy, item and position."""
    clicks = spark.read.parquet(str(clicked)).select("impression_id", sf.lit(1).alias("click"))
    joined = spark.read.parquet(str(shown)).join(clicks, "impression_id", "left")
    counted = joined.groupBy("policy", "item_id", "position").agg(
        sf.count(sf.lit(1)).alias("impressions"), sf.count("click").alias("clicks")
    )
    with_ctr(counted).write.mode("overwrite").parquet(str(target))


def daily(spark: SparkSession, campaigns: dict[str, Path], target: Path) -> None:
    """Write the click-through rate of each campaign and policy."""
    frames = [spark.read.parquet(str(path)).withColumn("campaign", sf.lit(name)) for name, path in campaigns.items()]
    summed = (
        reduce(DataFrame.unionByName, frames)
        .groupBy("campaign", "policy")
        .agg(sf.sum("impressions").alias("impressions"), sf.sum("clicks").alias("clicks"))
    )
    with_ctr(summed).write.mode("overwrite").parquet(str(target))


def _read(spark: SparkSession, raw: Path, schema: str) -> DataFrame:
    return spark.read.csv(
        str(raw), schema=f"{schema}, _raw string", header=True, mode="PERMISSIVE", columnNameOfCorruptRecord="_raw"
    )


def _clean(read: DataFrame, time: str, day: str, rules: Rules, target: Path) -> None:
    """Write the good rows, and beside them the rejected rows with reasons."""
    every: Rules = [
        (sf.col("_raw").isNotNull(), "does not parse"),
        (sf.col("impression_id").isNull(), "impression_id: missing"),
        (sf.col(time).isNull(), f"{time}: missing"),
        (sf.to_date(time) != sf.lit(day).cast("date"), f"{time}: not on {day}"),
        *rules,
        (sf.row_number().over(Window.partitionBy("impression_id").orderBy(time)) > 1, "impression_id: repeated"),
    ]
    reasons = sf.filter(sf.array(*[sf.when(is_bad, sf.lit(why)) for is_bad, why in every]), sf.isnotnull)
    tagged = read.withColumn("_reasons", reasons).persist()
    tagged.where(sf.size("_reasons") > 0).write.mode("overwrite").parquet(f"{target}_rejects")
    tagged.where(sf.size("_reasons") == 0).drop("_raw", "_reasons").write.mode("overwrite").parquet(str(target))
    tagged.unpersist()
