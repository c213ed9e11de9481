"""The time span that a run reads of a state table, as a value and as a SQL condition."""

from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.feeds import Feed
from feed_assets.core.windows import Window


@dataclass(frozen=True)
class Span:
    """The rows of a state table that a run reads: a time span in which all windows are complete.

    Attributes:
        dataset: The table.
        sub_partition: The sub-partition, such as `region=apac`; '' is the whole table.
        start: The start (UTC), inclusive.
        end: The end (UTC), exclusive.
        windows: The windows that fill the span, in order.
    """

    dataset: Feed
    sub_partition: str
    start: datetime
    end: datetime
    windows: tuple[Window, ...]

    def where(self, column: str) -> str:
        """Return the span as a SQL condition that means the same on Spark, PostgreSQL and SQLite in any session zone.

        Args:
            column: The column of event times, quoted if necessary. It has moments with a time zone, or moments in UTC
                without one.
        """
        first, last = (moment.isoformat(" ", "microseconds") for moment in (self.start, self.end))
        return f"{column} >= '{first}' AND {column} < '{last}'"
