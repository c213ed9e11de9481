"""CSV with a header, quoted by RFC 4180, as text first: whatever a parser would guess or drop becomes a reason."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from feed_assets.spark.parse import check_scalars, collected, column, complaint, missing, value

_OPTIONS: dict[str, bool | str] = {
    "header": True,
    "enforceSchema": False,  # true ignores the header, and swaps columns in silence
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "escape": '"',  # the default, a backslash, leaves doubled quotes doubled
    "multiLine": True,  # without it a line break in quotes splits a record; with it a file is one task
    "ignoreCorruptFiles": False,
    "ignoreMissingFiles": False,
}

_AS_CSV = {"escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}


def read_csv(spark: SparkSession, paths: list[str], schema: StructType, required: Sequence[str]) -> DataFrame:
    """The tagged frame of CSV files; `_raw` is the record as it was if malformed, else its fields as CSV again."""
    check_scalars(schema, "CSV")
    texts = [StructField(field.name, StringType()) for field in schema]
    frame = (
        spark.read.options(**_OPTIONS).schema(StructType([*texts, StructField("_corrupt", StringType())])).csv(paths)
    )
    typed = [value(column(field.name), field.dataType).alias(field.name) for field in schema]
    raw = sf.coalesce(sf.col("_corrupt"), sf.to_csv(sf.struct(*[column(field.name) for field in schema]), _AS_CSV))
    return frame.select(
        *typed,
        raw.alias("_raw"),
        sf.col("_metadata.file_path").alias("_file"),
        _reasons(schema, required).alias("_reasons"),
    )


def _reasons(schema: StructType, required: Sequence[str]) -> Column:
    """Every column has its part in it, so that Spark never prunes one: pruned columns are not parsed at all."""
    fields = [(field.name, column(field.name), field.dataType) for field in schema]
    complaints = [complaint(name, text, kind) for name, text, kind in fields if not isinstance(kind, StringType)]
    complaints += [_not_utf8(name, text) for name, text, _ in fields]
    complaints += [_runs_on(name, text, len(fields)) for name, text, _ in fields]
    complaints += [missing(name, column(name)) for name in required]
    malformed = sf.array(sf.lit(f"malformed: expected {len(fields)} fields"))
    return sf.when(sf.col("_corrupt").isNotNull(), malformed).otherwise(collected(complaints))


def _not_utf8(name: str, text: Column) -> Column:
    """The parser turns bytes that are not UTF-8 into U+FFFD, in silence: a real U+FFFD is refused with them."""
    return sf.when(text.contains("\ufffd"), sf.lit(f"{name}: not UTF-8"))


def _runs_on(name: str, text: Column, fields: int) -> Column:
    """A quote that nobody closes swallows the records after it: a field then holds a line with all their commas.

    A real text that holds such a line is refused with them: better a reject to look at than records lost.
    """
    record = rf"[\r\n](?:[^,\r\n]*,){{{fields - 1}}}"
    return sf.when(text.rlike(record), sf.lit(f"{name}: holds what looks like another record: an unclosed quote?"))
