"""Figures of loading a topic: its rows, and how long signals waited for them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import time

from feed_assets.warehouse.load_groups import LoadGroup, Signalled


@dataclass
class LoadProgress:
    """Progress of a table since its session began. Times are seconds since 1970; 0 means never, or none."""

    now: Callable[[], float] = time
    records: int = 0
    """The number of records in loaded chunks. A key that was there before replaces its row."""
    loaded_at: float = 0.0
    latency: float = 0.0
    """Seconds from the oldest signal of the last load to its commit."""
    _since: dict[tuple[int, int], float] = field(default_factory=dict[tuple[int, int], float])
    """The times of signals that are not loaded yet, by partition and offset."""

    @property
    def since(self) -> float:
        """Return the time of the oldest signal that is not loaded yet."""
        return min(self._since.values(), default=0.0)

    @classmethod
    def total(cls, parts: Iterable["LoadProgress"]) -> "LoadProgress":
        """Return the progress of a table whose topics are loaded one by one."""
        parts = [*parts]
        last = max(parts, key=lambda each: each.loaded_at)
        since = {(number, 0): each.since for number, each in enumerate(parts) if each.since}
        return cls(last.now, sum(each.records for each in parts), last.loaded_at, latency=last.latency, _since=since)

    def add(self, signal: Signalled, at: float) -> None:
        """Add a signal that is to be loaded, and its time."""
        self._since[signal.signal.partition, signal.signal_offset] = at

    def commit(self, groups: Iterable[LoadGroup]) -> None:
        """Count a committed load."""
        signals = [each for group in groups for each in group.signals]
        self.loaded_at = self.now()
        times = [self._since.pop((each.signal.partition, each.signal_offset), self.loaded_at) for each in signals]
        self.latency = max(0.0, self.loaded_at - min(times, default=self.loaded_at))
        self.records += sum(each.signal.records for each in signals)

    def clear(self) -> None:
        """Forget the signals that wait, because they are read again."""
        self._since.clear()
