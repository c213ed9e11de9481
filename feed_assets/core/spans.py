"""The span of a table that a run reads by its complete windows, as a value and as a condition in SQL."""

from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.feeds import Feed
from feed_assets.core.windows import Window


@dataclass(frozen=True)
class Span:
    """The rows of a state table that a run reads: those of a time in which every window is complete.

    Attributes:
        dataset: The table.
        sub_partition: The part of it, such as `region=apac`; '' is all of it.
        start: The moment from which on it is read, UTC, which counts.
        end: The moment up to which it is read, UTC, which does not count.
        windows: The windows that fill it, in order.
    """

    dataset: Feed
    sub_partition: str
    start: datetime
    end: datetime
    windows: tuple[Window, ...]

    def where(self, column: str) -> str:
        """Return the span as a condition in SQL that Spark, PostgreSQL and SQLite read alike in any session zone.

        Args:
            column: The column of event times, quoted if it has to be: with a zone, or in UTC without one.
        """
        first, last = (moment.isoformat(" ", "microseconds") for moment in (self.start, self.end))
        return f"{column} >= '{first}' AND {column} < '{last}'"
