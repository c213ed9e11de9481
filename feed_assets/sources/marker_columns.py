"""Columns with markers. A suitable column gives the SQL condition for a slice's rows; an unsuitable one is refused."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.slices import Slice, condition

MOMENT = "feed_assets_moment"
"""The name under which SQL on SQLite can call the function `moment`."""

_FORM = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
"""The accepted forms of moments. Markers have no digits beyond microseconds."""
_MOST_ZONE = timedelta(days=1)
"""The largest difference between the date in a text and its date in UTC: zone offsets are shorter than a day."""


@dataclass(frozen=True)
class MarkerColumn:
    """A table's column that contains the markers.

    Attributes:
        name: The column's name.
        sql: The name quoted for SQL.
        separator: The character between day and time in SQLite texts that sort like moments.
        is_mixed: Whether the column has SQLite texts in forms that do not sort like moments.
    """

    name: str
    sql: str
    separator: str = " "
    is_mixed: bool = False

    def where(self, piece: Slice) -> str:
        """Return the SQL condition for the rows of a slice. A slice has the rows between two markers.

        A row with NULL in the column is in no slice.
        """
        if self.is_mixed:
            return " AND ".join([*self._days(piece), piece.where(f"{MOMENT}({self.sql})")])
        return condition(piece, self.sql, self.separator)

    def _days(self, piece: Slice) -> list[str]:
        """Return bounds for the date in a text, so that SQLite can use the column's index."""
        bounds: list[str] = []
        if isinstance(piece.after, datetime) and piece.after.date() > date.min + _MOST_ZONE:
            bounds += [f"{self.sql} >= '{piece.after.date() - _MOST_ZONE}'"]
        if isinstance(piece.upto, datetime) and piece.upto.date() < date.max - 2 * _MOST_ZONE:
            bounds += [f"{self.sql} < '{piece.upto.date() + 2 * _MOST_ZONE}'"]
        return bounds


def moment(value: object) -> str | None:
    """Return the moment in an SQLite text as UTC with microseconds. Return None for a text in another form.

    A moment without a zone is in UTC.
    """
    if not isinstance(value, str) or not _FORM.fullmatch(value):
        return None
    try:
        parsed = datetime.fromisoformat(value)
        in_utc = parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return in_utc.isoformat(" ", "microseconds")


def marker_column(
    connection: sa.Connection, table: sa.TableClause, by: sa.ColumnClause[Any], piece: Slice
) -> MarkerColumn:
    """Return the column `by`, and how its markers sort, so that a slice of the table's rows can be selected.

    Raise SourceUnavailable if the column contains other values than markers.
    """
    sql = quoted_for(connection, by.name)
    is_moment = isinstance(piece.upto, datetime)
    if connection.dialect.name != "sqlite":
        _refuse_type(table, by, is_moment)
        return MarkerColumn(by.name, sql)
    if not is_moment:
        _refuse_values(connection, table, by, f"typeof({sql}) NOT IN ('integer', 'real')", "whole numbers")
        return MarkerColumn(by.name, sql)
    for separator in (" ", "T"):
        if _first(connection, table, sql, f"NOT ({_sorts(sql, separator)})") is None:
            return MarkerColumn(by.name, sql, separator)
    forms = "moments as 2024-01-31 06:00:00, 2024-01-31T06:00:00Z or 2024-01-31T06:00:00.123456+02:00"
    _refuse_values(connection, table, by, f"{MOMENT}({sql}) IS NULL", forms)
    return MarkerColumn(by.name, sql, is_mixed=True)


def quoted_for(connection: sa.Connection, *names: str) -> str:
    """Return quoted names, joined by dots, for a statement without parameters. Undo SQLAlchemy's doubling of `%`."""
    text = ".".join(map(connection.dialect.identifier_preparer.quote, names))
    return text.replace("%%", "%") if connection.dialect.paramstyle in {"format", "pyformat"} else text


def _sorts(sql: str, separator: str) -> str:
    """Return the SQL condition that a text is a moment, in a form whose alphabetical order is the order of time.

    `moment` accepts such texts, too. `separator` is the character between the date and the time of day.

    Each read checks all rows with this condition, so it is pure SQL. Calling `moment` would take three times as long.
    """
    # Without `+0 days` SQLite accepts 2024-02-31 as a day. IS never returns NULL.
    second = f"replace(datetime(substr({sql}, 1, 19), '+0 days'), ' ', '{separator}')"
    fraction = f"length({sql}) <= 26 AND substr({sql}, 20) GLOB '.[0-9]*' AND substr({sql}, 21) NOT GLOB '*[^0-9]*'"
    time = f"{sql} IS {second} || substr({sql}, 20) AND (length({sql}) = 19 OR {fraction})"
    return f"typeof({sql}) = 'text' AND {sql} >= '0001' AND ({sql} IS date({sql}, '+0 days') OR {time})"


def _first(connection: sa.Connection, table: sa.TableClause, sql: str, condition: str) -> Any:
    """Return the first value that meets a condition. Return None if no value does."""
    where: sa.ColumnElement[Any] = sa.literal_column(f"{sql} IS NOT NULL AND {condition}")
    query = sa.select(sa.literal_column(sql, types.NullType())).select_from(table).where(where).limit(1)
    return connection.execute(query).scalar()


def _refuse_values(
    connection: sa.Connection, table: sa.TableClause, by: sa.ColumnClause[Any], condition: str, expected: str
) -> None:
    value = _first(connection, table, quoted_for(connection, by.name), condition)
    if value is not None:
        raise SourceUnavailable(
            f"{table.fullname}: column {by.name} has {value!r}, so that row belongs to no slice: expected "
            f"{expected} in each row. Correct such rows, or read a view that converts or omits them."
        )


def _refuse_type(table: sa.TableClause, by: sa.ColumnClause[Any], is_moment: bool) -> None:
    """Raise SourceUnavailable for a type, such as text, whose values do not compare like markers."""
    good = (types.DateTime, types.Date) if is_moment else (types.Integer, types.Numeric)
    try:
        generic = by.type.as_generic(allow_nulltype=True)
    except NotImplementedError:
        return
    if isinstance(generic, (*good, types.NullType)):
        return
    expected, cast = ("a timestamp or a date", "timestamptz") if is_moment else ("a whole number", "bigint")
    raise SourceUnavailable(
        f"{table.fullname}: column {by.name} is {by.type}: expected {expected}, as in the markers of its events. Name "
        f"another column, or read a view with CAST({by.name} AS {cast})."
    )
