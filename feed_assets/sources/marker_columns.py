"""Columns of markers: the condition in SQL for the rows of a slice, or a refusal of a column that is none."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy import types

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.slices import Slice, condition

MOMENT = "feed_assets_moment"
"""The function of `moment` in each connection to SQLite."""

_FORM = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
"""The forms of moments; markers have no digits behind microseconds."""
_MOST_ZONE = timedelta(days=1)
"""The most that a text's own day differs from its day in UTC: offsets are shorter than a day."""


@dataclass(frozen=True)
class MarkerColumn:
    """The column of a table that its markers are made of.

    Attributes:
        name: Its name.
        sql: Its name as SQL has it.
        separator: The character between day and time in the texts of SQLite that sort as moments do.
        is_mixed: Whether they are texts of SQLite in forms that do not sort as moments do.
    """

    name: str
    sql: str
    separator: str = " "
    is_mixed: bool = False

    def where(self, piece: Slice) -> str:
        """Return the condition for the rows of a slice. A row in which the column is NULL is in no slice."""
        if self.is_mixed:
            return " AND ".join([*self._days(piece), piece.where(f"{MOMENT}({self.sql})")])
        return condition(piece, self.sql, self.separator)

    def _days(self, piece: Slice) -> list[str]:
        """Return bounds by the day that a text names: they use the column's index."""
        bounds: list[str] = []
        if isinstance(piece.after, datetime) and piece.after.date() > date.min + _MOST_ZONE:
            bounds += [f"{self.sql} >= '{piece.after.date() - _MOST_ZONE}'"]
        if isinstance(piece.upto, datetime) and piece.upto.date() < date.max - 2 * _MOST_ZONE:
            bounds += [f"{self.sql} < '{piece.upto.date() + 2 * _MOST_ZONE}'"]
        return bounds


def moment(value: object) -> str | None:
    """Return a moment's text of SQLite as UTC with microseconds. Return None if it is in none of the forms.

    Without a zone it is in UTC.
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
    """Return the column that a slice's markers are made of. Raise SourceUnavailable if it holds something else."""
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
    """Return a name in SQL that is given no parameters: SQLAlchemy doubles `%` for drivers that search for them."""
    text = ".".join(map(connection.dialect.identifier_preparer.quote, names))
    return text.replace("%%", "%") if connection.dialect.paramstyle in {"format", "pyformat"} else text


def _sorts(sql: str, separator: str) -> str:
    """Return a condition for texts that `moment` reads and that sort as moments, beside literals with this separator.

    It is SQL throughout, as each read checks all rows: `moment` would take three times as long.
    """
    # Without `+0 days` SQLite takes 2024-02-31 for a day. IS gives no NULL.
    second = f"replace(datetime(substr({sql}, 1, 19), '+0 days'), ' ', '{separator}')"
    fraction = f"length({sql}) <= 26 AND substr({sql}, 20) GLOB '.[0-9]*' AND substr({sql}, 21) NOT GLOB '*[^0-9]*'"
    time = f"{sql} IS {second} || substr({sql}, 20) AND (length({sql}) = 19 OR {fraction})"
    return f"typeof({sql}) = 'text' AND {sql} >= '0001' AND ({sql} IS date({sql}, '+0 days') OR {time})"


def _first(connection: sa.Connection, table: sa.TableClause, sql: str, condition: str) -> Any:
    """Return the first value that meets a condition, and None if there is none."""
    where: sa.ColumnElement[Any] = sa.literal_column(f"{sql} IS NOT NULL AND {condition}")
    query = sa.select(sa.literal_column(sql, types.NullType())).select_from(table).where(where).limit(1)
    return connection.execute(query).scalar()


def _refuse_values(
    connection: sa.Connection, table: sa.TableClause, by: sa.ColumnClause[Any], condition: str, expected: str
) -> None:
    value = _first(connection, table, quoted_for(connection, by.name), condition)
    if value is not None:
        raise SourceUnavailable(
            f"{table.fullname}: column {by.name} has {value!r}, and no slice is known for that row: expected "
            f"{expected} in each. Correct such rows, or read a view that converts or leaves them out."
        )


def _refuse_type(table: sa.TableClause, by: sa.ColumnClause[Any], is_moment: bool) -> None:
    """Raise SourceUnavailable for a type whose values do not compare as markers do, such as text."""
    good = (types.DateTime, types.Date) if is_moment else (types.Integer, types.Numeric)
    try:
        generic = by.type.as_generic(allow_nulltype=True)
    except NotImplementedError:
        return
    if isinstance(generic, (*good, types.NullType)):
        return
    expected, cast = ("a timestamp or a date", "timestamptz") if is_moment else ("a whole number", "bigint")
    raise SourceUnavailable(
        f"{table.fullname}: column {by.name} is {by.type}: expected {expected}, as the markers of its events are. Name "
        f"another column, or read a view with CAST({by.name} AS {cast})."
    )
