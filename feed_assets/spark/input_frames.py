"""Read pinned updates by their exact file lists. No record is silently nulled, rounded, split or dropped."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from feed_assets.core.csv_dialect import RFC_4180, CsvDialect
from feed_assets.core.errors import InvalidDefinition, UnreadableUpdate
from feed_assets.core.feeds import Update
from feed_assets.core.file_checks import Format, check_readable
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.text_files import check_text_files
from feed_assets.spark.csv_files import read_csv
from feed_assets.spark.csv_heads import line_ends
from feed_assets.spark.json_lines import read_json
from feed_assets.spark.parquet_files import OPTIONS, count_rows, read_parquet, rows_by_file, rows_of, types_of
from feed_assets.spark.parse import META, SCHEMAS, is_clean
from feed_assets.spark.plain_json import order_of
from feed_assets.spark.row_counts import check_counts
from feed_assets.spark.spark_errors import reading
from feed_assets.spark.tasks import LEAST_SPLIT, in_one_task
from feed_assets.spark.urls import escaped, spark_path

if TYPE_CHECKING:
    from feed_assets.feeds.parquet_columns import FileColumns

_URL = "_metadata.file_path"


def read(
    spark: SparkSession,
    board: Blackboard,
    updates: Sequence[Update],
    format: Format,  # noqa: A002
    schema: str,
    *,
    required: Sequence[str] = (),
    dialect: CsvDialect = RFC_4180,
) -> DataFrame:
    """Return the tagged frame of some updates: the schema's columns in order, then `_raw`, `_file`, `_reasons`.

    `schema` is DDL. The module `parse` has the table of accepted values by type. Timestamps are UTC. A NULL in a
    `required` column is a reason to reject. `dialect` describes CSV. Raise UnreadableUpdate for files that Spark would
    skip or that differ from the declaration. Raise UpdateChanged for a file that is not as listed. Spark reads
    only when an action runs, so wrap the action in `reading(updates)`. Each CSV file and each .gz file is one task, so
    split large feeds into files of a few hundred megabytes.

    For Parquet files, the row count that Spark finds is compared with the count that the footers declare.
    """
    declared = ddl(spark, schema)
    if unknown := sorted(set(required) - set(declared.fieldNames())):
        raise InvalidDefinition(f"required columns {unknown} are not in the schema ({schema}).")
    keys = _keys(updates, format)
    paths = {key: escaped(spark_path(board.url, key)) for key in keys}
    files = {file.key: file for update in updates for file in update.files}
    # For a single file, the key is a constant, so Spark need not add a URL to each row. For several files, the key
    # is made from the row's URL.
    file = (sf.lit(keys[0]) if len(keys) == 1 else sf.col(_URL)).alias("_file")
    key_of_file = sf.col("_file") if len(keys) == 1 else _key(board, sf.col("_file"))
    with reading(updates):
        if format == "csv":
            ends = line_ends(spark, board, {files[key]: path for key, path in paths.items()}, declared.names, dialect)
            tagged = read_csv(
                spark, {paths[key]: ends[key] for key in paths}, declared, required=required, file=file, dialect=dialect
            )
            return tagged.withColumn("_file", key_of_file)
        if format == "json":
            check_text_files(board, files.values())
            order = order_of(board, [files[key] for key in keys])
            tagged = read_json(spark, [*paths.values()], declared, required=required, file=file, order=order)
            return tagged.withColumn("_file", key_of_file)
        columns = columns_of(board, updates)
        announced = {key: each.rows for key, each in columns.items()}
        if count_rows(spark, paths, declared) != sum(announced.values()):
            check_counts(announced, rows_by_file(spark, paths, declared, partial(_key, board)))
        in_row = sf.lit(keys[0]) if len(keys) == 1 else _key(board, sf.col(_URL))
        return read_parquet(spark, columns, paths, schema=declared, required=required, file=in_row.alias("_file"))


def clean(tagged: DataFrame) -> DataFrame:
    """Return the rows that have no reject reasons, and drop the three columns that `read` added."""
    return tagged.where(is_clean()).drop(*META)


def read_own(spark: SparkSession, board: Blackboard, update: Update, schema: StructType | None = None) -> DataFrame:
    """Return the rows of an update that `write` made, by its exact files. The update may still lack its manifest.

    The rows have no columns for reject reasons. Without `schema`, Spark takes the schema from one footer, because all
    parts come from one job and are alike.
    """
    paths = [escaped(spark_path(board.url, key)) for key in _keys([update], "parquet")]
    with reading([update]):
        reader = spark.read.options(**OPTIONS)
        rows = (reader.schema(schema) if schema else reader).parquet(*paths)
    return in_one_task(rows) if len(paths) == 1 and update.files[0].size < LEAST_SPLIT else rows


def read_parts(spark: SparkSession, board: Blackboard, updates: Sequence[Update], schema: Any) -> DataFrame:
    """Return the columns of a `pyarrow.Schema` from Parquet updates. A column is NULL where a part does not have it.

    The rows have no columns for reject reasons.
    """
    keys = _keys(updates, "parquet")
    paths = {key: escaped(spark_path(board.url, key)) for key in keys}
    columns = columns_of(board, updates)
    types = {name: kind for each in columns.values() for name, kind in types_of(each).items()}
    struct = StructType([StructField(name, types[name]) for name in schema.names])
    file = (sf.lit(keys[0]) if len(keys) == 1 else _key(board, sf.col(_URL))).alias("_file")
    with reading(updates):
        return rows_of(spark.read.options(**OPTIONS), columns, paths, struct, file)


def columns_of(board: Blackboard, updates: Sequence[Update]) -> "dict[str, FileColumns]":
    """Return the columns of Parquet files by key. Raise UnreadableUpdate, UpdateChanged or BlackboardError."""
    # Import this module here, because a process that reads only CSV and JSON does not need it.
    from feed_assets.feeds.parquet_columns import read_columns

    files = {file.key: file for update in updates for file in update.files}
    return read_columns(board, [files[key] for key in sorted(files)])


def ddl(spark: SparkSession, schema: str) -> StructType:
    """Parse a DDL schema, such as `id string, at timestamp`."""
    return _ddl(spark, schema, spark.conf.get("spark.sql.timestampType"))


@lru_cache(SCHEMAS)
def _ddl(spark: SparkSession, schema: str, _timestamp: str | None) -> StructType:
    """Parse a DDL schema.

    `_timestamp` is part of the cache's key, because a Spark profile may change what `timestamp` means.
    """
    # pyspark's stubs name pandas and pyarrow, which have no complete types.
    return spark.createDataFrame([], schema).schema  # pyright: ignore[reportUnknownMemberType]


def _keys(updates: Sequence[Update], form: Format) -> list[str]:
    """Return the keys to read, sorted, each once. Raise UnreadableUpdate for files that Spark would skip."""
    if not updates:
        raise UnreadableUpdate("No updates to read: expected at least one pinned update.")
    for update in updates:
        if not update.files:
            raise UnreadableUpdate(f"{update.path} has no files: expected at least one. Publish it with its data.")
        check_readable(update, form)
    return sorted({file.key for update in updates for file in update.files})


def _key(board: Blackboard, url: Column) -> Column:
    """Return the key below the blackboard from a row's URL, such as `file:/a%20b` or `file:///a%20b`. `+` stays `+`.

    This runs for each row, so only URLs with escapes are decoded.
    """
    decoded = sf.url_decode(sf.replace(url, sf.lit("+"), sf.lit("%2B")))
    path = sf.when(url.contains("%"), decoded).otherwise(url)
    is_short = path.startswith("file:/") & ~path.startswith("file:///")
    path = sf.when(is_short, sf.regexp_replace(path, "^file:/+", "file:///")).otherwise(path)
    return sf.substring(path, len(spark_path(board.url, "")) + 2, 1_000_000)
