"""One dataset of three partitions; its Spark job waits in the middle while a file exists."""

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
"""Variable with the path of a file: a job that writes does not end while the file exists."""

_keys = dg.StaticPartitionsDefinition([*KEYS])
_raw = foreign_feed(RAW, partitions_def=_keys, schema="k string, n int")


def held(numbers: pd.Series) -> pd.Series:
    """Return the numbers unchanged, once the file is gone. Create the file `begun` beside it to report the start."""
    file = Path(os.environ[HOLD])
    while file.exists():
        file.with_name("begun").touch()
        time.sleep(0.05)
    return numbers


@feed_asset(MADE, partitions_def=_keys, inputs={"raw": _raw})
def made(raw):
    """Return the rows unchanged: one part is written at once, and the other waits."""
    hold = sf.pandas_udf(held, "int")  # pyright: ignore
    rows = raw.repartition(2, "n")
    return rows.withColumn("n", sf.when(sf.col("n") > 1, hold("n")).otherwise(sf.col("n")))


defs = with_automation(dg.Definitions(assets=[_raw, made]))
