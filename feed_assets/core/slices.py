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
        """Return the rows. Raise SourceUnavailable if they cannot be read."""
        ...


@dataclass(frozen=True)
class Slice:
    """The rows of one event table's partition that a run reads: those updated after one marker, up to another.

    It may be read again, late or by hand: `merge_by_key` adds it to what is there without counting a row twice.

    Attributes:
        partition: The table and its partition.
        start: The marker after which it begins, encoded; None is the beginning, as when everything is loaded. `after`
            has it as a value.
        end: The marker up to which it goes, encoded, which counts. `upto` has it as a value.
        operations: How the table was written since: one of `OVERWRITE`, `INSERT`, `UPDATE`, `UPSERT`, `DELETE` each.
        events: How many write events it is made of.
        bytes: How many bytes they report, 0 if none does.
        reader: Reads its rows. A run gives one to the slices of its function.
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
        """Return its bounds, as they are compared."""
        return Interval(self.start, self.end)

    @property
    def after(self) -> Marker | None:
        """Return the lower bound, which does not count: a moment in UTC or a version; None is the beginning."""
        return None if self.start is None else decode(self.start)

    @property
    def upto(self) -> Marker:
        """Return the upper bound, which counts: a moment in UTC or a version."""
        return decode(self.end)

    @property
    def version(self) -> str:
        """Return the version, which distinguishes it as an input from other slices of the same table."""
        return f"{self.start or ''}..{self.end}"

    def where(self, column: str) -> str:
        """Return the slice as a condition in SQL that Spark, PostgreSQL and SQLite read alike in any session zone.

        A row that was updated later belongs to a later slice, even if it is there already. The literals have no type,
        so that each database reads them as the column's: UTC is honoured by columns with a zone, and taken for granted
        by those without one and by SQLite's text.

        Args:
            column: The column that the table's markers are made of, quoted if it has to be: a moment, with a zone or
                in UTC without one, or a version.
        """
        return condition(self, column)

    def read(self, spark: "SparkSession", url: str, table: str, *, by: str, schema: str | None = None) -> "DataFrame":
        """Read the rows of the slice from a SQL database, in parallel and in bounded batches.

        It uses JDBC if the session has the database's driver (of PostgreSQL), else SQLAlchemy in Spark's Python
        workers, which then need to reach the database. The rows are read whenever Spark works on the frame.

        Args:
            spark: The session, such as `SparkSession.active()`.
            url: A SQLAlchemy URL, or `env:NAME` for the value of a variable.
            table: The table or view there.
            by: The column that the table's markers are made of, as in `where`. A row in which it is NULL is in no
                slice. In SQLite its texts may be in each of the ISO forms, to microseconds.
            schema: The database's schema that it is in.

        Returns:
            The rows with all columns. Moments without a zone are taken for UTC; a type that Spark lacks, and a number
            without declared digits, is text.

        Raises:
            InvalidDefinition: The slice was made by hand, without a reader.
            SourceUnavailable: The database does not answer, has no such table or column, or the column has something
                else than markers.
        """
        if self.reader is None:
            raise InvalidDefinition(
                f"a slice of {self.partition.feed} has no reader: expected one that a run gives to its function. To "
                "read one that you make yourself, give it `reader=feed_assets.sources.slice_rows.rows_of`."
            )
        return self.reader(self, spark, url, table, by=by, schema=schema)


def condition(piece: Slice, column: str, separator: str = " ") -> str:
    """Return a slice as a condition in SQL, whose literals have this character between day and time."""
    after = f"{column} > {_literal(piece.after, separator)} AND " if piece.after is not None else ""
    return f"{after}{column} <= {_literal(piece.upto, separator)}"


def _literal(marker: Marker, separator: str) -> str:
    # SQLite compares text: rows as SQLAlchemy writes them, `2024-01-01 00:00:00.000000`, sort right beside the zone.
    return str(marker) if isinstance(marker, int) else f"'{marker.isoformat(separator, 'microseconds')}'"
