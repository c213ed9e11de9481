"""Values of Parquet columns in Spark, exactly as `feed_assets.read` returns them without Spark.

Spark can represent some values that `feed_assets.read` cannot, and the other way round. Such a value makes the action
fail, because Parquet feeds have no rejects. `spark_errors.reading` turns the error's text into an UnreadableUpdate.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from feed_assets.core.parquet_values import (
    DIGITS,
    FIRST_DAY,
    FIRST_NEW_DAY,
    NO_TEXT,
    OLD_DAY,
    OLD_MOMENT,
    OLD_MOMENTS,
    TOO_FINE,
    too_long,
)
from feed_assets.spark.parse import column
from feed_assets.spark.spark_errors import UNREADABLE

_MOMENTS = (st.TimestampType, st.TimestampNTZType)
_NANOSECONDS, _MICROSECONDS = 1_000, 1_000_000
"""Nanoseconds per microsecond, and microseconds per second."""


def spark_type(kind: Any) -> st.DataType:
    """Return Spark's type for an Arrow type of `feeds.parquet_columns`."""
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]

    types: Any = pyarrow.types
    if types.is_struct(kind):
        return st.StructType([st.StructField(each.name, spark_type(each.type)) for each in kind.fields])
    if types.is_map(kind):
        return st.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if types.is_list(kind):
        return st.ArrayType(spark_type(kind.value_type))
    if types.is_decimal(kind):
        return st.DecimalType(kind.precision, kind.scale)
    if types.is_timestamp(kind):
        return st.TimestampType() if kind.tz else st.TimestampNTZType()
    return _TYPES[str(kind)]()


_TYPES: dict[str, Callable[[], st.DataType]] = {
    "bool": st.BooleanType,
    "int8": st.ByteType,
    "int16": st.ShortType,
    "int32": st.IntegerType,
    "int64": st.LongType,
    "float": st.FloatType,
    "double": st.DoubleType,
    "string": st.StringType,
    "binary": st.BinaryType,
    "date32[day]": st.DateType,
}
"""Spark types by Arrow's names."""


@dataclass(frozen=True)
class Stored:
    """A column as Spark reads it: its name, its type in the file, and whether it uses Spark's old calendar."""

    name: str
    kind: st.DataType
    is_old: bool
    is_nested: bool = False

    def value(self, kind: st.DataType, file: Column) -> Column:
        """Return the column, converted to values of the type `kind`.

        Spark's action fails on a value that Spark or `feed_assets.read` cannot represent.
        """
        return _value(column(self.name), self, kind, file).alias(self.name)


def _value(source: Column, stored: Stored, kind: st.DataType, file: Column) -> Column:
    match kind, stored.kind:
        case st.StructType(), st.StructType() if _is_checked(stored, kind):
            return _struct(source, stored, kind, file)
        case st.ArrayType(), st.ArrayType() if _is_checked(stored, kind):
            inner = replace(stored, kind=stored.kind.elementType, is_nested=True)
            return sf.transform(source, lambda each: _value(each, inner, kind.elementType, file))
        case st.MapType(), st.MapType() if _is_checked(stored, kind):
            keys = replace(stored, kind=stored.kind.keyType, is_nested=True)
            values = replace(stored, kind=stored.kind.valueType, is_nested=True)
            checked = sf.transform_values(source, lambda _, each: _value(each, values, kind.valueType, file))
            if not _is_checked(keys, kind.keyType):
                return checked
            # Keys are only checked, never converted: a converted map might have a repeated key, which Spark refuses.
            fine_keys = sf.transform(sf.map_keys(source), lambda each: _value(each, keys, kind.keyType, file))
            return sf.when(source.isNull() | (sf.size(fine_keys) >= 0), checked)
        case _:
            return _leaf(source, stored, kind, file)


def _struct(source: Column, stored: Stored, kind: st.StructType, file: Column) -> Column:
    inner = {each.name: replace(stored, kind=each.dataType, is_nested=True) for each in _fields(stored.kind)}
    fields = [
        _value(source.getField(each.name), inner[each.name], each.dataType, file).alias(each.name) for each in kind
    ]
    return sf.when(source.isNotNull(), sf.struct(*fields))


