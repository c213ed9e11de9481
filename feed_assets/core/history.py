"""History: outputs that are built long after their time, in which order, and how many a day."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from feed_assets.core.feeds import Partition

Place = tuple[int, float]
"""The place of an output in line, the least first: 0 if it is new, 1 for history, by the end of its window of time."""


class Order(StrEnum):
    """The history that is built first."""

    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True)
class History:
    """Rules for history: what counts as history, its order, and how much may be requested a day (UTC); None: all.

    An output is history when its window of time ended more than `days` ago; one without time never is.
    """

    days: int = 7
    order: Order = Order.OLDEST
    runs: int | None = None
    bytes: int | None = None

    @property
    def is_limited(self) -> bool:
        """Return whether there is a limit on a day's history."""
        return self.runs is not None or self.bytes is not None

    @property
    def limits(self) -> str:
        """Return the limits in words."""
        return f"{self.runs} runs, {self.bytes} bytes"

    def begins(self, now: datetime) -> datetime:
        """Return the moment (UTC) before which a window must have ended to be history."""
        return now - timedelta(days=self.days)

    def has(self, end: datetime | None, now: datetime) -> bool:
        """Return whether an output whose window ended at `end` is history."""
        return end is not None and end < self.begins(now)

    def place(self, end: datetime | None, now: datetime) -> Place:
        """Return the place in line of an output whose window ended at `end`."""
        if end is None or not self.has(end, now):
            return 0, 0.0
        return 1, end.timestamp() if self.order is Order.OLDEST else -end.timestamp()


ALL = History()
"""The rules without settings: the oldest first, and no limit."""


@dataclass(frozen=True)
class Spent:
    """The history that was requested on a day (UTC), by all who share a ledger.

    `full` are the limits by which an output was left for the next day: then nothing overtakes it, even if smaller.
    """

    day: date
    runs: int = 0
    bytes: int = 0
    full: str | None = None

    def on(self, now: datetime) -> "Spent":
        """Return what was spent on the day of `now`; a clock that is behind counts on the later day.

        A day further ahead is from a wrong clock: it must not hold history until then.
        """
        today = now.astimezone(UTC).date()
        return self if today <= self.day <= today + timedelta(days=1) else Spent(today)

    def plus(self, runs: int, size: int) -> "Spent":
        """Return this with so many more runs and bytes."""
        return replace(self, runs=self.runs + runs, bytes=self.bytes + size)

    def filled(self, history: History) -> "Spent":
        """Return this with something left for the next day."""
        return replace(self, full=history.limits)

    @property
    def next_day(self) -> datetime:
        """Return when the next day begins."""
        return datetime.combine(self.day + timedelta(days=1), time(), UTC)

    def __str__(self) -> str:
        return f"{self.runs:,} runs and {self.bytes:,} bytes of history were requested on {self.day} (UTC)"


def why_not(history: History, spent: Spent, size: int) -> str | None:
    """Return why one more run of history, which reads `size` bytes, may not run on this day; None if it may.

    Numbers that change with each day are left out: a changed reason is reported anew.
    """
    if history.runs is not None and spent.runs >= history.runs:
        return (
            f"it is history, of which {history.runs} runs a day (UTC) may be requested "
            "(FEED_ASSETS_HISTORY_RUNS_PER_DAY): today's are used up"
        )
    if history.bytes is None:
        return None
    # A run larger than a whole day's limit would never start: it may if it is the first.
    is_over = spent.bytes and spent.bytes + size > history.bytes
    if not is_over and spent.full != history.limits:
        return None
    return (
        f"it is history, of which {history.bytes:,} bytes a day (UTC) may be read (FEED_ASSETS_HISTORY_BYTES_PER_DAY): "
        f"its {size:,} bytes, or those of what is before it in line, are more than today has left"
    )


def fitting(history: History, spent: Spent, sizes: Iterable[int]) -> int:
    """Return how many of the first outputs of history, which read `sizes` bytes, fit into the day by bytes alone."""
    by_bytes, count = replace(history, runs=None), 0
    spent = spent.filled(by_bytes) if spent.full == history.limits else spent
    for size in sizes:
        if why_not(by_bytes, spent, size):
            break
        spent, count = spent.plus(0, size), count + 1
    return count


def in_order(
    after: Mapping[Partition, Collection[Partition]], place: Callable[[Partition], tuple[float, ...]]
) -> list[Partition]:
    """Return partitions after those that each is made of, and among those that are free the least place first."""
    sorter = TopologicalSorter(after)
    sorter.prepare()
    free, ordered = list[tuple[tuple[float, ...], Partition]](), list[Partition]()
    while sorter.is_active():
        for each in sorter.get_ready():
            heappush(free, (place(each), each))
        ordered.append(heappop(free)[1])
        sorter.done(ordered[-1])
    return ordered
