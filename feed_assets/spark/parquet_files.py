"""Parquet files, checked against a declared schema. Spark silently fills missing columns and hides extra ones.

The driver reads the footers and gives Spark the types to read. Otherwise Spark would use the schema that a writer has
noted in the footer, and fail with Java errors for types that Spark does not have.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.types import StructField, StructType

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.message_words import excerpt
from feed_assets.spark.checksums import VERIFIED
from feed_assets.spark.parse import EXACT_JSON, collected, column, missing
from feed_assets.spark.spark_values import Stored, spark_type

if TYPE_CHECKING:
    from feed_assets.feeds.parquet_columns import FileColumns

_SHOWN = 3
"""Number of columns that an error names. A file may have hundreds of thousands."""

OPTIONS: dict[str, bool | str] = {
    "mergeSchema": False,
    "ignoreCorruptFiles": False,
    "ignoreMissingFiles": False,
    # The calendar for files that name no Spark version, whatever the session's setting is.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    **VERIFIED,
}

_WITHOUT_STATISTICS: dict[str, bool | str] = {
    f"parquet.filter.{each}.enabled": False for each in ("stats", "columnindex", "dictionary", "bloom")
}
"""Options for files of other writers. By a false minimum in a footer, a filter would leave out rows that are there."""


def read_parquet(
    spark: SparkSession,
    columns: "Mapping[str, FileColumns]",
    paths: Mapping[str, str],
    schema: StructType,
    required: Sequence[str],
    file: Column,
) -> DataFrame:
    """Return the rows of Parquet files as a tagged frame (see `rejects`). Its column `_raw` has the row as JSON.

    `columns` and `paths` have the columns and the path of each file, by key. Raise UnreadableUpdate for a file with
    other columns or types. The order of the columns may differ. Filters read each row, whatever the footers say.
    """
    _check(columns, schema)
    names = [column(field.name) for field in schema]
    reader = spark.read.options(**OPTIONS, **_WITHOUT_STATISTICS)
    return rows_of(reader, columns, paths, schema=schema, file=file, extra=[file]).select(
        *names,
        sf.to_json(sf.struct(*names), EXACT_JSON).alias("_raw"),
        "_file",
        collected([missing(name, column(name)) for name in required]).alias("_reasons"),
    )


def rows_of(
    reader: DataFrameReader,
    columns: "Mapping[str, FileColumns]",
    paths: Mapping[str, str],
    schema: StructType,
    file: Column,
    extra: Sequence[Column] = (),
) -> DataFrame:
    """Return the columns of `schema` and of `extra`. A column is NULL where a file does not have it.

    `file` is the column with the file's key.
    """
    alike: dict[tuple[Stored, ...], list[str]] = {}
    for key, each in columns.items():
        alike.setdefault(tuple(_stored(each, schema)), []).append(paths[key])
    frames: list[DataFrame] = []
    for stored, group in alike.items():
        struct = StructType([StructField(each.name, each.kind) for each in stored])
        rows = reader.schema(struct).parquet(*group)
        values = [each.value(field.dataType, file) for each, field in zip(stored, schema, strict=True)]
        frames.append(rows.select(*values, *extra))
    return reduce(DataFrame.unionAll, frames)


def count_rows(spark: SparkSession, paths: Mapping[str, str], schema: StructType) -> int:
    """Return the number of rows that Spark finds in all files, in one job that reads only footers."""
    return spark.read.options(**OPTIONS).schema(schema).parquet(*paths.values()).count()


def rows_by_file(
    spark: SparkSession, paths: Mapping[str, str], schema: StructType, key: Callable[[Column], Column]
) -> dict[str, int]:
    """Return the number of rows that Spark finds in each file, by key, in one job that reads only footers.

    `key` turns a URL into a key, once per file instead of once per row.
    """
    rows = spark.read.options(**OPTIONS).schema(schema).parquet(*paths.values())
    counts = rows.groupBy(sf.col("_metadata.file_path").alias("url")).count()
    return {row["key"]: row["count"] for row in counts.select(key(sf.col("url")).alias("key"), "count").collect()}


def _stored(columns: "FileColumns", schema: StructType) -> Iterator[Stored]:
    """Yield, for each column of a schema, how a file stores it.

    A column whose values need no conversion counts as stored with its declared type.
    """
    for field in schema:
        at = columns.types.get_field_index(field.name)
        is_same = at < 0 or columns.types.field(at).type == columns.stored.field(at).type
        kind = field.dataType if is_same else spark_type(columns.stored.field(at).type)
        yield Stored(field.name, kind, field.name in columns.old)


def types_of(columns: "FileColumns") -> dict[str, st.DataType]:
    """Return the types of a file's columns."""
    types = {each.name: spark_type(each.type) for each in columns.types}
    return {name: st.VariantType() if name in columns.variants else kind for name, kind in types.items()}


def _check(columns: "Mapping[str, FileColumns]", schema: StructType) -> None:
    expected = {field.name: field.dataType for field in schema}
    declared = {name: kind.simpleString() for name, kind in expected.items()}
    for key, each in columns.items():
        stored = {
            name: "variant" if _is_variant(kind, expected.get(name)) else kind.simpleString()
            for name, kind in types_of(each).items()
        }
        if stored != declared:
            raise UnreadableUpdate(
                f"{key} has another schema than declared: {_difference(stored, declared)}. "
                "Correct the schema, or have the producer publish a new version of the feed."
            )


def _is_variant(stored: st.DataType, expected: st.DataType | None) -> bool:
    """Return whether a column is declared and stored as a variant.

    Spark 4.0 wrote variants without their annotation.
    """
    if not isinstance(expected, st.VariantType) or not isinstance(stored, StructType):
        return isinstance(stored, st.VariantType)
    return {"metadata", "value"} <= {*stored.fieldNames()}


def _difference(stored: Mapping[str, str], expected: Mapping[str, str]) -> str:
    names = sorted(name for name in {**stored, **expected} if stored.get(name) != expected.get(name))
    texts = [
        f"{excerpt(name)}: found {excerpt(stored.get(name, 'no such column'))}, "
        f"expected {excerpt(expected.get(name, 'no such column'))}"
        for name in names[:_SHOWN]
    ]
    further = len(names) - len(texts)
    return "; ".join([*texts, f"and {further:,} more"] if further else texts)
