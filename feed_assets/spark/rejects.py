"""Tagged frames: rows that carry the reasons why they are not clean, until they are split in two.

A tagged frame has the data's columns, then `_raw string` (the record as text), `_file string` (its file's key under
the blackboard) and `_reasons array<string>` (empty: clean). Rows in = clean rows + rejected rows, by construction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from feed_assets.core.data_version import NO_ROWS
from feed_assets.core.feeds import Partition
from feed_assets.core.written import Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.spark.parse import META, column, is_clean, reasons
from feed_assets.spark.read import clean
from feed_assets.spark.row_counts import NOT_ANNOUNCED, has_rejects
from feed_assets.spark.write import write, written

REJECTS = StructType([StructField(name, StringType()) for name in ("reason", "file", "raw")])
"""Schema of a rejects dataset: the reasons joined by '; ', the file's key, the record's text."""
_NO_REJECTS = Path(__file__).with_name("no_rejects.parquet")  # as Spark writes a frame of this schema without rows


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
    # The reasons are named once in it, so that Spark makes one expression of several in a row.
    more = sf.when(when, sf.array(sf.lit(reason))).otherwise(sf.expr("cast(array() AS array<string>)"))
    return tagged.withColumn("_reasons", sf.concat(reasons(), more))


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
    whole = is_clean()
    for name in key:
        whole &= column(name).isNotNull()
    window = Window.partitionBy(whole, *map(column, key)).orderBy(*order, "_raw", "_file")
    return reject(tagged, whole & (sf.row_number().over(window) > 1), f"duplicate of {', '.join(key)}")


@dataclass(frozen=True)
class Rejected:
    """Rejected rows, with the columns REJECTS, and who has counted them on the way, if somebody has."""

    rows: DataFrame
    observed: Observation | None = None
    kept: DataFrame | None = None
    """A tagged frame of files that announce their rows."""
    announced: Mapping[str, int] = field(default_factory=dict[str, int])

    @classmethod
    def of(cls, tagged: DataFrame, announced: Mapping[str, int] = NOT_ANNOUNCED) -> "Rejected":
        """Return the rejects of a tagged frame that Spark keeps; nobody counts them.

        `announced` are the rows of each file, by the files' footers.
        """
        return cls(split(tagged)[1], None, tagged if announced else None, announced)

    def are_there(self) -> bool:
        """Return whether there are any. A counted frame has to be written before; otherwise it takes a job.

        Raises UnreadableUpdate if other rows were kept than were announced.
        """
        if self.observed:
            return self.observed.get["rejected"] > 0
        return has_rejects(self.kept, self.announced) if self.kept else not self.rows.isEmpty()


def split_on_the_way(kept: DataFrame) -> tuple[DataFrame, Rejected]:
    """As `split`, of a frame that Spark keeps: who writes all of the clean rows has counted the others.

    Nothing may be left out between here and there: rows that nobody asks for are not counted.
    """
    observed = Observation()
    counted = kept.observe(observed, sf.count_if(~is_clean()).alias("rejected"))
    return clean(counted), Rejected(split(kept)[1], observed)


def write_rejects(some: Sequence[Rejected], board: Blackboard, partition: Partition, update_id: str) -> Written:
    """Write rejected rows under a claimed update that holds nothing yet: if there are none, without Spark."""
    there = [each.rows for each in some if each.are_there()]
    if there:
        return write(reduce(DataFrame.unionByName, there), board, partition, update_id)
    part = f"part-00000-{uuid4()}-c000.snappy.parquet"
    board.put(f"{partition.path}/{update_id}/{part}", _NO_REJECTS.read_bytes())
    return written(board, partition, update_id, REJECTS, NO_ROWS)


def split(tagged: DataFrame) -> tuple[DataFrame, DataFrame]:
    """(clean rows with the data's columns, rejected rows as REJECTS).

    One boolean that is never NULL decides. Each half is its own job: persist `tagged` before, so that the second does
    not read and parse again.
    """
    joined = sf.array_join("_reasons", "; ").alias("reason")
    rejected = tagged.where(~is_clean()).select(joined, sf.col("_file").alias("file"), sf.col("_raw").alias("raw"))
    return clean(tagged), rejected