def _fields(kind: st.DataType) -> list[st.StructField]:
    return kind.fields if isinstance(kind, st.StructType) else []


def _is_checked(stored: Stored, kind: st.DataType) -> bool:
    """Return whether values of a type are converted or checked. Values of other types pass unchanged."""
    match kind:
        case st.StructType():
            inner = {each.name: each.dataType for each in _fields(stored.kind)}
            return any(_is_checked(replace(stored, kind=inner[each.name]), each.dataType) for each in kind)
        case st.ArrayType():
            return isinstance(stored.kind, st.ArrayType) and _is_checked(
                replace(stored, kind=stored.kind.elementType), kind.elementType
            )
        case st.MapType() if isinstance(stored.kind, st.MapType):
            keys, values = replace(stored, kind=stored.kind.keyType), replace(stored, kind=stored.kind.valueType)
            return _is_checked(keys, kind.keyType) or _is_checked(values, kind.valueType)
        case st.StringType() | st.DecimalType():
            return True
        case st.TimestampType() | st.TimestampNTZType() if isinstance(stored.kind, st.LongType):
            return True
        case _:
            return stored.is_old and isinstance(kind, (st.DateType, st.TimestampType))


def _leaf(source: Column, stored: Stored, kind: st.DataType, file: Column) -> Column:
    """Return the values of a column or field without fields of its own, converted and checked by its type."""
    if not _is_checked(stored, kind):
        return source
    if isinstance(kind, st.StringType):
        return _checked(source, sf.is_valid_utf8(source), source, stored=stored, why=NO_TEXT, file=file)
    if isinstance(kind, st.DecimalType):
        return _decimal(source, stored, kind, file)
    if isinstance(kind, _MOMENTS) and isinstance(stored.kind, st.LongType):
        return _checked(
            source, source % _NANOSECONDS == 0, _moment(source, kind), stored=stored, why=TOO_FINE, file=file
        )
    if isinstance(kind, st.DateType):
        first = FIRST_NEW_DAY if stored.is_nested else FIRST_DAY
        return _checked(
            source, source >= sf.expr(f"date'{first.isoformat()}'"), source, stored=stored, why=OLD_DAY, file=file
        )
    return _checked(
        source, source >= sf.timestamp_seconds(sf.lit(OLD_MOMENTS)), source, stored=stored, why=OLD_MOMENT, file=file
    )


def _decimal(source: Column, stored: Stored, kind: st.DecimalType, file: Column) -> Column:
    if kind.precision == DIGITS:
        return source
    bound = sf.lit(Decimal(10) ** (kind.precision - kind.scale)).cast(st.DecimalType(kind.precision + 1, kind.scale))
    fits = sf.abs(source) < bound
    return _checked(source, fits, source.cast(kind), stored=stored, why=too_long(kind.precision, kind.scale), file=file)


def _moment(nanoseconds: Column, kind: st.DataType) -> Column:
    """Return timestamps with whole microseconds.

    A timestamp without a zone is computed from an interval, so that the session's time zone does not shift it.
    """
    microseconds = sf.call_function("div", nanoseconds, sf.lit(_NANOSECONDS))
    if isinstance(kind, st.TimestampType):
        return sf.timestamp_micros(microseconds)
    seconds = microseconds.cast("decimal(18,0)") / sf.lit(_MICROSECONDS)
    return sf.expr("timestamp_ntz'1970-01-01 00:00:00'") + sf.make_dt_interval(secs=seconds.cast("decimal(18,6)"))


def _checked(source: Column, is_fine: Column, value: Column, stored: Stored, why: str, file: Column) -> Column:
    """Return `value` where `source` is NULL or valid. Otherwise the action fails."""
    message = sf.concat(sf.lit(UNREADABLE), file, sf.lit(f": column {stored.name} {why}"))
    return sf.when(source.isNull() | is_fine, value).otherwise(sf.raise_error(message))
