"""Cells of others' tables, cut where they are: to see that one is too long no gigabyte is fetched."""

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
    """A column, its values no longer than shows that they are too long; on PostgreSQL JSON and what has parts as text.

    SQLite has any value in a column of any type.
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
    """A row with the values of what `cut` has made texts of; a text where it has none."""
    if backend != "postgresql":
        return row
    return {name: _loaded(value) if isinstance(kinds[name], _PARSED) else value for name, value in row.items()}


def _loaded(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):  # Numbers of thousands of digits, or too deep.
        return value
