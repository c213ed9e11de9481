"""Rows of a slice as a Spark frame: by JDBC if its driver is available, else by SQLAlchemy in Python workers.

Both ways read ranges of the marker column in parallel, batch by batch, so Spark's driver never has the rows in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from math import ceil
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas import types as arrow_types
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlalchemy import types

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.events import Marker, encode
from feed_assets.core.schemas import quoted
from feed_assets.core.slices import Slice
from feed_assets.settings import expand
from feed_assets.sources.databases import Types, columns_of, reading
from feed_assets.sources.marker_columns import MarkerColumn, marker_column, moment, quoted_for

pa: Any = pyarrow  # pyarrow has no type hints.
arrow: Any = arrow_types  # The type hints of PySpark are incomplete.

ROWS_PER_TASK = 500_000
"""Rows that one task reads, if markers are spread evenly over the slice."""

MOST_TASKS = 200
ROWS_PER_BATCH = 10_000
"""Rows that a task holds in memory."""

JDBC_DRIVERS = {"postgresql": "org.postgresql.Driver"}
"""JDBC driver classes by SQLAlchemy's name of the database."""

_SHORT_INTEGERS = {"postgresql"}
"""Databases whose `integer` has 32 bits and a sign."""


@dataclass(frozen=True)
class _Table:
    """A table to read.

    Attributes:
        url: The URL of its database.
        source: The table for SQLAlchemy expressions.
        sql: The table's name in SQL.
        types: The types of its columns in the database.
        kinds: The types of its columns in Spark.
    """

    url: str
    source: sa.TableClause
    sql: str
    types: Types
    kinds: StructType


def rows_of(
    piece: Slice, spark: SparkSession, url: str, table: str, *, by: str, schema: str | None = None
) -> DataFrame:
    """Return the rows of a slice, with all columns of the table. Raise SourceUnavailable if they cannot be read."""
    at = expand(url)
    with reading(at, None) as connection:
        column_types = columns_of(connection, table, schema, (by,))
        dialect, source = connection.dialect.name, sa.table(table, schema=schema)
        kinds = StructType([StructField(name, _kind_of(kind, dialect)) for name, kind in column_types.items()])
        sql = quoted_for(connection, *filter(None, (schema, table)))
        column = marker_column(connection, source, sa.column(by, column_types[by]), piece)
        conditions = [column.where(each) for each in _ranges(connection, piece, source, column, column_types[by])]
    table_to_read = _Table(at, source, sql, column_types, kinds)
    if _is_plain(sa.make_url(at)) and _has_driver(spark, JDBC_DRIVERS.get(dialect)):
        return _by_jdbc(spark, table_to_read, conditions)
    return _by_arrow(spark, table_to_read, conditions)


def _ranges(
    connection: sa.Connection,
    piece: Slice,
    table: sa.TableClause,
    column: MarkerColumn,
    kind: types.TypeEngine[Any],
) -> list[Slice]:
    """Return adjacent parts of a slice with about equal numbers of rows."""
    if column.is_mixed:  # Do not split: each part's query would read all rows of whole days.
        return [piece]
    is_text = connection.dialect.name == "sqlite"  # SQLite's texts may be invalid days: `_exact` refuses them.
    by = sa.literal_column(column.sql, types.NullType() if is_text else kind)
    query = sa.select(sa.func.count(), sa.func.min(by), sa.func.max(by)).select_from(table)
    count, *ends = connection.execute(query.where(_condition(column.where(piece)))).one()
    tasks = min(ceil(count / ROWS_PER_TASK), MOST_TASKS)
    low, high = (_marker(each) for each in ends)
    if tasks < 2 or low is None or high is None:
        return [piece]
    markers = [encode(_between(low, high, step / tasks)) for step in range(1, tasks)]
    inner = sorted({each for each in markers if (piece.start or "") < each < piece.end})
    return [replace(piece, start=start, end=end) for start, end in pairwise([piece.start, *inner, piece.end]) if end]


def _marker(value: object) -> Marker | None:
    """Return a database's value as a marker. Return None for other types: they cannot be split into ranges."""
    if isinstance(value, str) and (text := moment(value)):
        return datetime.fromisoformat(text)
    return value if isinstance(value, int | datetime) else None


def _condition(text: str) -> sa.ColumnElement[Any]:
    """Return a text as a SQL condition without parameters.

    In `sa.text`, a colon in a column's name would begin a parameter.
    """
    return sa.literal_column(text)


def _between(low: Any, high: Any, share: float) -> Marker:
    """Return the marker at a share, from 0 to 1, of the way from `low` to `high`. Moments without a zone are in UTC."""
    if isinstance(low, int):
        return low + int((high - low) * share)
    marker: datetime = low + (high - low) * share
    return marker if marker.tzinfo else marker.replace(tzinfo=UTC)


def _is_plain(url: sa.URL) -> bool:
    """Return whether a URL has only what JDBC supports: no socket, no password file, no other options."""
    return bool(url.host and url.username and url.password) and {*url.query} <= {"sslmode"}


def _has_driver(spark: SparkSession, driver: str | None) -> bool:
    """Return whether the session's JVM has the driver's class; False for a Connect server, whose JVM is elsewhere."""
    jvm: Any = getattr(spark, "_jvm", None) if driver else None
    if jvm is None:
        return False
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(driver)
    except Exception as error:
        if "ClassNotFoundException" not in str(error):
            raise
        return False
    return True


