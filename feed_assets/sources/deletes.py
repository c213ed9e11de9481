"""A table of deletes: the removed rows of another table, with their times.

Such a table is an alternative to DELETE events.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.argument_types import Url
from feed_assets.core.errors import InvalidEvent, SourceUnavailable
from feed_assets.core.events import Marker, decode, encode
from feed_assets.core.typed import typed
from feed_assets.settings import expand
from feed_assets.sources.databases import columns_of, reading
from feed_assets.sources.event_rows import as_marker

_ROWS_PER_READ = 10_000


@typed
@dataclass(frozen=True)
class DeletesTable:
    """A table or view that lists the removed rows of another table, with their times. feed_assets only reads it.

    With an index on `deleted_at`, the database reads only the rows of the result. If the column contains texts, as in
    SQLite, the database reads all rows.

    Args:
        url: A SQLAlchemy URL, or `env:NAME` for the value of a variable.
        table: The name of the table of deletes.
        key: The column or columns with the primary key of a deleted row.
        deleted_at: The column with the time of the delete: a moment (UTC if it has no zone) or a whole number, also as
            a text. A row with null in this column is not a delete.
        schema: The table's schema in the database.

    Raises:
        InvalidDefinition: A value is of a wrong type, or the URL is invalid.
    """

    url: Url = field(repr=False)
    table: str
    key: str | tuple[str, ...] = "id"
    deleted_at: str = "deleted_at"
    schema: str | None = field(default=None, kw_only=True)

    def read(self, start: str | None, end: str) -> Iterator[tuple[Any, ...]]:
        """Return the keys that were deleted after marker `start`, up to and including marker `end`.

        Markers are texts made by `core.events.encode`; `start` may be None for the beginning. Each key is a tuple with
        one value for each column. Raise SourceUnavailable if the table cannot be read.
        """
        return (row[:-1] for row in self.rows(start, end))

    def rows(self, start: str | None, end: str) -> Iterator[tuple[Any, ...]]:
        """Yield the keys like `read`, each followed by the time of its delete: a moment in UTC, or a whole number."""
        names = (self.key,) if isinstance(self.key, str) else self.key
        with reading(expand(self.url), None) as connection:  # Only runs read this table, so there is no time limit.
            column_types = columns_of(connection, self.table, self.schema, (*names, self.deleted_at))
            columns: list[sa.ColumnElement[Any]] = [sa.column(name) for name in (self.deleted_at, *names)]
            query = sa.select(*columns).select_from(sa.table(self.table, schema=self.schema))
            kind = None if _keeps_texts(connection, column_types[self.deleted_at]) else column_types[self.deleted_at]
            query = query.where(columns[0].is_not(None), *_range(columns[0], kind, start, end))
            with connection.execution_options(yield_per=_ROWS_PER_READ).execute(query) as rows:
                for moment, *key in rows:
                    if (start or "") < (marker := self._marker(moment, end)) <= end:
                        yield *key, decode(marker)

    def _marker(self, value: object, end: str) -> str:
        try:
            marker = as_marker(value)
        except InvalidEvent as error:
            raise SourceUnavailable(f"{self.table}: column {self.deleted_at}: {error} Correct the row.") from None
        if isinstance(marker, int) != isinstance(decode(end), int):
            raise SourceUnavailable(
                f"{self.table}: column {self.deleted_at} has {value!r}: expected markers of the same kind as in the "
                f"table with the deleted rows, such as {decode(end)}."
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
