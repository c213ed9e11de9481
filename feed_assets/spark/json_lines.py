"""JSON lines, one object a line, strictly: no value is converted to another JSON type than the declared one.

| declared type | JSON value |
|---|---|
| string | string |
| integers | number whose value is whole (`7.0` is 7) |
| float, double | number |
| decimal(p,s) | number without an exponent and of at most 38 digits, or string: it keeps all its digits |
| boolean | true, false |
| date, timestamp | string, in the forms that `parse` takes |

A whole line is rejected if it is not UTF-8, not one object, holds a field that the schema does not, a field twice, or
half of a surrogate pair. Blank lines are no records. Nested values are not read: publish Parquet.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from feed_assets.core.errors import InvalidDefinition
from feed_assets.spark.parse import collected, complaint, missing, value

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
    spark: SparkSession, paths: list[str], schema: st.StructType, required: Sequence[str], file: Column
) -> DataFrame:
    """The tagged frame of JSON lines; `_raw` is the line, with U+FFFD for bytes that are not UTF-8."""
    _check(schema)
    texts = sf.struct(*[_text(field).alias(field.name) for field in schema])
    wrong = sf.struct(*[_wrong_kind(field).alias(field.name) for field in schema])
    # In structs, so that no column of the schema can be taken for one of ours.
    lines = _lines(spark, paths, file).select("*", texts.alias("_texts"), wrong.alias("_wrong"))
    typed = [value(sf.col("_texts").getField(field.name), field.dataType).alias(field.name) for field in schema]
    return lines.select(*typed, "_raw", "_file", _reasons(schema, required).alias("_reasons"))


def _check(schema: st.StructType) -> None:
    if odd := [field.name for field in schema if '"' in field.name or "\\" in field.name]:
        raise InvalidDefinition(f"columns {odd} cannot be found in JSON: rename them without quotes and backslashes.")


def _lines(spark: SparkSession, paths: list[str], file: Column) -> DataFrame:
    """`_raw`, `_file`, `_utf8`, `_keys` and the parsed `_record`, which is NULL unless the line is one JSON value.

    The parser stops after the first value and ignores the rest. Only a line that ends there can be parsed both as the
    element of an array and as a member of an object: what may follow in the one may not in the other.
    """
    files = spark.read.options(**_OPTIONS).text(paths).where(~sf.col("value").rlike(r"\A\s*\z"))
    text = sf.regexp_replace(sf.col("_raw"), "\\A\ufeff", "")
    member = sf.try_parse_json(sf.concat(sf.lit('{"record":'), text, sf.lit("}")))
    element = sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit("]")))
    return files.select(
        sf.make_valid_utf8("value").alias("_raw"),
        file,
        sf.is_valid_utf8("value").alias("_utf8"),
    ).select(
        "*",
        sf.json_object_keys(text).alias("_keys"),
        sf.when(element.isNotNull(), member).alias("_record"),
    )


def _item(name: str, kind: str) -> Column:
    return sf.try_variant_get(sf.col("_record"), f'$.record["{name}"]', kind)


def _text(field: st.StructField) -> Column:
    return sf.when(~_is_wrong(field), _item(field.name, "string"))


def _is_wrong(field: st.StructField) -> Column:
    """Whether there is a value of another JSON type. JSON's null is `VOID`, and missing."""
    kinds = next((found for types, found in _KINDS.items() if isinstance(field.dataType, types)), "STRING")
    kind = sf.schema_of_variant(_item(field.name, "variant"))
    return sf.coalesce(~kind.rlike(rf"\A(VOID|{kinds})\z"), sf.lit(False))


def _wrong_kind(field: st.StructField) -> Column:
    return sf.when(_is_wrong(field), sf.lit(f"{field.name}: not a {field.dataType.simpleString()}"))


def _reasons(schema: st.StructType, required: Sequence[str]) -> Column:
    complaints: list[Column] = [_unknown(schema)]
    for field in schema:
        wrong, text = sf.col("_wrong").getField(field.name), sf.col("_texts").getField(field.name)
        found = value(text, field.dataType)
        complaints.append(sf.coalesce(wrong, complaint(field.name, text, field.dataType, found)))
        if field.name in required:
            complaints.append(sf.when(wrong.isNull(), missing(field.name, text)))
    broken = sf.when(~sf.col("_utf8"), sf.lit("not UTF-8")).when(
        sf.col("_record").isNull() | sf.col("_keys").isNull(), sf.lit("malformed: expected one JSON object")
    )
    return sf.when(broken.isNotNull(), sf.array(broken)).otherwise(collected(complaints))


def _unknown(schema: st.StructType) -> Column:
    extra = sf.array_except("_keys", sf.array(*[sf.lit(field.name) for field in schema]))
    return sf.when(sf.size(extra) > 0, sf.concat(sf.lit("unknown fields: "), sf.array_join(extra, ", ")))
