"""Inserts of many rows in one statement.

They avoid SQLAlchemy's work for each row, which takes longer than the insert.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from feed_assets.ledger.database import insert_into
from feed_assets.ledger.tables import UtcDateTime


class _Statement(NamedTuple):
    """The text of an insert, the order of its columns, and the names of the columns that hold points in time."""

    text: str
    names: tuple[str, ...]
    moments: frozenset[str]


def insert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], replaced: Iterable[str] = ()
) -> None:
    """Insert rows that all have the same columns. If a row already exists, update only its `replaced` columns."""
    if not rows:
        return
    statement = _statement(connection, table, tuple(rows[0]), tuple(replaced))
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(statement.text, {"rows": json.dumps([*rows], default=_text)})
        return
    columns = [
        [_text(row[name]) for row in rows] if name in statement.moments else [row[name] for row in rows]
        for name in statement.names
    ]
    connection.exec_driver_sql(statement.text, [*zip(*columns, strict=True)])


_statements: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], _Statement] = {}


def _statement(
    connection: sa.Connection, table: sa.Table, names: tuple[str, ...], replaced: tuple[str, ...]
) -> _Statement:
    """Compile an insert. The result is cached for each database and set of columns."""
    key = connection.dialect.name, table.name, names, replaced
    if key not in _statements:
        new = insert_into(connection, table)
        if connection.dialect.name == "postgresql":
            new = new.from_select([*names], _parameter_rows(connection, table, names))
        if replaced:
            values = {name: new.excluded[name] for name in replaced}
            new = new.on_conflict_do_update(index_elements=[*table.primary_key], set_=values)
        compiled = new.compile(dialect=connection.dialect, column_keys=[*names])
        order = tuple(getattr(compiled, "positiontup", None) or names)
        moments = frozenset(name for name in names if isinstance(table.c[name].type, UtcDateTime))
        _statements[key] = _Statement(str(compiled), order, moments)
    return _statements[key]


def _parameter_rows(connection: sa.Connection, table: sa.Table, names: tuple[str, ...]) -> sa.Select[Any]:
    """Return a query that reads all rows from one parameter, with the types of the table's columns.

    Without this, psycopg executes one statement for each row, which takes the server several times as long.
    """
    name = connection.dialect.identifier_preparer.format_table(table)
    rows = sa.text(f"json_populate_recordset(CAST(NULL AS {name}), CAST(:rows AS json)) AS given")
    columns: list[sa.ColumnClause[Any]] = [sa.column(each) for each in names]
    return sa.select(*columns).select_from(rows)


def _text(moment: datetime | None) -> str | None:
    """Return a point in time in the text form that SQLAlchemy uses on SQLite. PostgreSQL can read it, too."""
    return None if moment is None else _text_in_utc(moment.astimezone(UTC))


@lru_cache(maxsize=16_384)  # Rows that are written together mostly have the same times.
def _text_in_utc(moment: datetime) -> str:
    """Return the text of a point in time, which must be in UTC.

    Otherwise the cache could return a wrong text: in a local time zone, the two times of a repeated hour compare equal.
    """
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")
