"""Rows of a slice as a frame of Spark: by JDBC where its driver is, else by SQLAlchemy in Spark's Python workers.

Both read ranges of the marker's column side by side, batch by batch: nothing of it is in the driver's memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from math import ceil
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import sqlalchemy as sa
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import types

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.events import Marker, encode
from feed_assets.core.schemas import quoted
from feed_assets.core.slices import Slice
from feed_assets.settings import expand
from feed_assets.sources.databases import Types, columns_of, reading

pa: Any = pyarrow  # It has no types.

ROWS_PER_TASK = 500_000
"""Rows that one task reads, if markers are spread evenly over the slice."""

MOST_TASKS = 200
ROWS_PER_BATCH = 10_000
"""Rows that a task has in memory."""

JDBC_DRIVERS = {"postgresql": "org.postgresql.Driver"}
"""By SQLAlchemy's name of a database the class of its JDBC driver."""

_SHORT_INTEGERS = {"postgresql"}
"""Databases whose `integer` has 32 bits, with a sign."""


def rows_of(piece: Slice, spark: SparkSession, url: str, table: str, by: str, schema: str | None) -> DataFrame:
    """Return the rows of a slice, with the columns of the table. Raises SourceUnavailable."""
    at = expand(url)
    with reading(at, None) as connection:
        found = columns_of(connection, table, schema, (by,))
        pieces = _ranges(connection, piece, sa.table(table, schema=schema), sa.column(by, found[by]))
        dialect, quote = connection.dialect.name, connection.dialect.identifier_preparer.quote
        conditions = [each.where(quote(by)) for each in pieces]
        name = ".".join(quote(part) for part in (schema, table) if part)
    columns = {column: _kind_of(kind, dialect) for column, kind in found.items()}
    if _is_plain(sa.make_url(at)) and _has_driver(spark, JDBC_DRIVERS.get(dialect)):
        return _by_jdbc(spark, at, name, columns, conditions)
    return _by_arrow(spark, at, table, schema, found, columns, conditions)


def _ranges(connection: sa.Connection, piece: Slice, table: sa.TableClause, by: sa.ColumnClause[Any]) -> list[Slice]:
    """Return parts of a slice that are next to each other, of about as many rows each."""
    where = _condition(piece.where(connection.dialect.identifier_preparer.quote(by.name)))
    query = sa.select(sa.func.count(), sa.func.min(by), sa.func.max(by)).select_from(table).where(where)
    count, low, high = connection.execute(query).one()
    tasks = min(ceil(count / ROWS_PER_TASK), MOST_TASKS)
    if tasks < 2 or not isinstance(low, int | datetime):
        return [piece]
    markers = [encode(_between(low, high, step / tasks)) for step in range(1, tasks)]
    inner = sorted({each for each in markers if (piece.start or "") < each < piece.end})
    return [replace(piece, start=start, end=end) for start, end in pairwise([piece.start, *inner, piece.end]) if end]


def _condition(text: str) -> sa.ColumnElement[Any]:
    """Return a condition that is rendered as it is: in `sa.text` a colon in a column's name begins a parameter."""
    return sa.literal_column(text)


def _between(low: Any, high: Any, share: float) -> Marker:
    """Return the marker at a share of the way between two; moments without a zone are in UTC."""
    if isinstance(low, int):
        return low + int((high - low) * share)
    found: datetime = low + (high - low) * share
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _is_plain(url: sa.URL) -> bool:
    """Return whether a URL says all that JDBC has to know: not one of a socket, a password file, or other options."""
    return bool(url.host and url.username and url.password) and {*url.query} <= {"sslmode"}


def _has_driver(spark: SparkSession, driver: str | None) -> bool:
    """Return whether the session's JVM has a class; of a Connect server nobody can ask."""
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


def _by_jdbc(spark: SparkSession, url: str, name: str, columns: dict[str, str], conditions: Sequence[str]) -> DataFrame:
    """Return rows that the JVM reads, each task one range."""
    at = sa.make_url(url)
    place = f"jdbc:{at.get_backend_name()}://{at.host or 'localhost'}:{at.port or 5432}/{at.database or ''}"
    properties = {
        "driver": JDBC_DRIVERS[at.get_backend_name()],
        "fetchsize": str(ROWS_PER_BATCH),
        "customSchema": ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items()),
    }
    known = {"user": at.username, "password": at.password, "sslmode": at.query.get("sslmode")}
    properties |= {name: str(value) for name, value in known.items() if value}
    frame = spark.read.jdbc(place, name, predicates=[*conditions], properties=properties)
    return frame.selectExpr(*[_in_utc(column, kind) for column, kind in columns.items()])


