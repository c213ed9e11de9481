"""Frames that one task reads anyway: Spark would still shuffle them to bring equal keys together."""

from pyspark.sql import DataFrame

LEAST_SPLIT = 4 << 20
"""Bytes below which Spark does not split a file among tasks (`spark.sql.files.openCostInBytes`)."""


def in_one_task(frame: DataFrame) -> DataFrame:
    """Return a frame with one task. If shuffles have one partition, too, Spark then plans no shuffle."""
    return frame.coalesce(1) if frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1" else frame
