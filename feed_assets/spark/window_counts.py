"""Row counts by window of event time, made in a pass over the data that runs anyway."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf

from feed_assets.core.windows import step_of
from feed_assets.core.write_result import Counts
from feed_assets.spark.parse import column

SPAN = 1000
"""Greatest number of windows, from the first to the last row, that one pass can count.

Three days have 864 windows of five minutes.
"""

MOST_PARTS = 50
"""Greatest number of parts whose rows one pass counts separately."""

_MICROS = 1_000_000

_EARLIEST, _LATEST = -62_135_596_800 * _MICROS, 253_402_300_800 * _MICROS - 1
"""The first and the last moment of Python's years, 1 to 9999, in microseconds since 1970."""


def countable(event_time: str) -> Column:
    """Return an event time. It is NULL outside of Python's years, so one record of the year 10000 stops no run."""
    moment = column(event_time)
    return sf.when(sf.unix_micros(moment).between(_EARLIEST, _LATEST), moment)


@dataclass(frozen=True)
class Counting:
    """Rules for counting rows by an event time.

    All windows have the same length, and begin at multiples of this length in UTC.
    """

    event_time: str
    length: timedelta

    def histogram(self, part: Column | None = None, parts: int = 1) -> Column:
        """Return an aggregate for an observation: the number of rows in each window. `exact` reads the aggregate.

        With `part`, the rows of each part are counted separately. `part` is a column with the row's part, a number
        below `parts`. Rows whose `part` is NULL are not counted. A Spark histogram merges its nearest bins if there are
        more than a maximum number. Windows are numbered modulo this maximum. So Spark only merges counts of the same
        window from several tasks.
        """
        position = sf.pmod(sf.unix_seconds(countable(self.event_time)), sf.lit(SPAN * self._seconds))
        number = sf.call_function("div", position, sf.lit(self._seconds))
        if part is not None:
            number = number + part * sf.lit(SPAN)
        return sf.histogram_numeric(number.cast("double"), sf.lit(SPAN * parts))

    def by_part(self, part: Column, parts: int) -> dict[str, Column]:
        """Return the aggregates for `exact_by_part`, by the names of its arguments."""
        micros = sf.when(part.isNotNull(), sf.unix_micros(countable(self.event_time)))
        aggregates = {"bins": self.histogram(part, parts), "first": sf.min(micros), "last": sf.max(micros)}
        return {name: each.alias(name) for name, each in aggregates.items()}

    def exact(self, bins: Iterable[Row] | None, first: int | None, last: int | None) -> Counts | None:
        """Return the counts in a histogram of rows from `first` to `last` (microseconds since 1970).

        Return None if the two times are `SPAN` windows or more apart. Windows are numbered modulo `SPAN`, so two of
        them might share one bin.
        """
        counts_by_part = self.exact_by_part(bins, first, last)
        return None if counts_by_part is None else counts_by_part.get(0, ())

    def exact_by_part(
        self, bins: Iterable[Row] | None, first: int | None, last: int | None
    ) -> dict[int, Counts] | None:
        """Return the counts, as `exact` does, for each part that has rows."""
        if first is None or last is None:
            return {}
        lowest, highest = (moment // _MICROS // self._seconds for moment in (first, last))
        if highest - lowest >= SPAN:
            return None
        counts_by_part: dict[int, list[tuple[int, int]]] = {}
        for each in bins or ():
            part, place = divmod(round(each["x"]), SPAN)
            start = (lowest + (place - lowest) % SPAN) * self._seconds
            counts_by_part.setdefault(part, []).append((start, int(each["y"])))
        return {part: _summed(counts) for part, counts in counts_by_part.items()}

    def counted(self, frame: DataFrame, key: Column) -> dict[str, Counts]:
        """Return the number of rows per window for each value of `key`, in a separate job."""
        seconds = sf.unix_seconds(countable(self.event_time))
        start = seconds - sf.pmod(seconds, sf.lit(self._seconds))
        rows = frame.groupBy(key.alias("key"), start.alias("start")).count().where("start is not null").collect()
        counts_by_key: dict[str, list[tuple[int, int]]] = {}
        for row in rows:
            counts_by_key.setdefault(row["key"], []).append((row["start"], row["count"]))
        return {each: _summed(counts) for each, counts in counts_by_key.items()}

    @property
    def _seconds(self) -> int:
        return int(self.length.total_seconds())


def counting_of(event_time: str | None, grain: str | None) -> Counting | None:
    """Return the rules for counting rows by windows of a grain. Return None without an event time or a grain."""
    return Counting(event_time, step_of(grain)) if event_time and grain else None


def _summed(counts: Iterable[tuple[int, int]]) -> Counts:
    """Return the total count of each window, in the order of the starts. `counts` has starts in seconds since 1970."""
    total: Counter[int] = Counter()
    for seconds, records in counts:
        total[seconds] += records
    return tuple((datetime.fromtimestamp(each, UTC), total[each]) for each in sorted(total))
