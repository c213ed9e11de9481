"""What is read in one task anyway: Spark, which does not know, would shuffle it to bring equal keys together."""

from pyspark.sql import DataFrame

LEAST_SPLIT = 4 << 20
"""Bytes below which Spark does not share a file among tasks (`spark.sql.files.openCostInBytes`)."""


def in_one_task(frame: DataFrame) -> DataFrame:
    """A frame of one task, as Spark is told where shuffles have one partition, too: nothing is shuffled then."""
    return frame.coalesce(1) if frame.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1" else frame
