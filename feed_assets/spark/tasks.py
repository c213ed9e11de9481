"""Frames that are read in one task anyway: Spark would still shuffle them to bring equal keys together."""

from pyspark.sql import DataFrame

LEAST_SPLIT = 4 << 20
"""Bytes below which Spark does not share a file among tasks (`spark.sql.files.openCostInBytes`)."""


def in_one_task(frame: DataFrame) -> DataFrame:
    """Return a frame of one task, marked so for Spark if shuffles have one partition, too: then none is needed."""
    return frame.coalesce(1) if frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1" else frame
