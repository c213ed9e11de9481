"""Rows by window of event time, counted in a pass that is there anyway."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf

from feed_assets.core.written import Counts
from feed_assets.spark.parse import column

SPAN = 1000
"""Windows from the first to the last that are counted in passing, such as three days of five minutes."""

_MICROS = 1_000_000


@dataclass(frozen=True)
class Counting:
    """Rows are counted by this event time, in windows of this length, on the grid of UTC."""

    event_time: str
    length: timedelta

    @property
    def histogram(self) -> Column:
        """The rows of each window as one value, which an observation can take; `exact` reads it.

        A histogram merges what is nearest once it has more than so many bins. Numbered round a ring there are never
        more windows than that, so that it merges what several tasks have counted of one window, and nothing else.
        """
        position = sf.pmod(sf.unix_seconds(column(self.event_time)), sf.lit(SPAN * self._seconds))
        number = sf.call_function("div", position, sf.lit(self._seconds))
        return sf.histogram_numeric(number.cast("double"), sf.lit(SPAN))

    def exact(self, bins: Iterable[Row] | None, first: int | None, last: int | None) -> Counts | None:
        """The counts in a histogram of rows from `first` to `last` (microseconds since 1970).

        None if these are too far apart: then two windows may have one number.
        """
        if first is None or last is None:
            return ()
        lowest, highest = (moment // _MICROS // self._seconds for moment in (first, last))
        if highest - lowest >= SPAN:
            return None
        numbers = ((lowest + (round(each["x"]) - lowest) % SPAN, int(each["y"])) for each in bins or ())
        return _summed((number * self._seconds, records) for number, records in numbers)

    def counted(self, frame: DataFrame, key: Column) -> dict[str, Counts]:
        """The rows of each window of a frame by a text of theirs, in a job of its own."""
        seconds = sf.unix_seconds(column(self.event_time))
        start = seconds - sf.pmod(seconds, sf.lit(self._seconds))
        rows = frame.groupBy(key.alias("key"), start.alias("start")).count().where("start is not null").collect()
        found: dict[str, list[tuple[int, int]]] = {}
        for row in rows:
            found.setdefault(row["key"], []).append((row["start"], row["count"]))
        return {each: _summed(counts) for each, counts in found.items()}

    @property
    def _seconds(self) -> int:
        return int(self.length.total_seconds())


def _summed(counts: Iterable[tuple[int, int]]) -> Counts:
    """Counts by the start of their windows, in seconds since 1970; each window once, in order."""
    total: Counter[int] = Counter()
    for seconds, records in counts:
        total[seconds] += records
    return tuple((datetime.fromtimestamp(each, UTC), total[each]) for each in sorted(total))
