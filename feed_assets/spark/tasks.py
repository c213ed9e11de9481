"""Frames that one task reads anyway. Spark does not know this, and would shuffle them to bring equal keys together."""

from pyspark.sql import DataFrame

LEAST_SPLIT = 4 << 20
"""Number of bytes below which Spark does not split a file among tasks (`spark.sql.files.openCostInBytes`)."""


def in_one_task(frame: DataFrame) -> DataFrame:
    """If shuffles have only one partition, return the frame with one task, so that Spark plans no shuffle.

    Otherwise return it unchanged.
    """
    return frame.coalesce(1) if frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1" else frame
