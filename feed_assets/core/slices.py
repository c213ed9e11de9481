"""What a run reads of an event table, as a value and as a condition in SQL."""

from dataclasses import dataclass

from feed_assets.core.events import Marker, Operation, decode
from feed_assets.core.feeds import Partition
from feed_assets.core.intervals import Interval


@dataclass(frozen=True)
class Slice:
    """What a run reads of one event table's partition: what was updated after one marker, up to another.

    It may be read again, late or by hand: `merge_by_key` adds it to what is there without counting a row twice.

    Attributes:
        partition: The table and its partition.
        start: The marker after which it begins, encoded; None is the beginning, as where everything is loaded. `after`
            has it as a value.
        end: The marker up to which it goes, encoded, which counts. `upto` has it as a value.
        operations: How the table was written since: one of `OVERWRITE`, `INSERT`, `UPDATE`, `UPSERT`, `DELETE` each.
        events: How many write events it is made of.
        bytes: How many bytes they tell of, 0 if none tells it.
    """

    partition: Partition
    start: str | None
    end: str
    operations: frozenset[Operation]
    events: int = 1
    bytes: int = 0

    @property
    def interval(self) -> Interval:
        """Its bounds, as they are compared."""
        return Interval(self.start, self.end)

    @property
    def after(self) -> Marker | None:
        """The lower bound, which does not count: a moment in UTC or a version; None is the beginning."""
        return None if self.start is None else decode(self.start)

    @property
    def upto(self) -> Marker:
        """The upper bound, which counts: a moment in UTC or a version."""
        return decode(self.end)

    @property
    def version(self) -> str:
        """What makes another slice of the same table another input."""
        return f"{self.start or ''}..{self.end}"

    def where(self, column: str) -> str:
        """Returns the slice as a condition in SQL that Spark, PostgreSQL and SQLite read alike in any session zone.

        A row that was updated later belongs to a later slice, even if it is there already. The literals have no type,
        so that each database reads them as the column's: UTC is honoured by columns with a zone, and taken for granted
        by those without one and by SQLite's text.

        Args:
            column: The column that the table's markers are made of, quoted if it has to be: a moment, with a zone or
                in UTC without one, or a version.
        """
        after = f"{column} > {_literal(self.after)} AND " if self.after is not None else ""
        return f"{after}{column} <= {_literal(self.upto)}"


def _literal(marker: Marker) -> str:
    # SQLite compares text: rows as SQLAlchemy writes them, `2024-01-01 00:00:00.000000`, sort right beside the zone.
    return str(marker) if isinstance(marker, int) else f"'{marker.isoformat(' ', 'microseconds')}'"