def _in_utc(column: str, kind: str) -> str:
    name = quoted(column)
    return f"CAST({name} AS timestamp) AS {name}" if kind == "timestamp_ntz" else name


def _by_arrow(
    spark: SparkSession,
    url: str,
    table: str,
    schema: str | None,
    found: Types,
    columns: dict[str, str],
    conditions: Sequence[str],
) -> DataFrame:
    """Return rows that Spark's Python workers read, each task one range."""
    kinds = {name: "timestamp" if kind == "timestamp_ntz" else kind for name, kind in columns.items()}
    texts = {name for name, kind in found.items() if kinds[name] == "string" and not isinstance(kind, types.String)}
    # SQLAlchemy would round what SQLite has in a NUMERIC(p, s) by that scale.
    raw = {name for name, kind in kinds.items() if kind.startswith("decimal") and url.startswith("sqlite")}
    kept = {name: types.NullType() if name in raw else kind for name, kind in found.items()}
    asked = [sa.cast(sa.column(n), sa.Text).label(n) if n in texts else sa.column(n, kept[n]) for n in columns]
    queries: list[Any] = [
        sa.select(*asked).select_from(sa.table(table, schema=schema)).where(_condition(condition))
        for condition in conditions
    ]
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in kinds.items())
    tasks: Any = spark.range(0, len(queries), 1, len(queries))  # Its stub leaves types of Arrow open.
    return tasks.mapInArrow(_reader(url, table, queries, kinds), ddl)


def _reader(
    url: str, table: str, queries: Sequence[Any], kinds: dict[str, str]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what a Python worker does: it reads the ranges whose numbers it gets."""

    def read(batches: Iterable[Any]) -> Iterator[Any]:
        arrow = pa.schema([pa.field(name, _arrow_of(kind)) for name, kind in kinds.items()])
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            with reading(url, None) as connection:
                streamed: sa.CursorResult[Any] = connection.execution_options(yield_per=ROWS_PER_BATCH).execute(
                    queries[number]
                )
                for rows in streamed.partitions():
                    yield _batch(table, arrow, rows)

    return read


def _batch(table: str, schema: Any, rows: Sequence[Any]) -> Any:
    """Return rows as a batch of Arrow. Raises SourceUnavailable for a value of another type than its column has."""
    arrays: list[Any] = []
    for field, values in zip(schema, zip(*rows, strict=True), strict=True):
        try:
            arrays.append(pa.array(_exact(values, field.type), field.type))
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            said = str(error).splitlines()[0]
            raise SourceUnavailable(
                f"{table}: column {field.name} has a value that is no {field.type}: {said}. Correct the row, or read a "
                "view that casts it."
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _exact(values: Sequence[Any], kind: Any) -> Sequence[Any]:
    """Return values as Arrow takes them or refuses them: it would cut the fraction of a float in a column of integers.

    SQLite keeps to no declared type.
    """
    if pa.types.is_decimal(kind):
        return [value if value is None or isinstance(value, Decimal) else Decimal(str(value)) for value in values]
    if pa.types.is_integer(kind) and any(isinstance(value, float) for value in values):
        raise TypeError("it is a float")
    return values


def _kind_of(kind: types.TypeEngine[Any], dialect: str) -> str:
    """Return the type of Spark for a type of a database; what has none is text, as the database writes it."""
    generic = _generic(kind)
    if isinstance(generic, types.DateTime):
        return "timestamp" if generic.timezone else "timestamp_ntz"
    if isinstance(generic, types.Numeric) and not isinstance(generic, types.Float):
        digits, scale = generic.precision, generic.scale or 0
        return f"decimal({digits},{scale})" if digits and digits <= 38 else "string"
    known: dict[type[types.TypeEngine[Any]], str] = {
        types.SmallInteger: "smallint",
        types.BigInteger: "bigint",
        types.Integer: "int" if dialect in _SHORT_INTEGERS else "bigint",
        types.Float: "double",
        types.Boolean: "boolean",
        types.Date: "date",
        types.LargeBinary: "binary",
    }
    return next((name for each, name in known.items() if isinstance(generic, each)), "string")


def _generic(kind: types.TypeEngine[Any]) -> types.TypeEngine[Any]:
    try:
        return kind.as_generic(allow_nulltype=True)
    except NotImplementedError:
        return types.NullType()


def _arrow_of(kind: str) -> Any:
    if kind.startswith("decimal"):
        return pa.decimal128(*map(int, kind.removeprefix("decimal(").rstrip(")").split(",")))
    names = {
        "smallint": "int16",
        "int": "int32",
        "bigint": "int64",
        "double": "float64",
        "boolean": "bool",
        "date": "date32",
    }
    return pa.timestamp("us", "UTC") if kind == "timestamp" else pa.type_for_alias(names.get(kind, kind))
