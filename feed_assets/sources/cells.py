"""Cells of tables that others own. The database cuts long cells, so that a huge cell is never fetched."""

import json
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from feed_assets.core.limits import ROW_BYTES
from feed_assets.sources.databases import Types

NUMBER_CHARACTERS = 1024
"""The most characters of a PostgreSQL number without a declared precision that is read as a number.

A longer number stays a text. Such a number may have 147,455 digits, and the time of its conversion by `int` grows with
the square of the digits.
"""

_SHORT = (
    *(sa.Integer, sa.Float, sa.Boolean, sa.Date, sa.DateTime, sa.Time, sa.Interval, sa.Uuid),
    *(pg.INET, pg.CIDR, pg.MACADDR, pg.MACADDR8, pg.MONEY, pg.OID),
)
_TEXTS, _PARSED = (sa.String, sa.LargeBinary), (sa.JSON, sa.ARRAY)


def cut(column: sa.ColumnClause[Any], kind: sa.types.TypeEngine[object], backend: str) -> sa.ColumnElement[Any]:
    """Return an expression for `column` that cuts long values.

    A cut value has one character more than ROW_BYTES, so callers can recognise it. PostgreSQL's JSON, composite values
    and numbers without a precision become text. On SQLite, the type of each value decides whether it is cut, because a
    column of any type may contain any value.
    """
    short = sa.func.substr(column, 1, ROW_BYTES + 1)
    if backend == "sqlite":
        return sa.case((sa.func.typeof(column).in_(("text", "blob")), short), else_=column).label(column.name)
    if backend != "postgresql" or isinstance(kind, sa.LargeBinary):
        return short.label(column.name) if isinstance(kind, _TEXTS) else column
    if is_short(kind):
        return column
    value = sa.func.to_jsonb(column) if isinstance(kind, sa.ARRAY) else column
    return sa.func.substr(sa.cast(value, sa.Text), 1, ROW_BYTES + 1).label(column.name)


def is_short(kind: sa.types.TypeEngine[object]) -> bool:
    """Return whether all values of a type are short, so that they need no cut."""
    return isinstance(kind, _SHORT) or (isinstance(kind, sa.Numeric) and kind.precision is not None)


def memory(values: Iterable[Any]) -> int:
    """Return the bytes of memory that the texts, bytes and decimal numbers take.

    A character of a text may take four bytes.
    """
    return sum(sys.getsizeof(each) for each in values if isinstance(each, str | bytes | Decimal))


def with_numbers(row: dict[str, Any], kinds: Types, backend: str) -> dict[str, Any]:
    """Return a query's row. Numbers that `cut` turned into texts are numbers again, but long numbers stay texts."""
    if backend != "postgresql":
        return row
    return {name: _number(value) if isinstance(kinds[name], sa.Numeric) else value for name, value in row.items()}


def _number(value: Any) -> Any:
    return Decimal(value) if isinstance(value, str) and len(value) <= NUMBER_CHARACTERS else value


def parsed(row: Mapping[str, Any], kinds: Types, backend: str) -> Mapping[str, Any]:
    """Return a query's row. JSON that `cut` turned into texts is parsed again. Other texts stay texts."""
    if backend != "postgresql":
        return row
    return {name: _loaded(value) if isinstance(kinds[name], _PARSED) else value for name, value in row.items()}


def _loaded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):  # For example, a number with thousands of digits, or too deep nesting.
        return value
