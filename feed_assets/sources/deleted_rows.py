"""The rows of a table of deletes, read from its database."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.errors import InvalidEvent, SourceUnavailable
from feed_assets.core.events import Marker, decode, encode
from feed_assets.settings import expand
from feed_assets.sources.databases import columns_of, reading
from feed_assets.sources.event_rows import as_marker

_ROWS_PER_READ = 10_000


def deleted_rows(
    url: str, table: str, schema: str | None, *, key: Sequence[str], deleted_at: str, start: str | None, end: str
) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that were deleted after marker `start`, up to `end`, each followed by the time of its delete."""
    with reading(expand(url), None) as connection:  # Only runs read this table, so there is no time limit.
        column_types = columns_of(connection, table, schema, (*key, deleted_at))
        columns: list[sa.ColumnElement[Any]] = [sa.column(name) for name in (deleted_at, *key)]
        query = sa.select(*columns).select_from(sa.table(table, schema=schema))
        kind = None if _keeps_texts(connection, column_types[deleted_at]) else column_types[deleted_at]
        query = query.where(columns[0].is_not(None), *_range(columns[0], kind, start, end))
        with connection.execution_options(yield_per=_ROWS_PER_READ).execute(query) as rows:
            for moment, *values in rows:
                marker = _marker(f"{table}: column {deleted_at}", moment, end)
                if (start or "") < marker <= end:
                    yield *values, decode(marker)


def _marker(column: str, value: object, end: str) -> str:
    try:
        marker = as_marker(value)
    except InvalidEvent as error:
        raise SourceUnavailable(f"{column}: {error} Correct the row.") from None
    if isinstance(marker, int) != isinstance(decode(end), int):
        raise SourceUnavailable(
            f"{column} has {value!r}: expected markers of the same kind as in the table with the deleted rows, such as "
            f"{decode(end)}."
        )
    return encode(marker)


def _keeps_texts(connection: sa.Connection, kind: sa.types.TypeEngine[Any]) -> bool:
    return connection.dialect.name == "sqlite" and isinstance(kind, sa.types.DateTime)


def _range(
    column: sa.ColumnElement[Any], kind: sa.types.TypeEngine[Any] | None, start: str | None, end: str
) -> list[sa.ColumnElement[bool]]:
    """Return SQL conditions on the time of a delete, which let the database skip rows outside of two markers.

    `rows` applies the exact range to the result.
    """
    bounds = [_bound(decode(each), kind) for each in (start, end) if each is not None]
    if None in bounds:
        return []
    return [*([column >= bounds[0]] if start else []), column <= bounds[-1]]


def _bound(marker: Marker, kind: sa.types.TypeEngine[Any] | None) -> Marker | None:
    """Return a marker in a form that the database can compare with a column of this type. Return None for texts."""
    if isinstance(kind, sa.types.Integer) and isinstance(marker, int):
        return marker
    if isinstance(kind, sa.types.DateTime) and isinstance(marker, datetime):
        return marker if kind.timezone else marker.astimezone(UTC).replace(tzinfo=None)
    return None
