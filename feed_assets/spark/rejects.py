"""Tagged frames: rows with the reasons to reject them, until they are split into clean and rejected rows.

A tagged frame has the data's columns, then `_raw string` (the record as text), `_file string` (the key of the record's
file below the blackboard) and `_reasons array<string>` (empty for a clean row). Each row becomes either a clean or a
rejected row. The write of the clean rows also observes the digest of the rejected rows, and collects up to KEPT of
them. If there are more than KEPT, the rejected rows are computed again and must have the same digest.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from feed_assets.core.data_version import NO_ROWS, combined
from feed_assets.core.errors import UnstableRejects
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.write_result import Written
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.spark.digest import digest, hash_of, parts_of
from feed_assets.spark.parse import META, SCHEMAS, column, is_clean, reasons
from feed_assets.spark.sizing import bytes_of
from feed_assets.spark.tally import observed_values
from feed_assets.spark.written_frame import write, written

REJECTS = StructType([StructField(name, StringType()) for name in ("reason", "file", "raw")])
"""Schema of a rejects dataset: the reasons joined by '; ', the file's key, the record's text."""
KEPT = 10_000
"""Greatest number of rejected records that the write of the clean rows collects."""
_OF_ALL_TASKS = 100_000
"""Greatest number of rejected records that all tasks collect. The records with the smallest hashes are kept."""
_TASK_BYTES = 64 << 20
"""Least number of bytes that a task reads, if the data are large."""
_LONGEST = 400
"""Greatest number of bytes of a collected record, with its reasons and file. Longer records are not collected."""
_REJECT = "_feed_assets_reject"
"""The name of a column that has a rejected record and its hash. It is NULL for a clean row."""
_RECORD = dict(zip(REJECTS.names, ("array_join(_reasons, '; ')", "_file", "_raw"), strict=True))
"""SQL for the columns of REJECTS in a tagged frame.

