"""CSV with a header, quoted by RFC 4180, as text first: whatever a parser would guess or drop becomes a reason."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from feed_assets.spark.parse import collected, column, complaint, missing, value

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

_MALFORMED, _TEXTS = "_corrupt._corrupt", "_corrupt.texts"
_AS_CSV = {"escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}


def read_csv(spark: SparkSession, paths: list[str], schema: StructType, required: Sequence[str]) -> DataFrame:
    """The tagged frame of CSV files; `_raw` is the record as it was if malformed, else its fields as CSV again."""
    names = [field.name for field in schema]
    texts = StructType([*(StructField(name, StringType()) for name in names), StructField("_corrupt", StringType())])
    frame = spark.read.options(**_OPTIONS).schema(texts).csv(paths)
    # In one struct, so that no column of the schema can be taken for one of ours.
    fields = sf.struct("_corrupt", sf.struct(*map(column, names)).alias("texts")).alias("_corrupt")
    read = frame.select(fields, sf.col("_metadata.file_path").alias("_file"))
    # A step of its own: what is used twice, here and in the reasons, is found once.
    typed = [value(_text(field.name), field.dataType).alias(field.name) for field in schema]
    raw = sf.coalesce(_MALFORMED, sf.to_csv(_TEXTS, _AS_CSV)).alias("_raw")
    found = read.select("*", *typed, raw)
    return found.select(*map(column, names), "_raw", "_file", _reasons(schema, required).alias("_reasons"))


def _text(name: str) -> Column:
    return sf.col(_TEXTS).getField(name)


def _reasons(schema: StructType, required: Sequence[str]) -> Column:
    """Every column has its part in it, so that Spark never prunes one: pruned columns are not parsed at all."""
    malformed = sf.array(sf.lit(f"malformed: expected {len(schema)} fields"))
    wrong = collected(
        [
            complaint(field.name, _text(field.name), field.dataType, column(field.name))
            for field in schema
            if not isinstance(field.dataType, StringType)
        ]
    )
    absent = collected([missing(name, _text(name)) for name in required])
    return sf.when(sf.col(_MALFORMED).isNotNull(), malformed).otherwise(sf.concat(wrong, _odd(schema), absent))


def _odd(schema: StructType) -> Column:
    """What is wrong with texts whatever their type. One look at the record shows that nothing is, as is usual.

    The parser turns bytes that are not UTF-8 into U+FFFD, in silence: a real U+FFFD is refused with them. A quote that
    is never closed swallows the records after it: a field then holds a line with all their commas. A real text that
    holds such a line is refused with them: better a reject to look at than records lost.
    """
    record = rf"[\r\n](?:[^,\r\n]*,){{{len(schema) - 1}}}"
    texts = sf.array(*[sf.struct(sf.lit(name).alias("name"), _text(name).alias("text")) for name in schema.names])
    not_utf8 = _wrong(texts, lambda text: text.contains("\ufffd"), "not UTF-8")
    runs_on = _wrong(texts, lambda text: text.rlike(record), "holds what looks like another record: an unclosed quote?")
    raw = sf.col("_raw")
    return sf.when(
        raw.contains("\ufffd") | raw.contains("\r") | raw.contains("\n"), sf.concat(not_utf8, runs_on)
    ).otherwise(sf.array().cast("array<string>"))


def _wrong(texts: Column, is_bad: Callable[[Column], Column], why: str) -> Column:
    bad = sf.filter(texts, lambda each: is_bad(each["text"]))
    return sf.transform(bad, lambda each: sf.concat(each["name"], sf.lit(f": {why}")))
