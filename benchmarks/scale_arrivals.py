"""When files of foreign feeds arrive in the simulation of scale: late with a heavy tail, and some of them twice."""

from collections.abc import Iterator
from heapq import heappop, heappush
from random import Random

from benchmarks.scale_graph import REGIONS, ScaleGraph, key_of, partition
from feed_assets.core.feeds import Partition

CORRECTED, SENT_AGAIN = 0.01, 0.005
"""Shares of files after which other data come for an earlier hour, and the same data once more."""

MINUTES, TAIL, LATEST = 3.0, 1.2, 6 * 60
"""Delays have a Pareto distribution: the least minutes, the exponent, and the greatest minutes."""

CORRECTED_HOURS = 48
"""Mean age of the hours that are corrected."""


class Arrivals:
    """The arrivals of `hours` hours after `first` hours of history. Minutes count from the end of the history."""

    def __init__(self, scale: ScaleGraph, first: int, hours: int, random: Random) -> None:
        self._first, self._random = first, random
        self.planned = list[tuple[float, int, Partition, str]]()
        for number in range(hours):
            for feed in scale.foreign:
                for region in REGIONS:
                    self._expect(
                        (number + 1) * 60 + self._delay(), partition(feed, key_of(first + number, region)), region
                    )

    def until(self, minute: float) -> Iterator[tuple[int, Partition, str]]:
        """Yield the arrivals up to a minute: a number, the partition, and "new", "again" (the same data) or "other"."""
        while self.planned and self.planned[0][0] <= minute:
            _, number, at, what = heappop(self.planned)
            yield number, at, what

    def _expect(self, minute: float, at: Partition, region: str) -> None:
        self._plan(minute, at, "new")
        if self._random.random() < SENT_AGAIN:
            self._plan(minute + self._delay(), at, "again")
        if self._random.random() < CORRECTED:
            back = min(int(self._random.expovariate(1 / CORRECTED_HOURS)), self._first - 1)
            earlier = partition(str(at.feed), key_of(self._first - 1 - back, region))
            self._plan(minute + self._delay(), earlier, "other")

    def _plan(self, minute: float, at: Partition, what: str) -> None:
        heappush(self.planned, (minute, len(self.planned), at, what))

    def _delay(self) -> float:
        return min(MINUTES * self._random.paretovariate(TAIL), LATEST)
