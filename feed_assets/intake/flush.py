"""Flush of the spool to the blackboard and the ledger: each sealed segment becomes one batch for each of its hours."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from feed_assets.core.errors import ServiceUnavailable
from feed_assets.core.events import Rejected
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.isolation import failing_alone
from feed_assets.core.reports import counts_of
from feed_assets.intake.batch_publication import BatchContent, publish
from feed_assets.intake.receiver import Receiver
from feed_assets.intake.spool import Frame, Gap, frames_and_gaps
from feed_assets.ledger import event_rejects, idempotency
from feed_assets.ledger.idempotency import Taken

PART = "events.json"
"""The only part of a batch."""

LARGE = 50
"""A feed with more hours than this in a segment is large. One look publishes up to this many batches of large feeds.

A batch takes about 0.1 s on an object store, so events of other feeds wait at most 5 s for a large one.
"""

TOLD, REMOVED = "segment told", "segment removed"
"""Steps: the ledger has everything in a segment; its file is removed."""

_log = logging.getLogger(__name__)


@dataclass
class _Hour:
    """The events of one feed and hour in a segment."""

    lines: bytearray = field(default_factory=bytearray)
    windows: Counter[datetime] = field(default_factory=Counter[datetime])


@dataclass
class _Gathered:
    """The content of a segment, by partition and by feed."""

    hours: dict[Partition, _Hour] = field(default_factory=dict[Partition, _Hour])
    rejected: dict[str, list[Rejected]] = field(default_factory=dict[str, list[Rejected]])
    keys: list[Taken] = field(default_factory=list[Taken])
    gaps: list[Gap] = field(default_factory=list[Gap])

    @classmethod
    def of(cls, segment: Path, receiver: str) -> "_Gathered":
        gathered = cls()
        for each in frames_and_gaps(segment):
            gathered.gaps.append(each) if isinstance(each, Gap) else gathered._add(each, receiver)
        return gathered

    def _add(self, frame: Frame, receiver: str) -> None:
        feed, at = Feed.parse(frame.feed), 0
        for piece in frame.pieces:
            hour = self.hours.setdefault(Partition(feed, piece.key), _Hour())
            hour.lines += frame.lines[at : at + piece.size]
            hour.windows[datetime.fromtimestamp(piece.start, UTC)] += piece.events
            at += piece.size
        self.rejected.setdefault(frame.name, []).extend(Rejected(*each) for each in frame.rejected)
        if frame.key:
            self.keys.append(Taken(frame.name, frame.key, frame.digest, receiver, frame.answer))

    def batches(self, name: str) -> Iterator[BatchContent]:
        """Yield the batches, of feeds with the fewest hours first, so that small feeds do not wait for large ones."""
        hours_of = self._hours_of()
        for partition in sorted(self.hours, key=lambda each: (hours_of[each.feed], each)):
            hour = self.hours[partition]
            yield BatchContent(partition.batch(name), {PART: bytes(hour.lines)}, counts_of(hour.windows))

    def small(self) -> int:
        """Return the number of batches of feeds that are not large, which come first in `batches`."""
        return sum(hours for hours in self._hours_of().values() if hours <= LARGE)

    def _hours_of(self) -> Counter[Feed]:
        return Counter(partition.feed for partition in self.hours)


def flush(receiver: Receiver, segment: Path, limit: int | None = None) -> int:
    """Publish a sealed segment, record it in the ledger, and remove it. Set a damaged one aside. May be repeated.

    Up to `limit` batches of large feeds are published, and the rest by later calls. Return how many were.

    A segment is never written again, so its batches always have the same names and parts. Its file is removed last,
    when the ledger has all its batches, rejects and answered keys. After an earlier kill everything is repeated,
    without changing what is already done.
    """
    begun = receiver.begun.get(segment, 0)
    if begun and limit == 0:
        return 0
    gathered = _Gathered.of(segment, receiver.spool.receiver)
    count, small = len(gathered.hours), gathered.small()
    first_large = max(begun, small)
    end = count if limit is None else min(count, first_large + limit)
    for number, batch in enumerate(islice(gathered.batches(segment.stem), begun, end), begun + 1):
        publish(receiver.services, batch, f"receiver {receiver.spool.receiver}")
        if number >= small:  # After a failure, the next call publishes all small feeds again, whatever its limit.
            receiver.begun[segment] = number
    if end == count:
        _finish(receiver, segment, gathered)
    return end - first_large


def _finish(receiver: Receiver, segment: Path, gathered: _Gathered) -> None:
    """Record rejected events and answered keys of a segment with published batches. Then remove its file."""
    services = receiver.services
    with services.ledger.write() as connection:
        idempotency.answered(connection, gathered.keys, services.now())
        for feed, rejected in sorted(gathered.rejected.items()):
            event_rejects.reject(connection, feed, rejected, services.now())
    services.on_step(TOLD)
    for each in gathered.keys:
        receiver.spooled.pop(each.at, None)
    receiver.spool.set_aside(segment, gathered.gaps) if gathered.gaps else segment.unlink()
    receiver.begun.pop(segment, None)
    services.on_step(REMOVED)


def flush_all(receiver: Receiver, segments: Iterable[Path], limit: int | None = None) -> str:
    """Flush segments, with up to `limit` batches of large feeds. Return why segments wait for a person, else ''.

    A problem of one segment delays no other. Each call publishes the small feeds of all segments.
    """
    problems: dict[str, str] = {}
    for segment in segments:
        with failing_alone(problems, segment.name):
            try:
                published = flush(receiver, segment, limit)
            except ServiceUnavailable as error:  # The next segment would fail on it, too.
                _log.warning("%s waits: %s", segment, error)
                return f"{segment.name} waits: {error}"
            limit = None if limit is None else limit - published
    return "; ".join(f"{name} cannot be published, and is kept: {why}" for name, why in problems.items())
