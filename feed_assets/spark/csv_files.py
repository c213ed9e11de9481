"""CSV with a header, quoted by RFC 4180, as text first: whatever a parser would guess or drop becomes a reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StringType, StructField, StructType

from feed_assets.spark.parse import SCHEMAS, column, complaint, missing, value
from feed_assets.spark.tasks import in_one_task

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
_CORRUPT = StructField("_corrupt", StringType())


@dataclass(frozen=True)
class _Field:
    """A column of the schema, and where its text and its value are: under names that no schema's column is near."""

    name: str
    kind: DataType
    text: str
    value: str


@dataclass(frozen=True)
class _Columns:
    """What is made of the columns of a schema, step by step; a step more where something is used twice."""

    texts: tuple[Column, ...]
    values: tuple[Column, ...]
    named: tuple[Column, ...]


def read_csv(
    spark: SparkSession, paths: list[str], schema: StructType, required: Sequence[str], file: Column
) -> DataFrame:
    """The tagged frame of CSV files; `_raw` is the record as it was if malformed, else its fields as CSV again."""
    columns = _columns(spark, schema, tuple(required))
    texts = StructType([*(StructField(name, StringType()) for name in schema.names), _CORRUPT])
    frame = spark.read.options(**_OPTIONS).schema(texts).csv(paths)
    if len(paths) == 1:  # With `multiLine` no file is shared.
        frame = in_one_task(frame)
    return frame.select(file, *columns.texts).select("*", *columns.values).select(*columns.named)


@lru_cache(SCHEMAS)
def _columns(_session: SparkSession, schema: StructType, required: tuple[str, ...]) -> _Columns:
    """The columns of a schema: thousands of calls to the JVM, so they are kept, for each session its own."""
    fields = [_Field(each.name, each.dataType, f"_text{n}", f"_value{n}") for n, each in enumerate(schema)]
    texts = [column(each.name).alias(each.text) for each in fields]
    values = [value(sf.col(each.text), each.kind).alias(each.value) for each in fields]
    raw = sf.coalesce("_corrupt", sf.to_csv(sf.struct(*[each.text for each in fields]), _AS_CSV)).alias("_raw")
    named = [sf.col(each.value).alias(each.name) for each in fields]
    reasons = _reasons(fields, required).alias("_reasons")
    return _Columns((sf.col("_corrupt"), *texts), (*values, raw), (*named, sf.col("_raw"), sf.col("_file"), reasons))


def _reasons(fields: Sequence[_Field], required: Sequence[str]) -> Column:
    """The reasons, which are looked for in odd records only: one in which nothing is wrong costs a few looks.

    Every column has its part in it, so that Spark never prunes one: pruned columns are not parsed at all.
    """
    typed = [each for each in fields if not isinstance(each.kind, StringType)]
    absent = [next(each for each in fields if each.name == name) for name in required]
    refused = [sf.col(each.text).isNotNull() & sf.col(each.value).isNull() for each in typed]
    unknown = [sf.col(each.text).isNull() for each in absent]
    wrong = [complaint(each.name, sf.col(each.text), each.kind, sf.col(each.value)) for each in typed]
    lacking = [missing(each.name, sf.col(each.text)) for each in absent]
    malformed = sf.array(sf.lit(f"malformed: expected {len(fields)} fields"))
    every = sf.array_compact(sf.concat(_array(wrong), *_odd(fields), _array(lacking)))
    is_odd = reduce(lambda one, other: one | other, [_is_malformed(), *refused, *unknown, _holds_odd_text(fields)])
    return sf.when(is_odd, sf.when(_is_malformed(), malformed).otherwise(every)).otherwise(_array([]))


def _array(texts: Sequence[Column]) -> Column:
    return sf.array(*texts).cast("array<string>")


def _is_malformed() -> Column:
    return sf.col("_corrupt").isNotNull()


def _holds_odd_text(fields: Sequence[_Field]) -> Column:
    """Whether `_odd` may find something: a line break inside of a field always puts that into quotes.

    A record with quotes is longer than its fields and commas: bytes that are known are added up, and none looked at.
    """
    lengths = " + ".join(f"coalesce(octet_length({each.text}), 0)" for each in fields)
    is_quoted = sf.expr(f"octet_length(_raw) <> {len(fields) - 1} + {lengths}")
    return is_quoted | sf.col("_raw").contains("\ufffd")


def _odd(fields: Sequence[_Field]) -> tuple[Column, Column]:
    """What is wrong with texts whatever their type; NULL for each text with which nothing is.

    The parser turns bytes that are not UTF-8 into U+FFFD, in silence: a real U+FFFD is refused with them. A quote that
    is never closed swallows the records after it: a field then holds a line with all their commas. A real text that
    holds such a line is refused with them: better a reject to look at than records lost.
    """
    record = rf"[\r\n](?:[^,\r\n]*,){{{len(fields) - 1}}}"
    not_utf8 = _wrong(fields, lambda text: text.contains("\ufffd"), "not UTF-8")
    runs_on = _wrong(
        fields, lambda text: text.rlike(record), "holds what looks like another record: an unclosed quote?"
    )
    return not_utf8, runs_on


def _wrong(fields: Sequence[_Field], is_bad: Callable[[Column], Column], why: str) -> Column:
    """Over arrays, not column by column: Java compiles what is done for each row the better the shorter it is."""
    names, texts = sf.array(*[sf.lit(each.name) for each in fields]), sf.array(*[sf.col(each.text) for each in fields])
    return sf.zip_with(names, texts, lambda name, text: sf.when(is_bad(text), sf.concat(name, sf.lit(f": {why}"))))
