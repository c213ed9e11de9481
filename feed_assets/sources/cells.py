"""Cells of others' tables, cut in the database, so that a huge cell is never fetched."""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

from feed_assets.core.limits import ROW_BYTES
from feed_assets.sources.databases import Types

_SHORT = (
    *(sa.Integer, sa.Numeric, sa.Boolean, sa.Date, sa.DateTime, sa.Time, sa.Interval, sa.Uuid),
    *(pg.INET, pg.CIDR, pg.MACADDR, pg.MACADDR8, pg.MONEY, pg.OID),
)
_TEXTS, _PARSED = (sa.String, sa.LargeBinary), (sa.JSON, sa.ARRAY)


def cut(column: sa.ColumnClause[Any], kind: sa.types.TypeEngine[object], backend: str) -> sa.ColumnElement[Any]:
    """Return `column` with values cut just beyond ROW_BYTES. On PostgreSQL, JSON and composite values become text.

    SQLite accepts any value in a column of any type.
    """
    short = sa.func.substr(column, 1, ROW_BYTES + 1)
    if backend == "sqlite":
        return sa.case((sa.func.typeof(column).in_(("text", "blob")), short), else_=column).label(column.name)
    if backend != "postgresql" or isinstance(kind, sa.LargeBinary):
        return short.label(column.name) if isinstance(kind, _TEXTS) else column
    if isinstance(kind, _SHORT):
        return column
    value = sa.func.to_jsonb(column) if isinstance(kind, sa.ARRAY) else column
    return sa.func.substr(sa.cast(value, sa.Text), 1, ROW_BYTES + 1).label(column.name)


def parsed(row: Mapping[str, Any], kinds: Types, backend: str) -> Mapping[str, Any]:
    """Return a row with the texts made by `cut` parsed again. A text that is not JSON stays a text."""
    if backend != "postgresql":
        return row
    return {name: _loaded(value) if isinstance(kinds[name], _PARSED) else value for name, value in row.items()}


def _loaded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):  # It has a number with thousands of digits, or is nested too deeply.
        return value
