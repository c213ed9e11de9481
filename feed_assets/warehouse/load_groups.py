"""Runs of signals, which are loaded together: signals are kept up to a number or a time, then cut by schema.

Chunks of a topic partition are loaded in the order of their offsets, so a run ends where another schema begins. A
buffer for each schema, loaded alone, would move a partition's position over rows that are not loaded.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from feed_assets.kafka.signal_message import Signal


class Signalled(NamedTuple):
    """A signal, and the offset behind it on its own topic."""

    signal: "Signal"
    signal_offset: int


class LoadGroup(NamedTuple):
    """Signals of one schema, those of each partition in order; `schema_id` is null where all rows are tombstones."""

    schema_id: int | None
    signals: tuple[Signalled, ...]


def runs(signals: Iterable[Signalled]) -> Iterator[LoadGroup]:
    """Cut signals where the schema of their partition changes, the oldest first; those without one join any run."""
    queues: dict[int, deque[Signalled]] = {}
    for each in signals:
        queues.setdefault(each.signal.partition, deque()).append(each)
    while any(queues.values()):
        first_schema_ids = [_first_schema(queue) for queue in queues.values()]
        schema_id = min((each for each in first_schema_ids if each is not None), default=None)
        yield LoadGroup(schema_id, tuple(each for queue in queues.values() for each in _popped(queue, schema_id)))


def _first_schema(queue: Iterable[Signalled]) -> int | None:
    return next((each.signal.schema_id for each in queue if each.signal.schema_id is not None), None)


def _popped(queue: deque[Signalled], schema_id: int | None) -> Iterator[Signalled]:
    while queue and queue[0].signal.schema_id in (None, schema_id):
        yield queue.popleft()


@dataclass
class Buffer:
    """The signals of a topic that are not loaded yet. Pure: the clock is handed in."""

    chunks: int
    seconds: float
    signals: list[Signalled] = field(default_factory=list[Signalled])
    opened: float = 0

    @property
    def room(self) -> int:
        """Return how many signals it takes until it is full."""
        return max(0, self.chunks - len(self.signals))

    def add(self, signal: Signalled, now: float) -> None:
        """Take a signal."""
        if not self.signals:
            self.opened = now
        self.signals.append(signal)

    def due(self, now: float) -> list[LoadGroup]:
        """Return the runs to load now, in this order: everything, if it is full or its time is over."""
        if not self.signals or (self.room and now < self.opened + self.seconds):
            return []
        signals, self.signals = self.signals, []
        return [*runs(signals)]
