"""Parquet against a declared schema: Spark would fill a missing column with NULLs and hide an added one, in silence."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.spark.checksums import VERIFIED
from feed_assets.spark.parse import EXACT_JSON, collected, column, missing

OPTIONS: dict[str, bool | str] = {
    "mergeSchema": False,
    "ignoreCorruptFiles": False,
    "ignoreMissingFiles": False,
    **VERIFIED,
}


def read_parquet(
    spark: SparkSession, paths: Mapping[str, str], schema: StructType, required: Sequence[str], file: Column
) -> DataFrame:
    """The tagged frame of Parquet files (key to path); `_raw` is the row as JSON. Each footer is looked at first.

    Raises UnreadableUpdate for a file whose columns or types differ; their order may.
    """
    _check(spark, paths, schema)
    frame = spark.read.options(**OPTIONS).schema(schema).parquet(*paths.values())
    columns = [column(field.name) for field in schema]
    return frame.select(
        *columns,
        sf.to_json(sf.struct(*columns), EXACT_JSON).alias("_raw"),
        file,
        collected([missing(name, column(name)) for name in required]).alias("_reasons"),
    )


def rows_by_file(spark: SparkSession, paths: Mapping[str, str], schema: StructType, file: Column) -> dict[str, int]:
    """Return the rows that Spark finds in each file (by its key), in one job that reads footers and no data."""
    rows = spark.read.options(**OPTIONS).schema(schema).parquet(*paths.values())
    return {row["_file"]: row["count"] for row in rows.groupBy(file).count().collect()}


def _check(spark: SparkSession, paths: Mapping[str, str], schema: StructType) -> None:
    """One small Spark job a file, a few at a time: only Spark knows how it reads a footer's types."""
    expected = _types(schema)

    def footer_of(path: str) -> StructType:
        return spark.read.options(**OPTIONS).parquet(path).schema

    with ThreadPoolExecutor(4) as pool:
        found = pool.map(footer_of, paths.values())
        for key, footer in zip(paths, found, strict=True):
            if (types := _types(footer)) != expected:
                raise UnreadableUpdate(
                    f"{key} has another schema than declared: {_difference(types, expected)}. "
                    "Correct the schema, or have the producer publish a new version of the feed."
                )


def _types(schema: StructType) -> dict[str, str]:
    """The columns' types, without their promises about NULLs, which files never keep."""
    return {field.name: field.dataType.simpleString() for field in schema}


def _difference(found: Mapping[str, str], expected: Mapping[str, str]) -> str:
    names = sorted(name for name in {**found, **expected} if found.get(name) != expected.get(name))
    return "; ".join(
        f"{name}: found {found.get(name, 'no such column')}, expected {expected.get(name, 'no such column')}"
        for name in names
    )
