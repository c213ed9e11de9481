"""Rules for history (outputs that are built long after their time): the order, and the limits of a day."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from feed_assets.core.feeds import Partition

Place = tuple[int, float]
"""The sort key of an output in the queue: (0, 0) for a new output; for history, 1 and a number by its window's end."""


class Order(StrEnum):
    """The part of history that is built first: the oldest or the newest windows."""

    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True)
class History:
    """Rules for history: what counts as history, its order, and how much of it may be requested a day (UTC).

    Attributes:
        days: An output is history if its window ended more than this many days ago. An output without time never is.
        order: The part of history that is built first.
        runs: The maximum number of runs a day. None means no limit.
        bytes: The maximum number of bytes that the runs of a day read. None means no limit.
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
        """Return the limits as a text, which is stored to recognize a change of the limits."""
        return f"{self.runs} runs, {self.bytes} bytes"

    def begins(self, now: datetime) -> datetime:
        """Return the moment (UTC) that separates history from new outputs: windows that ended before it are history."""
        return now - timedelta(days=self.days)

    def has(self, end: datetime | None, now: datetime) -> bool:
        """Return whether an output whose window ended at `end` is history."""
        return end is not None and end < self.begins(now)

    def place(self, end: datetime | None, now: datetime) -> Place:
        """Return the sort key of an output in the queue for runs. The output's window ended at `end`."""
        if end is None or not self.has(end, now):
            return 0, 0.0
        return 1, end.timestamp() if self.order is Order.OLDEST else -end.timestamp()


ALL = History()
"""The default rules: oldest first, without a limit."""


@dataclass(frozen=True)
class Spent:
    """The history that all users of a ledger requested on one day (UTC).

    `full` is set when an output exceeds the day's limits and waits for the next day. `full` then contains these limits.
    As long as these limits apply, no smaller output may overtake the waiting output.
    """

    day: date
    runs: int = 0
    bytes: int = 0
    full: str | None = None

    def on(self, now: datetime) -> "Spent":
        """Return the history spent on the day of `now`. If the stored day is one day ahead, it counts as today.

        The clocks of two machines may differ around midnight. A stored day further ahead is from a wrong clock, and is
        dropped.
        """
        today = now.astimezone(UTC).date()
        return self if today <= self.day <= today + timedelta(days=1) else Spent(today)

    def plus(self, runs: int, size: int) -> "Spent":
        """Return this day's history with more runs and bytes added."""
        return replace(self, runs=self.runs + runs, bytes=self.bytes + size)

    def filled(self, history: History) -> "Spent":
        """Return this day's history, marked as full under the limits of `history`."""
        return replace(self, full=history.limits)

    @property
    def next_day(self) -> datetime:
        """Return when the next day (UTC) begins, with new limits."""
        return datetime.combine(self.day + timedelta(days=1), time(), UTC)

    def __str__(self) -> str:
        return f"{self.runs:,} runs and {self.bytes:,} bytes of history were requested on {self.day} (UTC)"


def why_not(history: History, spent: Spent, size: int) -> str | None:
    """Return why a further run of history, which reads `size` bytes, may not be requested today, or None if it may.

    The reason names neither the date nor the amount used so far. These change, and each changed reason would be
    reported again.
    """
    if history.runs is not None and spent.runs >= history.runs:
        return (
            f"it is history, of which {history.runs} runs a day (UTC) may be requested "
            "(FEED_ASSETS_HISTORY_RUNS_PER_DAY): today's runs are used up"
        )
    if history.bytes is None:
        return None
    # Allow a run that is larger than the day's limit as the first run of a day. Otherwise it would never start.
    is_over = spent.bytes and spent.bytes + size > history.bytes
    if not is_over and spent.full != history.limits:
        return None
    return (
        f"it is history, of which {history.bytes:,} bytes a day (UTC) may be read (FEED_ASSETS_HISTORY_BYTES_PER_DAY): "
        f"its {size:,} bytes, or those of an output before it in the queue, are more than today has left"
    )


def fitting(history: History, spent: Spent, sizes: Iterable[int]) -> int:
    """Return how many outputs, in order, fit into the day's limit of bytes. `sizes` are the bytes that outputs read."""
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
    """Sort partitions so that each comes after the partitions that it depends on (`after`).

    Among partitions that could be next, the one with the least `place` is next.
    """
    sorter = TopologicalSorter(after)
    sorter.prepare()
    free, ordered = list[tuple[tuple[float, ...], Partition]](), list[Partition]()
    while sorter.is_active():
        for each in sorter.get_ready():
            heappush(free, (place(each), each))
        ordered.append(heappop(free)[1])
        sorter.done(ordered[-1])
    return ordered
