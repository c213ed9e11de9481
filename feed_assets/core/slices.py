"""The slice of an event table that a run reads, as a value and as a condition in SQL."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.events import Marker, Operation, decode
from feed_assets.core.feeds import Partition
from feed_assets.core.intervals import Interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SliceReader(Protocol):
    """Reader of a slice's rows from a SQL database."""

    def __call__(
        self, piece: "Slice", spark: "SparkSession", url: str, table: str, *, by: str, schema: str | None = None
    ) -> "DataFrame":
        """Return the rows of a SQL table that belong to a slice. Raise SourceUnavailable if they cannot be read."""
        ...


@dataclass(frozen=True)
class Slice:
    """The rows of an event table's partition that a run reads: rows updated after one marker, up to another.

    A slice may be read a second time: for late rows, or in a manual run. `merge_by_key` merges its rows into the
    existing rows, so that no row is counted twice.

    Attributes:
        partition: The table and its partition.
        start: The encoded marker after which the slice begins. None is the beginning of the table, for a full load.
            `after` is the decoded marker.
        end: The encoded marker with which the slice ends, inclusive. `upto` is the decoded marker.
        operations: The operations of its events: `OVERWRITE`, `INSERT`, `UPDATE`, `UPSERT`, `DELETE`.
        events: The number of its write events.
        bytes: The sum of the bytes that these events report, 0 if no event reports any.
        reader: A function that reads the rows. Every slice that a run passes to its function has a reader.
    """

    partition: Partition
    start: str | None
    end: str
    operations: frozenset[Operation]
    events: int = 1
    bytes: int = 0
    reader: SliceReader | None = field(default=None, compare=False, repr=False)

    @property
    def interval(self) -> Interval:
        """Return the slice's bounds as an interval of encoded markers."""
        return Interval(self.start, self.end)

    @property
    def after(self) -> Marker | None:
        """Return the lower bound, exclusive: a moment in UTC, a version, or None for the beginning."""
        return None if self.start is None else decode(self.start)

    @property
    def upto(self) -> Marker:
        """Return the upper bound, inclusive: a moment in UTC or a version."""
        return decode(self.end)

    @property
    def version(self) -> str:
        """Return a version that identifies the slice among the slices of its table."""
        return f"{self.start or ''}..{self.end}"

    def where(self, column: str) -> str:
        """Return the slice as a SQL condition that means the same on Spark, PostgreSQL and SQLite in any session zone.

        A row that was updated after the slice's end belongs to a later slice. The literals have no type, so each
        database reads them in the column's type. A column without a time zone must be in UTC.

        Args:
            column: The column that the table's markers are made of, quoted if necessary. It has versions, moments with
                a time zone, or moments in UTC without one.
        """
        return condition(self, column)

    def read(self, spark: "SparkSession", url: str, table: str, *, by: str, schema: str | None = None) -> "DataFrame":
        """Read the rows of the slice from a SQL database, in parallel and in bounded batches.

        JDBC is used if the session has PostgreSQL's driver. Otherwise SQLAlchemy reads the rows in Spark's Python
        workers, which must be able to reach the database. Each action on the frame reads the rows anew.

        Args:
            spark: The session, such as `SparkSession.active()`.
            url: A SQLAlchemy URL, or `env:NAME` for the value of a variable.
            table: The table or view in the database.
            by: The column that the table's markers are made of, as in `where`. A row with NULL in this column is in no
                slice. In SQLite the column's texts may have any ISO 8601 form, with up to microseconds.
            schema: The database schema of the table.

        Returns:
            The rows with all columns. Moments without a zone are read as UTC. Values of a type that Spark lacks, and
            numbers without declared digits, become text.

        Raises:
            InvalidDefinition: The slice was made by hand, without a reader.
            SourceUnavailable: The database does not answer, has no such table or column, or the column has values that
                are not markers.
        """
        if self.reader is None:
            raise InvalidDefinition(
                f"a slice of {self.partition.feed} has no reader: expected a slice that a run gives to its function. "
                "To read a slice that you make yourself, give it `reader=feed_assets.sources.slice_rows.rows_of`."
            )
        return self.reader(self, spark, url, table, by=by, schema=schema)


def condition(piece: Slice, column: str, separator: str = " ") -> str:
    """Return a slice as a SQL condition. `separator` stands between day and time in its literals."""
    after = f"{column} > {_literal(piece.after, separator)} AND " if piece.after is not None else ""
    return f"{after}{column} <= {_literal(piece.upto, separator)}"


def _literal(marker: Marker, separator: str) -> str:
    # SQLite compares texts. A literal with a zone sorts directly after the same moment in SQLAlchemy's form, which is
    # `2024-01-01 00:00:00.000000`.
    return str(marker) if isinstance(marker, int) else f"'{marker.isoformat(separator, 'microseconds')}'"