An SQL text costs one JVM call. A column expression costs one for each of its parts.
"""
_NAMED = [f"{sql} AS {name}" for name, sql in _RECORD.items()]
# A file without rows, as Spark writes it for the schema REJECTS.
_NO_REJECTS = Path(__file__).with_name("no_rejects.parquet")


def is_tagged(frame: DataFrame) -> bool:
    """Return whether the frame has the columns `_raw`, `_file` and `_reasons`."""
    return set(META) <= set(frame.columns)


def reject(tagged: DataFrame, when: Column, reason: str) -> DataFrame:
    """Add a reason to each row for which a condition is true.

    Args:
        tagged: A tagged input, with the columns `_raw`, `_file` and `_reasons`.
        when: The condition. NULL counts as false.
        reason: The reason to reject the row, such as `position: not 1, 2 or 3`.

    Returns:
        The frame with the added reasons.
    """
    # The expression reads `_reasons` once, so that Spark merges several calls of `reject` into one expression.
    addition = sf.when(when, sf.array(sf.lit(reason))).otherwise(sf.expr("cast(array() AS array<string>)"))
    return tagged.withColumn("_reasons", sf.concat(reasons(), addition))


def reject_duplicates(tagged: DataFrame, key: Sequence[str], order: Sequence[Column]) -> DataFrame:
    """Reject all but the first row of each key.

    Only rows without a reason compete, so that a rejected row never displaces a good row. A row with NULL in its key
    never counts as a duplicate: reject such a row as missing.

    Args:
        tagged: A tagged input, with the columns `_raw`, `_file` and `_reasons`.
        key: The columns of the key.
        order: The sort order of the rows of a key; the first row stays. Equal rows are sorted by `_raw`, then by
            `_file`.

    Returns:
        The frame with the added reasons.
    """
    competes = is_clean()
    for name in key:
        competes &= column(name).isNotNull()
    window = Window.partitionBy(competes, *map(column, key)).orderBy(*order, "_raw", "_file")
    return reject(tagged, competes & (sf.row_number().over(window) > 1), f"duplicate of {', '.join(key)}")


@dataclass(frozen=True)
class RejectedRows:
    """Rejected rows, with the columns REJECTS, and their counts from the write of the clean rows.

    If that write did not collect all of them, the rejected rows are computed again, and must have the same digest. No
    frame is cached for this.
    """

    rows: DataFrame
    counts: Callable[[], Mapping[str, Any]]

    def written(self) -> DataFrame:
        """Return a frame of all rejected rows, for the write of the rejects.

        If the write of the clean rows collected all rejected rows, the frame holds these. Otherwise it computes them
        again.
        """
        counts = self.counts()
        kept = [(each["reason"], each["file"], each["raw"]) for each in counts["_some"] or ()]
        if len(kept) < counts["_records"]:
            return self.rows
        frame: DataFrame = self.rows.sparkSession.createDataFrame(kept, REJECTS)  # pyright: ignore[reportUnknownMemberType]
        return frame.coalesce(1)

    @classmethod
    def on_the_way(cls, tagged: DataFrame, kept: int = KEPT) -> tuple[DataFrame, "RejectedRows"]:
        """Split a function's result into clean and rejected rows.

        The write of the clean rows counts the rejected rows.
        """
        observation = Observation()
        counts = reject_counts(tagged.sparkSession, kept).values()
        records = apart(tagged)
        counted = records.observe(observation, *counts)

        def count() -> Mapping[str, Any]:
            # If no row can be clean, the optimizer removes the observation, and the observation has no values.
            return observed_values(observation) or records.agg(*counts).collect()[0].asDict()

        return without_rejects(counted), cls(rejected_rows(tagged), count)


def apart(tagged: DataFrame) -> DataFrame:
    """Replace the columns `_raw` and `_reasons` of a tagged frame by one column with the rejected record.

    It is NULL for a clean row.
    """
    return tagged.withColumn(_REJECT, _reject(tagged.sparkSession)).drop("_raw", "_reasons")


@lru_cache(SCHEMAS)
def _reject(_session: SparkSession) -> Column:
    texts = [sf.expr(text) for text in _RECORD.values()]
    digested = hash_of([(text, text) for text in texts])
    return sf.when(~is_clean(), sf.struct(digested.alias("hash"), *map(sf.expr, _NAMED)))


def kept_of(updates: Sequence[Update]) -> int:
    """Return how many rejected records each task may collect while it reads some updates.

    The driver keeps the collected records of every task until the job ends, in several copies of at most 40 MB each.
    """
    tasks = 1 + sum(len(update.files) for update in updates) + bytes_of(updates) // _TASK_BYTES
    return max(min(KEPT, _OF_ALL_TASKS // tasks), 1)


@lru_cache(SCHEMAS)
def reject_counts(_session: SparkSession, kept: int) -> dict[str, Column]:
    """Return aggregates, by name, for a frame made by `apart`: the rejects' digest parts, and up to `kept` rejects."""
    row, size = sf.col(f"{_REJECT}.hash"), " + ".join(f"octet_length({_REJECT}.{name})" for name in REJECTS.names)
    sample = sf.min_by(_REJECT, sf.when(sf.expr(f"{size} <= {_LONGEST}"), row), kept)
    return {name: each.alias(name) for name, each in {**parts_of(row), "_some": sample}.items()}


def without_rejects(frame: DataFrame) -> DataFrame:
    """Return the clean rows of a frame made by `apart`."""
    return frame.where(f"{_REJECT} IS NULL").drop(_REJECT, "_file")


def write_rejects(rejected: Sequence[RejectedRows], board: Blackboard, partition: Partition, update_id: str) -> Written:
    """Write rejected rows under an empty claimed update. Without rejected rows, Spark is not used.

    Raise UnstableRejects if the rows differ from the rows that were counted while the clean rows were written.
    """
    counts = [each.counts() for each in rejected]
    if not any(each["_records"] for each in counts):
        part = f"part-00000-{uuid4()}-c000.snappy.parquet"
        board.put(f"{partition.path}/{update_id}/{part}", _NO_REJECTS.read_bytes())
        return written(board, partition, update_id, REJECTS, NO_ROWS)
    frames = [each.written() for each, found in zip(rejected, counts, strict=True) if found["_records"]]
    result = write(reduce(DataFrame.unionByName, frames), board, partition, update_id)
    expected = combined(counts)
    if result.data_version != digest(REJECTS, expected):
        raise UnstableRejects(
            f"{partition.feed}: {expected['_records']:,} records were rejected while the dataset was written, but "
            f"{result.records:,} or other records when they were computed again: expected the same records, so that "
            "each record is either in the dataset or rejected. Nothing was published. Make the function's rejects "
            "depend on its input alone: give rand() a seed, order windows by a whole key, or end it with "
            ".localCheckpoint()."
        )
    return result


def rejected_rows(tagged: DataFrame) -> DataFrame:
    """Return the rejected rows of a tagged frame with the columns REJECTS."""
    return tagged.where(~is_clean()).selectExpr(*_NAMED)
