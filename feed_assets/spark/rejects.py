"""Tagged frames: rows that carry the reasons why they are not clean, until they are split in two.

A tagged frame has the data's columns, then `_raw string` (the record as text), `_file string` (its file's key under
the blackboard) and `_reasons array<string>` (empty: clean). Rows in = clean rows + rejected rows, by construction.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from feed_assets.spark.parse import META, column, is_clean, reasons
from feed_assets.spark.read import clean

REJECT_COLUMNS = "reason string, file string, raw string"
"""Schema of a rejects dataset: the reasons joined by '; ', the file's key, the record's text."""


def is_tagged(frame: DataFrame) -> bool:
    """Whether the frame carries `_raw`, `_file` and `_reasons`."""
    return set(META) <= set(frame.columns)


def reject(tagged: DataFrame, when: Column, reason: str) -> DataFrame:
    """Give each row for which a condition is true one more reason.

    Args:
        tagged: A tagged input, with the columns `_raw`, `_file` and `_reasons`.
        when: The condition; NULL counts as false.
        reason: Why the row is turned away, such as `position: not 1, 2 or 3`.

    Returns:
        The frame with its reasons.
    """
    more = sf.array_append(reasons(), sf.lit(reason))
    return tagged.withColumn("_reasons", sf.when(when, more).otherwise(reasons()))


def reject_duplicates(tagged: DataFrame, key: Sequence[str], order: Sequence[Column]) -> DataFrame:
    """Reject all but the first row of each key.

    Only rows without a reason so far compete: a rejected row never displaces a good one. A key with a NULL in it is no
    key, and has no duplicates: reject it as missing.

    Args:
        tagged: A tagged input, with the columns `_raw`, `_file` and `_reasons`.
        key: The columns of the key.
        order: What comes first; of equals, the lesser `_raw`, then `_file`.

    Returns:
        The frame with its reasons.
    """
    whole = is_clean() & sf.forall(sf.array(*[column(name).isNotNull() for name in key]), lambda known: known)
    window = Window.partitionBy(whole, *map(column, key)).orderBy(*order, "_raw", "_file")
    return reject(tagged, whole & (sf.row_number().over(window) > 1), f"duplicate of {', '.join(key)}")


def no_rejects(spark: SparkSession) -> DataFrame:
    """No rejected rows."""
    return spark.createDataFrame([], REJECT_COLUMNS)  # pyright: ignore[reportUnknownMemberType]


def split(tagged: DataFrame) -> tuple[DataFrame, DataFrame]:
    """(clean rows with the data's columns, rejected rows as REJECT_COLUMNS).

    One boolean that is never NULL decides. Each half is its own job: persist `tagged` before, so that the second does
    not read and parse again.
    """
    joined = sf.array_join("_reasons", "; ").alias("reason")
    rejected = tagged.where(~is_clean()).select(joined, sf.col("_file").alias("file"), sf.col("_raw").alias("raw"))
    return clean(tagged), rejected
