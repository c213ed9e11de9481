"""Frames that one task reads anyway. Spark does not know this, and would shuffle them to bring equal keys together."""

from pyspark.sql import DataFrame

LEAST_SPLIT = 4 << 20
"""Number of bytes below which Spark does not split a file among tasks (`spark.sql.files.openCostInBytes`)."""


def in_one_task(frame: DataFrame) -> DataFrame:
    """Return a frame with one task. Spark then plans no shuffle. This is done only if shuffles have one partition."""
    return frame.coalesce(1) if frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1" else frame
