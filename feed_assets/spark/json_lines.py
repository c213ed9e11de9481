"""Strict JSON lines, one object per line. A line with a value of a JSON type that does not fit is rejected.

| declared type | JSON value |
|---|---|
| string | string |
| integers | number whose value is whole (`7.0` is 7) |
| float, double | number |
| decimal(p,s) | number without an exponent and of at most 38 digits, or string, which keeps all its digits |
| boolean | true, false |
| date, timestamp | string, in the forms that `parse` takes |

A whole line is rejected if it is not UTF-8 or not one object, or has an unknown field, a repeated field, or half of a
surrogate pair. Blank lines are not records. Nested values cannot be read: publish them as Parquet.

One pattern (`plain_json`) recognises plain lines, which keep all of these rules. This module parses all other lines.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from feed_assets.core.message_words import with_article
from feed_assets.spark import plain_json
from feed_assets.spark.parse import collected, complaint, missing, once, value

_OPTIONS: dict[str, bool | str] = {"lineSep": "\n", "ignoreCorruptFiles": False, "ignoreMissingFiles": False}
_EXACT = "BIGINT|DECIMAL.*"
_KINDS: dict[type[st.DataType], str] = {
    st.StringType: "STRING",
    st.IntegralType: _EXACT,
    st.DecimalType: f"{_EXACT}|STRING",
    st.FractionalType: f"{_EXACT}|DOUBLE",
    st.BooleanType: "BOOLEAN",
}


def read_json(
    spark: SparkSession,
    paths: list[str],
    schema: st.StructType,
    required: Sequence[str],
    file: Column,
    order: Sequence[str],
) -> DataFrame:
    """Return the tagged frame of JSON lines: the schema's columns, the raw line, its file, and reasons to reject it.

    `_raw` is the line, with U+FFFD for bytes that are not UTF-8. `order` is the usual order of a line's fields: only
    lines in this order can be read by the faster pattern of `plain_json`.
    """
    raw, is_plain = sf.col("_raw"), sf.col("_is_plain")
    plain = plain_json.values(sf.when(is_plain, raw), schema)
    judged = sf.when(~is_plain, _judged(raw, sf.col("_utf8"), schema, required))
    lines = _lines(spark, paths, file, plain_json.is_plain(sf.col("value"), schema, required, order))
    # Structs keep the schema's columns apart from ours, which may have the same names.
    lines = lines.select("_raw", "_file", "_is_plain", plain.alias("_plain"), judged.alias("_odd"))
    values = [_value(field).alias(field.name) for field in schema]
    reasons = sf.when(is_plain, sf.array().cast("array<string>")).otherwise(sf.col("_odd.reasons"))
    return lines.select(*values, "_raw", "_file", reasons.alias("_reasons"))


def _lines(spark: SparkSession, paths: list[str], file: Column, is_plain: Column) -> DataFrame:
    """Return `_raw`, `_file`, `_utf8` (whether the line is UTF-8) and `_is_plain`."""
    # A line that begins with a brace is not blank. This check is faster than the pattern for blank lines.
    is_record = sf.col("value").startswith("{") | ~sf.col("value").rlike(r"\A\s*\z")
    lines = spark.read.options(**_OPTIONS).text(paths).where(is_record)
    is_utf8 = sf.is_valid_utf8("value")
    flags = is_utf8.alias("_utf8"), (is_utf8 & is_plain).alias("_is_plain")
    return lines.select(sf.make_valid_utf8("value").alias("_raw"), file, *flags)


def _value(field: st.StructField) -> Column:
    plain = plain_json.typed(sf.col("_plain"), field)
    return sf.when(sf.col("_is_plain"), plain).otherwise(sf.col("_odd.values").getField(field.name))


def _judged(raw: Column, is_utf8: Column, schema: st.StructType, required: Sequence[str]) -> Column:
    """Return the `values` of a line, and the `reasons` to reject it."""

    def result(line: Column, wrong: Column, texts: Column, values: Column) -> Column:
        reasons = _reasons(line, wrong, texts, values=values, schema=schema, required=required)
        every = sf.when(is_utf8, reasons).otherwise(sf.array(sf.lit("not UTF-8")))
        return sf.struct(values.alias("values"), every.alias("reasons"))

    def of_texts(line: Column, wrong: Column, texts: Column) -> Column:
        values = [value(texts.getField(each.name), each.dataType).alias(each.name) for each in schema]
        return once(sf.struct(*values), lambda values: result(line, wrong, texts, values))

    def of_kinds(line: Column, wrong: Column) -> Column:
        texts = [_text(line, wrong, field).alias(field.name) for field in schema]
        return once(sf.struct(*texts), lambda texts: of_texts(line, wrong, texts))

    def of_line(line: Column) -> Column:
        wrong = [_wrong_kind(line, field).alias(field.name) for field in schema]
        return once(sf.struct(*wrong), lambda wrong: of_kinds(line, wrong))

    return once(_parsed(raw), of_line)


def _parsed(raw: Column) -> Column:
    """Return the `keys` of a line, and its `record`, which is NULL if the line is not exactly one JSON value.

    The parser ignores everything after the first value. So the line is parsed twice: as an element of an array, and as
    a member of an object. Text after the first value is invalid in at least one of the two.
    """
    text = sf.regexp_replace(raw, "\\A\ufeff", "")
    member = sf.try_parse_json(sf.concat(sf.lit('{"record":'), text, sf.lit("}")))
    element = sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit("]")))
    return sf.struct(sf.json_object_keys(text).alias("keys"), sf.when(element.isNotNull(), member).alias("record"))


def _item(line: Column, name: str, kind: str) -> Column:
    return sf.try_variant_get(line.getField("record"), f'$.record["{name}"]', kind)


def _text(line: Column, wrong: Column, field: st.StructField) -> Column:
    return sf.when(wrong.getField(field.name).isNull(), _item(line, field.name, "string"))


def _wrong_kind(line: Column, field: st.StructField) -> Column:
    """Return a reason if the value has a wrong JSON type, otherwise NULL.

    A JSON null has the type `VOID` and counts as missing.
    """
    kinds = next((found for types, found in _KINDS.items() if isinstance(field.dataType, types)), "STRING")
    kind = sf.schema_of_variant(_item(line, field.name, "variant"))
    is_wrong = ~kind.rlike(rf"\A(VOID|{kinds})\z")
    return sf.when(is_wrong, sf.lit(f"{field.name}: not {with_article(field.dataType.simpleString())}"))


def _reasons(
    line: Column, wrong: Column, texts: Column, values: Column, schema: st.StructType, required: Sequence[str]
) -> Column:
    complaints: list[Column] = [_unknown(line.getField("keys"), schema)]
    for field in schema:
        name, kind = field.name, field.dataType
        text = texts.getField(name)
        complaints.append(sf.coalesce(wrong.getField(name), complaint(name, text, kind, values.getField(name))))
        if name in required:
            complaints.append(sf.when(wrong.getField(name).isNull(), missing(name, text)))
    is_broken = line.getField("record").isNull() | line.getField("keys").isNull()
    broken = sf.array(sf.lit("malformed: expected one JSON object"))
    return sf.when(is_broken, broken).otherwise(collected(complaints))


def _unknown(keys: Column, schema: st.StructType) -> Column:
    extra = sf.array_except(keys, sf.array(*[sf.lit(field.name) for field in schema]))
    return sf.when(sf.size(extra) > 0, sf.concat(sf.lit("unknown fields: "), sf.array_join(extra, ", ")))
