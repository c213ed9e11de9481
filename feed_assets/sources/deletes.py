"""A table of deletes: the removed rows of another table, with their times.

Such a table is an alternative to DELETE events.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from feed_assets.core.argument_types import Url
from feed_assets.core.typed import typed


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
        """Return the keys like `read`, each followed by the time of its delete: a moment in UTC, or a whole number."""
        from feed_assets.sources.deleted_rows import deleted_rows  # SQLAlchemy takes long to load.

        key = (self.key,) if isinstance(self.key, str) else self.key
        return deleted_rows(
            self.url, self.table, self.schema, key=key, deleted_at=self.deleted_at, start=start, end=end
        )
