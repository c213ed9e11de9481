"""Flush of the spool to the blackboard and the ledger. A sealed segment becomes one batch for each feed and hour."""

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
"""A feed with more hours than this in a segment is a large feed.

The receiver publishes at most this many batches of large feeds at a time. A batch takes about 0.1 s on an object store,
so events of other feeds wait at most 5 s for large feeds.
"""

TOLD, REMOVED = "segment told", "segment removed"
"""Names of the steps after which the ledger has recorded a whole segment, and after which its file is removed."""

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
        """Yield a batch with the events of each hourly partition.

        Feeds with the fewest hours come first, so that small feeds do not wait for large ones.
        """
        hours_of = self._hours_of()
        for partition in sorted(self.hours, key=lambda each: (hours_of[each.feed], each)):
            hour = self.hours[partition]
            yield BatchContent(partition.batch(name), {PART: bytes(hour.lines)}, counts_of(hour.windows))

    def small(self) -> int:
        """Return the number of batches of small feeds: one for each feed and hour. `batches` yields them first."""
        return sum(hours for hours in self._hours_of().values() if hours <= LARGE)

    def _hours_of(self) -> Counter[Feed]:
        return Counter(partition.feed for partition in self.hours)


def flush(receiver: Receiver, segment: Path, limit: int | None = None) -> int:
    """Publish a sealed segment, record it in the ledger, and remove its file. Keep the file if it is damaged.

    Publish all batches of feeds with at most LARGE hours. Of larger feeds publish at most `limit` batches, and leave
    the rest to later calls. Return the number of batches of larger feeds that this call published.

    The call may be repeated, for example after a kill. A sealed segment never changes, so its batches always have the
    same names and parts, and batches that are already published stay as they are. The file is removed last, when the
    ledger has all batches, rejected events and answered idempotency keys of the segment.
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
        # Nothing is noted until all small feeds are published. So after a failure, the next call repeats all of them.
        if number >= small:
            receiver.begun[segment] = number
    if end == count:
        _finish(receiver, segment, gathered)
    return end - first_large


def _finish(receiver: Receiver, segment: Path, gathered: _Gathered) -> None:
    """Record the rejected events and answered idempotency keys of a segment. Then remove its file, or set it aside.

    All batches of the segment are already published. A file is set aside if it is damaged.
    """
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
    """Flush segments, with up to `limit` batches of large feeds. Return why segments could not be published, or ''.

    A problem with one segment does not delay the others, unless the disk, the store or the ledger is unavailable. Each
    call publishes the small feeds of all segments.
    """
    problems: dict[str, str] = {}
    for segment in segments:
        with failing_alone(problems, segment.name):
            try:
                published = flush(receiver, segment, limit)
            except ServiceUnavailable as error:  # The next segment would fail in the same way.
                _log.warning("%s waits: %s", segment, error)
                return f"{segment.name} waits: {error}"
            limit = None if limit is None else limit - published
    return "; ".join(f"{name} cannot be published, and is kept: {why}" for name, why in problems.items())