def _by_jdbc(spark: SparkSession, table: _Table, conditions: Sequence[str]) -> DataFrame:
    """Return rows that the JVM reads by JDBC. Each task reads the range of one condition."""
    at = sa.make_url(table.url)
    place = f"jdbc:{at.get_backend_name()}://{at.host or 'localhost'}:{at.port or 5432}/{at.database or ''}"
    properties = {
        "driver": JDBC_DRIVERS[at.get_backend_name()],
        "fetchsize": str(ROWS_PER_BATCH),
        "customSchema": table.kinds.toDDL(),
    }
    connection_options = {"user": at.username, "password": at.password, "sslmode": at.query.get("sslmode")}
    properties |= {name: str(value) for name, value in connection_options.items() if value}
    frame = spark.read.jdbc(place, table.sql, predicates=[*conditions], properties=properties)
    return frame.selectExpr(*map(_in_utc, table.kinds))


def _in_utc(column: StructField) -> str:
    name = quoted(column.name)
    return f"CAST({name} AS timestamp) AS {name}" if column.dataType == TimestampNTZType() else name


def _by_arrow(spark: SparkSession, table: _Table, conditions: Sequence[str]) -> DataFrame:
    """Return rows that Spark's Python workers read. Each task reads the range of one condition."""
    kinds = StructType([_with_zone(column) for column in table.kinds])
    columns = [_query_column(column, table) for column in kinds]
    queries: list[Any] = [
        sa.select(*columns).select_from(table.source).where(_condition(condition)) for condition in conditions
    ]
    tasks: Any = spark.range(0, len(queries), 1, len(queries))  # The type hints of PySpark are incomplete.
    return tasks.mapInArrow(_reader(table.url, table.source.fullname, queries, kinds), kinds)


def _with_zone(column: StructField) -> StructField:
    return StructField(column.name, TimestampType()) if column.dataType == TimestampNTZType() else column


def _query_column(column: StructField, table: _Table) -> sa.ColumnElement[Any]:
    """Return the expression that queries a column. If Spark lacks the column's type, cast the column to text."""
    kind, name = table.types[column.name], column.name
    if column.dataType == StringType() and not isinstance(kind, types.String):
        return sa.cast(sa.column(name), sa.Text).label(name)
    # SQLAlchemy would round SQLite's NUMERIC(p, s) to the scale s, and fail on moments in other forms than its own.
    is_raw = table.url.startswith("sqlite") and isinstance(column.dataType, DecimalType | TimestampType | DateType)
    return sa.column(name, types.NullType() if is_raw else kind)


def _reader(
    url: str, table: str, queries: Sequence[Any], kinds: StructType
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return the function of a Python worker.

    It receives positions in `queries`, and yields the rows of the queries at these positions.
    """

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        schema = arrow.to_arrow_schema(kinds, timezone="UTC")
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            with reading(url, None) as connection:
                streamed: sa.CursorResult[Any] = connection.execution_options(yield_per=ROWS_PER_BATCH).execute(
                    queries[number]
                )
                for rows in streamed.partitions():
                    yield _batch(table, schema, rows)

    return read


def _batch(table: str, schema: Any, rows: Sequence[Any]) -> Any:
    """Return rows as an Arrow batch. Raise SourceUnavailable for a value that does not fit its column's type."""
    arrays: list[Any] = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            arrays.append(pa.array(_exact(values, field.type), field.type))
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise SourceUnavailable(
                f"{table}: column {field.name} has a value that is not a valid {field.type}: {reason}. Correct the "
                "row, or read a view that casts it."
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _exact(values: Sequence[Any], kind: Any) -> Sequence[Any]:
    """Return values that Arrow can convert exactly. Raise an error for other values, such as a float for an integer.

    SQLite does not enforce declared types, and stores moments and dates as text.
    """
    if pa.types.is_decimal(kind):
        return [value if value is None or isinstance(value, Decimal) else Decimal(str(value)) for value in values]
    if pa.types.is_integer(kind) and any(isinstance(value, float) for value in values):
        raise TypeError("it is a float")
    return [_temporal(value, kind) for value in values] if pa.types.is_temporal(kind) else values


def _temporal(value: Any, kind: Any) -> date | None:
    """Return a date or moment. Raise ValueError for a number, which Arrow would read as days or microseconds."""
    is_day = pa.types.is_date(kind)
    if value is None or isinstance(value, date):
        return value
    with suppress(TypeError, ValueError):
        return (date if is_day else datetime).fromisoformat(value)
    noun, example = ("a day", "2024-01-31") if is_day else ("a moment", "2024-01-31 06:00:00")
    raise ValueError(f"found {value!r}, expected {noun} of the years 1 to 9999, as {example}")


def _kind_of(kind: types.TypeEngine[Any], dialect: str) -> DataType:
    """Return the Spark type for a database type. Types that Spark lacks become text, as the database prints them."""
    generic = _generic(kind)
    if isinstance(generic, types.DateTime):
        return TimestampType() if generic.timezone else TimestampNTZType()
    if isinstance(generic, types.Numeric) and not isinstance(generic, types.Float):
        digits, scale = generic.precision, generic.scale or 0
        return DecimalType(digits, scale) if digits and digits <= 38 else StringType()
    spark_types: dict[type[types.TypeEngine[Any]], DataType] = {
        types.SmallInteger: ShortType(),
        types.BigInteger: LongType(),
        types.Integer: IntegerType() if dialect in _SHORT_INTEGERS else LongType(),
        types.Float: DoubleType(),
        types.Boolean: BooleanType(),
        types.Date: DateType(),
        types.LargeBinary: BinaryType(),
    }
    return next((spark_type for each, spark_type in spark_types.items() if isinstance(generic, each)), StringType())


def _generic(kind: types.TypeEngine[Any]) -> types.TypeEngine[Any]:
    try:
        return kind.as_generic(allow_nulltype=True)
    except NotImplementedError:
        return types.NullType()
