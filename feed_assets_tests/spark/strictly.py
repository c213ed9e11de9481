"""The first, slow implementation of strict CSV reading, every rule on every row: faster ones must agree with it."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.types import StringType, StructField, StructType

from feed_assets.core.message_words import with_article

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_MOMENT = f"{_DAY}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}"
_OFFSET = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"
_FORMS: dict[type[st.DataType], str] = {
    st.IntegralType: "-?[0-9]+",
    st.DecimalType: r"-?[0-9]+(\.[0-9]+)?",
    st.FractionalType: r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?",
    st.BooleanType: "(?i)(true|false)",
    st.DateType: _DAY,
    st.TimestampType: rf"{_MOMENT}(\.[0-9]{{1,6}})?{_OFFSET}?",
    st.TimestampNTZType: rf"{_MOMENT}(\.[0-9]{{1,6}})?",
}


def column(name: str) -> Column:
    """Return the column with exactly this name: Spark would take a dot as access to a struct field."""
    return sf.col("`" + name.replace("`", "``") + "`")


def matches(text: Column, pattern: str) -> Column:
    r"""Return True if the whole text matches. `$` would accept a line break at the end, `\z` does not."""
    return text.rlike(rf"\A(?:{pattern})\z")


def value(text: Column, kind: st.DataType) -> Column:
    """Return the typed value; NULL if the text is NULL or not exactly of this type."""
    form = _form(kind)
    if form is None:
        return text
    cast = sf.when(_has_offset(text), text).otherwise(sf.concat(text, sf.lit("Z"))) if _is_moment(kind) else text
    found = cast.try_cast(kind)
    fits = matches(text, form)
    if isinstance(kind, st.DecimalType):  # The other forms have no more digits than their types keep.
        fits = fits & ~_too_fine(text, kind)
    elif isinstance(kind, st.FractionalType):
        fits = fits & (sf.abs(found) != sf.lit(float("inf")))
    return sf.when(fits, found)


def complaint(name: str, text: Column, kind: st.DataType, found: Column) -> Column:
    """Return why the text is not of this type (`found` is its `value`), as `<column>: …`; NULL if valid or missing."""
    fine = sf.when(_too_fine(text, kind), sf.lit(f"{name}: more than {_digits(kind)} digits after the point"))
    wrong = sf.coalesce(fine, sf.lit(f"{name}: not {with_article(kind.simpleString())}"))
    return sf.when(text.isNotNull() & found.isNull(), wrong)


def missing(name: str, text: Column) -> Column:
    """Return a reason if a required value is missing."""
    return sf.when(text.isNull(), sf.lit(f"{name}: missing"))


def collected(complaints: Sequence[Column]) -> Column:
    """Return the complaints that are not NULL; if there are none, as for most rows, an empty array and not NULL."""
    none = sf.array().cast("array<string>")
    if not complaints:
        return none
    return sf.when(sf.coalesce(*complaints).isNull(), none).otherwise(sf.array_compact(sf.array(*complaints)))


def _form(kind: st.DataType) -> str | None:
    return next((form for types, form in _FORMS.items() if isinstance(kind, types)), None)


def _is_moment(kind: st.DataType) -> bool:
    return isinstance(kind, st.TimestampType)


def _has_offset(text: Column) -> Column:
    """Return True if a timestamp text has an offset. A pattern would take ten times as long."""
    return text.endswith("Z") | text.contains("+") | (sf.locate("-", text, len("YYYY-MM-DD ")) > 0)


def _digits(kind: st.DataType) -> int:
    return kind.scale if isinstance(kind, st.DecimalType) else 6


def _too_fine(text: Column, kind: st.DataType) -> Column:
    """Return True if the fraction has more digits than the type keeps: a cast would round or cut it silently."""
    if isinstance(kind, st.DecimalType):
        return sf.length(sf.regexp_extract(text, r"\A-?[0-9]+\.([0-9]*?)0*\z", 1)) > kind.scale
    if isinstance(kind, (st.TimestampType, st.TimestampNTZType)):
        return matches(text, rf"{_MOMENT}\.[0-9]{{7,}}{_OFFSET}?")
    return sf.lit(False)


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


def read_strictly(spark: SparkSession, paths: list[str], schema: StructType, required: Sequence[str]) -> DataFrame:
    """Return the tagged frame of CSV files. `_raw` is the original record if malformed, else its fields as CSV."""
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
    """Return complaints about texts of any type. One test of the whole record is enough for the usual row without any.

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
