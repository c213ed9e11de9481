"""CSV by RFC 4180, read as text first. A record is rejected where a parser would guess, alter or drop something.

Spark's parser separates the records. Spark gets a schema with more columns than the files have, so it treats each
record as corrupt: it returns the fields and also the raw text. A record is plain if its length is the length of its
fields and delimiters, and it has no quote and no carriage return. Every other record is checked against the grammar.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StringType, StructField, StructType

from feed_assets.core.csv_dialect import CsvDialect
from feed_assets.spark.csv_records import Grammar
from feed_assets.spark.parse import SCHEMAS, complaint, form_of, missing, value
from feed_assets.spark.tasks import in_one_task

LineEnd = Literal["\n", "\r"]

_OPTIONS: dict[str, bool | str] = {
    "enforceSchema": True,  # Do not compare headers: `csv_heads` does it, and this schema has more columns.
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "multiLine": True,  # Otherwise line breaks in quotes split a record. With it, each file is one task.
    "ignoreCorruptFiles": False,
    "ignoreMissingFiles": False,
}
MORE = 50
"""Number of additional columns declared to Spark.

A record must not fill all declared columns, because Spark then returns no raw text for it.
"""

_NO_QUOTE = "\uffff"
"""Quote character for a dialect without quotes. No text contains it. Spark would use NUL, which some texts contain."""

_CHARSETS = {"UTF-8": "UTF-8", "UTF-16": "UTF-16", "Latin-1": "ISO-8859-1"}


@dataclass(frozen=True)
class _Field:
    """A column of the schema, with the names of the columns that hold its text and its value."""

    name: str
    kind: DataType
    text: str
    value: str


@dataclass(frozen=True)
class _Columns:
    """The column expressions of a CSV frame, computed in steps.

    An expression that is used twice gets its own step, so that Spark computes it only once.
    """

    scanned: StructType
    is_record: Column
    steps: tuple[tuple[Column, ...], ...]


def read_csv(
    spark: SparkSession,
    paths: Mapping[str, LineEnd],
    schema: StructType,
    required: Sequence[str],
    file: Column,
    dialect: CsvDialect,
) -> DataFrame:
    """Return the tagged frame of CSV files: the schema's columns, the raw record, its file, and reasons to reject it.

    `paths` has the line end of each path.
    """
    ends: list[LineEnd] = sorted({*paths.values()})
    alike: dict[LineEnd, list[str]] = {end: [path for path, other in paths.items() if other == end] for end in ends}
    frames = [
        _read(spark, some, schema, required=tuple(required), file=file, dialect=dialect, line_end=end)
        for end, some in alike.items()
    ]
    return reduce(DataFrame.unionAll, frames)


def _read(
    spark: SparkSession,
    paths: list[str],
    schema: StructType,
    required: tuple[str, ...],
    file: Column,
    dialect: CsvDialect,
    line_end: LineEnd,
) -> DataFrame:
    columns = _columns(spark, schema, required, dialect, line_end)
    own = {"sep": dialect.delimiter, "quote": dialect.quote or _NO_QUOTE, "escape": dialect.quote or _NO_QUOTE}
    form = {"lineSep": line_end, "header": dialect.header, "encoding": _CHARSETS[dialect.encoding]}
    frame = spark.read.options(**_OPTIONS, **own, **form).schema(columns.scanned).csv(paths)
    if len(paths) == 1:  # With `multiLine` each file is one task.
        frame = in_one_task(frame)
    frame = frame.select("*", file).where(columns.is_record)
    return reduce(lambda frame, step: frame.select(*step), columns.steps, frame)


@lru_cache(SCHEMAS)
def _columns(
    _session: SparkSession, schema: StructType, required: tuple[str, ...], dialect: CsvDialect, line_end: LineEnd
) -> _Columns:
    """Return the column expressions of a schema.

    They cost thousands of calls to the JVM, so each session caches them.
    """
    fields = [_Field(each.name, each.dataType, f"_text{n}", f"_value{n}") for n, each in enumerate(schema)]
    texts = [each.text for each in fields]
    surplus = [f"_more{n}" for n in range(MORE)]
    scanned = StructType([StructField(name, StringType()) for name in (*texts, *surplus, "_corrupt")])
    grammar = Grammar(texts, dialect, line_end)
    raw = _opaque(grammar.raw()).alias("_raw")
    kept = [sf.col("_file"), sf.col("_raw"), sf.col("_is_plain")]
    nulled = [grammar.nulled(each.text).alias(each.text) for each in fields]
    values = [value(sf.col(each.text), each.kind).alias(each.value) for each in fields]
    named = [sf.col(each.value).alias(each.name) for each in fields]
    steps = (
        (sf.col("_file"), *map(sf.col, texts), raw),
        (sf.col("_file"), *map(sf.col, texts[:-1]), grammar.last().alias(texts[-1]), sf.col("_raw")),
        (sf.col("_file"), sf.col("_raw"), *map(sf.col, texts), _opaque(grammar.is_plain()).alias("_is_plain")),
        (*kept, *nulled),
        (*kept, *map(sf.col, texts), *values),
        (*named, sf.col("_raw"), sf.col("_file"), _reasons(fields, required, grammar).alias("_reasons")),
    )
    return _Columns(scanned, _is_record(), steps)


def _is_record() -> Column:
    # `is_blank` is true for a blank line that ends with CR and LF. Spark accepts no condition on `_corrupt` alone.
    is_blank = (sf.coalesce("_corrupt", sf.lit("?")) == "") & (sf.coalesce("_text0", sf.lit("")) == "\r")
    # Spark reads a file with nothing but a byte order mark as a record with NUL.
    is_mark = (sf.coalesce("_corrupt", sf.lit("?")) == "\ufeff") & (sf.coalesce("_text0", sf.lit("")) == "\0")
    return ~is_blank & ~is_mark


def _opaque(column: Column) -> Column:
    """Return an expression over all columns in a form that Spark's optimizer cannot analyze.

    Otherwise it would repeat each conclusion about the expression for every combination of the columns' names. Each of
    n columns has two names, so there would be 2^n conclusions, and planning would never end.
    """
    return sf.when(sf.monotonically_increasing_id() >= 0, column)


def _reasons(fields: Sequence[_Field], required: Sequence[str], grammar: Grammar) -> Column:
    """Return the reasons to reject a record.

    Only suspicious records are searched for reasons, so a correct record costs only a few checks.
    """
    typed = [each for each in fields if not isinstance(each.kind, StringType)]
    absent = [next(each for each in fields if each.name == name) for name in required]
    refused = [sf.col(each.text).isNotNull() & sf.col(each.value).isNull() for each in typed]
    unknown = [sf.col(each.text).isNull() for each in absent]
    wrong = [complaint(each.name, sf.col(each.text), each.kind, sf.col(each.value)) for each in typed]
    lacking = [missing(each.name, sf.col(each.text)) for each in absent]
    names = [each.name for each in fields]
    every = sf.array_compact(
        sf.concat(_array(wrong), *grammar.odd_texts(names, [form_of(each.kind) for each in fields]), _array(lacking))
    )
    is_odd = reduce(
        lambda one, other: one | other, [~grammar.is_fine(), *refused, *unknown, grammar.may_hold_odd_text()]
    )
    return sf.when(is_odd, grammar.reasons(every)).otherwise(_array([]))


def _array(texts: Sequence[Column]) -> Column:
    return sf.array(*texts).cast("array<string>")
