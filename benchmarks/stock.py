"""The ads graph as one would write it in Dagster alone: three assets, and a sensor that finds the raw files.

`benchmarks/service.py` compares with it. It has Dagster's default executor: a process, and so a Spark session, for each
step. The sensor runs as often as the daemon can, not at its default of half a minute.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from pyspark.sql import SparkSession

from benchmarks import plain
from feed_assets.defs.ads.sample import CAMPAIGNS

HOME = Path(os.environ["DAGSTER_HOME"])
DAYS = dg.DailyPartitionsDefinition("2019-11-24")
PARTITIONS = dg.MultiPartitionsDefinition({"date": DAYS, "campaign": dg.StaticPartitionsDefinition([*CAMPAIGNS])})


def spark() -> SparkSession:
    """Return the Spark session of this step, set up for small data like ours."""
    session = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "1")
    return session.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()


def path(dataset: str, key: str) -> Path:
    """Return the folder of a dataset's partition."""
    keys = PARTITIONS.get_partition_key_from_str(key).keys_by_dimension
    return HOME / "data" / dataset / keys["date"] / keys["campaign"]


def day(key: str) -> str:
    """Return the date of a partition."""
    return PARTITIONS.get_partition_key_from_str(key).keys_by_dimension["date"]


@dg.asset(partitions_def=PARTITIONS)
def shown(context: dg.AssetExecutionContext) -> None:
    """Clean impressions."""
    key = context.partition_key
    plain.clean_shown(spark(), path("shown_raw", key), day(key), path("shown", key))


@dg.asset(partitions_def=PARTITIONS)
def clicked(context: dg.AssetExecutionContext) -> None:
    """Clean clicks."""
    key = context.partition_key
    plain.clean_clicked(spark(), path("clicked_raw", key), day(key), path("clicked", key))


@dg.asset(partitions_def=PARTITIONS, deps=[shown, clicked])
def effectiveness(context: dg.AssetExecutionContext) -> None:
    """Compute click-through rates."""
    key = context.partition_key
    plain.effectiveness(spark(), path("shown", key), path("clicked", key), path("effectiveness", key))


everything = dg.define_asset_job("everything", selection="*", partitions_def=PARTITIONS)


@dg.sensor(job=everything, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def files() -> Iterator[dg.RunRequest]:
    """Request a run for each partition for which both raw files are complete."""
    for key in PARTITIONS.get_partition_keys():
        if all((path(raw, key) / "_SUCCESS").exists() for raw in ("shown_raw", "clicked_raw")):
            yield dg.RunRequest(run_key=key, partition_key=key)


defs = dg.Definitions(assets=[shown, clicked, effectiveness], jobs=[everything], sensors=[files])
