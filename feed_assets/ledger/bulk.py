"""Many rows in one statement, past SQLAlchemy's own work for each row, which takes longer than the database's."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from feed_assets.ledger.database import insert_into
from feed_assets.ledger.tables import UtcDateTime


class _Statement(NamedTuple):
    """The text of an insert, the order of its values, and which of them are moments."""

    text: str
    names: tuple[str, ...]
    moments: frozenset[str]
    is_positional: bool


def insert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], replaced: Iterable[str] = ()
) -> None:
    """Insert rows, which all have the same columns; of those whose primary key is there, set the `replaced` ones."""
    if not rows:
        return
    found = _statement(connection, table, tuple(rows[0]), tuple(replaced))
    stored = _TIMES[connection.dialect.name]
    values = [[stored(row[name]) if name in found.moments else row[name] for name in found.names] for row in rows]
    if found.is_positional:
        connection.exec_driver_sql(found.text, [*map(tuple, values)])
    else:
        connection.exec_driver_sql(found.text, [dict(zip(found.names, each, strict=True)) for each in values])


_statements: dict[tuple[str, str, tuple[str, ...], tuple[str, ...]], _Statement] = {}


def _statement(
    connection: sa.Connection, table: sa.Table, names: tuple[str, ...], replaced: tuple[str, ...]
) -> _Statement:
    """Compiled once for a database and its columns."""
    key = connection.dialect.name, table.name, names, replaced
    if key not in _statements:
        new = insert_into(connection, table)
        if replaced:
            values = {name: new.excluded[name] for name in replaced}
            new = new.on_conflict_do_update(index_elements=[*table.primary_key], set_=values)
        compiled = new.compile(dialect=connection.dialect, column_keys=[*names])
        order = tuple(getattr(compiled, "positiontup", None) or names)
        moments = frozenset(name for name in names if isinstance(table.c[name].type, UtcDateTime))
        _statements[key] = _Statement(str(compiled), order, moments, bool(getattr(compiled, "positiontup", None)))
    return _statements[key]


@lru_cache(maxsize=16_384)  # Rows that are written together have mostly the same moments.
def _text(moment: datetime | None) -> str | None:
    """A moment as SQLAlchemy keeps it on SQLite."""
    naive = _naive(moment)
    return naive.isoformat(" ", "microseconds") if naive else None


def _naive(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


_TIMES = {"sqlite": _text, "postgresql": _naive}
