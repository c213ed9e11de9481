"""Groups of signals that are loaded together. Signals are collected up to a number or a time, then split by schema.

A topic partition's chunks are loaded in the order of offsets, so a group ends where another schema begins. With a
separate buffer for each schema, a load could move a partition's position past rows that are not loaded yet.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from feed_assets.kafka.signal_message import Signal


class Signalled(NamedTuple):
    """The signal of a chunk, and the offset after this signal in the topic of signals."""

    signal: "Signal"
    signal_offset: int


class LoadGroup(NamedTuple):
    """Signals of one schema, ordered within each partition. `schema_id` is None if all rows are tombstones."""

    schema_id: int | None
    signals: tuple[Signalled, ...]


def runs(signals: Iterable[Signalled]) -> Iterator[LoadGroup]:
    """Split signals into groups with one schema each, oldest schema first. The order within a partition stays.

    A signal without a schema, which has only tombstones, joins any group.
    """
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
    """The signals of a topic that are not loaded yet. The caller passes the time, so the buffer reads no clock."""

    chunks: int
    seconds: float
    signals: list[Signalled] = field(default_factory=list[Signalled])
    opened: float = 0

    @property
    def room(self) -> int:
        """Return how many more signals (announcements of chunks) fit into one load."""
        return max(0, self.chunks - len(self.signals))

    def add(self, signal: Signalled, now: float) -> None:
        """Add the signal of a chunk that is to be loaded."""
        if not self.signals:
            self.opened = now
        self.signals.append(signal)

    def due(self, now: float) -> list[LoadGroup]:
        """Return the waiting signals as groups to load, in order, if the buffer is full or its time is over.

        Otherwise return [].
        """
        if not self.signals or (self.room and now < self.opened + self.seconds):
            return []
        signals, self.signals = self.signals, []
        return [*runs(signals)]
