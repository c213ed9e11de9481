"""One dataset of three partitions, whose Spark job is held in its middle, or made to fail, while a file says so."""

import os
import time
from pathlib import Path

import dagster as dg
import pandas as pd
from pyspark.sql import functions as sf

from feed_assets import feed_asset, foreign_feed, with_automation

KEYS = ("p1", "p2", "p3")
RAW, MADE = "held/raw/v1.0", "held/made/v1.0"
HOLD = "HELD_PROJECT_FILE"
"""The variable with the path of a file: while it is there a job that writes does not end."""

_keys = dg.StaticPartitionsDefinition([*KEYS])
_raw = foreign_feed(RAW, partitions_def=_keys, schema="k string, n int")


def held(numbers: pd.Series) -> pd.Series:
    """The numbers as they are; in a worker of Spark's, which says that it has begun beside the file."""
    file = Path(os.environ[HOLD])
    while file.exists():
        file.with_name("begun").touch()
        time.sleep(0.05)
    return numbers


@feed_asset(MADE, partitions_def=_keys, inputs={"raw": _raw})
def made(raw):
    """The rows as they are, as one part that is written at once and one that is held."""
    hold = sf.pandas_udf(held, "int")  # pyright: ignore
    rows = raw.repartition(2, "n")
    return rows.withColumn("n", sf.when(sf.col("n") > 1, hold("n")).otherwise(sf.col("n")))


defs = with_automation(dg.Definitions(assets=[_raw, made]))
