"""Rows that Spark reads of each Parquet file, compared with those that the file's footer announces."""

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.spark.parse import is_clean

NOT_ANNOUNCED: Mapping[str, int] = MappingProxyType({})
"""Rows by file of formats without footers."""


def check_counts(announced: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Raise UnreadableUpdate for the first file of which not all rows were read, or more."""
    for key, rows in announced.items():
        if (read := found.get(key, 0)) != rows:
            others = sum(found.get(each, 0) != expected for each, expected in announced.items()) - 1
            raise UnreadableUpdate(
                f"{key} cannot be read whole: its footer announces {rows:,} rows, and Spark read {read:,}"
                f"{f' ({others} more files are like it)' if others else ''}. "
                "Invalidate the update, and have it published again."
            )


def has_rejects(kept: DataFrame, announced: Mapping[str, int]) -> bool:
    """Return whether a tagged frame that Spark keeps has rejected rows; its rows are compared in the same job.

    What is kept is kept whole, whatever the dataset's function asks for. Raises UnreadableUpdate.
    """
    rejected = sf.count_if(~is_clean()).alias("rejected")
    counted = kept.groupBy("_file").agg(sf.count(sf.lit(1)).alias("rows"), rejected).collect()
    check_counts(announced, {row["_file"]: row["rows"] for row in counted})
    return any(row["rejected"] for row in counted)
