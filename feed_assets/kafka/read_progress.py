"""Figures of a connector's progress: totals, and how long messages waited for their signals."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import time

from feed_assets.heartbeats import Figures
from feed_assets.kafka.messages import Message
from feed_assets.kafka.offset_range import PartitionOfTopic
from feed_assets.kafka.signal_message import Signal


@dataclass
class Counts:
    """Numbers of messages, chunks and dead letters."""

    messages: int = 0
    chunks: int = 0
    dead_letters: int = 0

    def add(self, signal: Signal) -> None:
        """Count a signalled chunk."""
        self.chunks += 1
        self.dead_letters += signal.dead_letters

    def since(self, before: "Counts") -> "Counts":
        """Return what was counted since earlier numbers of the same process."""
        return Counts(
            self.messages - before.messages,
            self.chunks - before.chunks,
            self.dead_letters - before.dead_letters,
        )


@dataclass
class ReadProgress:
    """Progress of a process over all of its sessions. Times are seconds since 1970; 0 means never, or none.

    The time of a message is its own timestamp, which a producer may have set.
    """

    now: Callable[[], float] = time
    totals: Counts = field(default_factory=Counts)
    signalled_at: float = 0.0
    latency: float = 0.0
    """Seconds from the first message of the chunk that was signalled last to its signal."""
    _first: dict[PartitionOfTopic, float] = field(default_factory=dict[PartitionOfTopic, float])
    """The time of each partition's first message that was read and has no signal."""
    _last: dict[PartitionOfTopic, tuple[int, int]] = field(default_factory=dict[PartitionOfTopic, tuple[int, int]])
    """The offset and timestamp of each partition's last message."""

    def take(self, place: PartitionOfTopic, message: Message) -> None:
        """Count a message that was read."""
        self.totals.messages += 1
        self._last[place] = message.offset, message.timestamp
        if place not in self._first:
            self._first[place] = message.moment / 1000

    def add(self, place: PartitionOfTopic, signal: Signal) -> None:
        """Count a signalled chunk. If the message that ended it is not in it, the next chunk begins with this message.

        A chunk whose time is over ends without another message.
        """
        self.totals.add(signal)
        self.signalled_at = self.now()
        first, (offset, timestamp) = self._first.pop(place, self.signalled_at), self._last.get(place, (-1, 0))
        self.latency = max(0.0, self.signalled_at - first)
        if offset >= signal.next_offset:
            self._first[place] = Message(offset, None, None, timestamp=timestamp).moment / 1000

    def drop(self, place: PartitionOfTopic) -> None:
        """Forget the messages of a partition that is no longer read here."""
        self._first.pop(place, None)

    @property
    def figures(self) -> Figures:
        """Return the figures for the connector's heartbeat."""
        return {
            "messages_total": self.totals.messages,
            "chunks_total": self.totals.chunks,
            "dead_letters_total": self.totals.dead_letters,
            "last_signal_timestamp_seconds": self.signalled_at,
            "signal_latency_seconds": self.latency,
            "unsignalled_since_timestamp_seconds": min(self._first.values(), default=0.0),
        }
