"""Source counts of a topic: the number of messages in each window, as reports to the ledger.

| tier | who counts |
|---|---|
| `broker` | the broker's offsets, if the broker stamps messages and nobody writes in transactions |
| `reader` | our own reading of each message, for any other topic |

Source: "Data Dependency Driven Orchestration", where a topic's counts come from an audit at its source.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from feed_assets.core.errors import SourceUnavailable
from feed_assets.kafka import message_counts
from feed_assets.kafka.clients import SECONDS, Clients
from feed_assets.kafka.message_counts import EPOCH, CountedRange
from feed_assets.kafka.topic_identity import one_topic
from feed_assets.sources.contract import EventBatch, Positions
from feed_assets.sources.topic_events import translated

Tier = Literal["broker", "reader"]

MESSAGES = 50_000
"""Messages that are read at a time."""

WINDOWS = 288
"""The most windows that one read counts by the broker's offsets: enough for a day of 5-minute windows."""

_ADVICE = "Declare it with another dataset for its counts."


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class SourceCounts:
    """The message counts of one topic by windows of length `step`, reported as source counts of a dataset.

    Clocks differ, so the broker's count of a window is reported only one `step` after the window's end. Repeated
    reports are harmless: a later report of the same window, or of the same block of offsets, has the same or newer
    counts.
    """

    clients: Clients = field(repr=False)
    topic: str
    dataset: str
    tier: Tier
    step: timedelta
    now: Callable[[], datetime] = field(default=_now, compare=False)

    def read(self, after: str | None, _limit: int = MESSAGES, seconds: float = SECONDS, /) -> EventBatch:
        """Return reports that count the topic's messages after a position.

        Raise SourceUnavailable if the broker cannot count.
        """
        place = self._positions.load(after)
        with translated():
            known_id = (place or {}).get("topic_id")
            with one_topic(self.clients, self.topic, known_id, advice=_ADVICE) as topic_id:
                return self._counted(place, after, topic_id, seconds)

    def _counted(self, place: Mapping[str, Any] | None, after: str | None, topic_id: str, seconds: float) -> EventBatch:
        if self.tier == "reader":
            return self._by_reading(place, after, topic_id, seconds)
        # This is checked each time, because a topic's settings may change.
        if why := message_counts.refusal(self.clients, self.topic):
            raise SourceUnavailable(f"the broker cannot count: {why}. Declare the tier 'reader'.")
        return self._by_broker(place, after, topic_id)

    def _by_reading(
        self, place: Mapping[str, Any] | None, after: str | None, topic_id: str, seconds: float
    ) -> EventBatch:
        cell_by_partition = {cell.partition: cell for cell in map(_loaded, (place or {}).get("cells", ()))}
        changed, last, is_complete = message_counts.by_reading(
            self.clients, self.topic, cell_by_partition, limit=MESSAGES, seconds=seconds, start_of=self._start_of
        )
        cells = [_dumped(last[each]) for each in sorted(last)]
        position = self._positions.dump({"topic_id": topic_id, "cells": cells}) if changed else after
        return EventBatch((), (), position, is_complete, reports=tuple(map(self._of_cell, changed)))

    def _of_cell(self, cell: CountedRange) -> Mapping[str, Any]:
        return {
            **self._report(cell.windows, {start: {cell.partition: each} for start, each in cell.ranges.items()}),
            "part": f"{self.topic}/{cell.partition}/{cell.start}",
            "version": cell.next_offset,
        }

    def _by_broker(self, place: Mapping[str, Any] | None, after: str | None, topic_id: str) -> EventBatch:
        first = datetime.fromisoformat(place["until"]) if place else self._first()
        last = self._start_of(self.now() - self.step)
        bounds = [*_moments(first, last, self.step)][: WINDOWS + 1] if first else []
        if len(bounds) < 2:
            return EventBatch((), (), after, is_complete=True)
        offsets = {int(partition): offset for partition, offset in place["offsets"].items()} if place else {}
        counts = message_counts.by_offsets(self.clients, self.topic, offsets, bounds)
        position = self._positions.dump(
            {"topic_id": topic_id, "until": bounds[-1].isoformat(), "offsets": counts.after}
        )
        return EventBatch((), (), position, bounds[-1] == last, reports=(self._report(counts.windows, counts.ranges),))

    def _first(self) -> datetime | None:
        """Return the start of the first window of which the broker has all messages; None for an empty topic."""
        oldest = message_counts.oldest(self.clients, self.topic)
        starts = [self._start_of(each.moment) + (self.step if each.is_cut else timedelta()) for each in oldest]
        cut = [start for start, each in zip(starts, oldest, strict=True) if each.is_cut]
        return max(cut) if cut else min(starts, default=None)

    def _report(
        self, windows: Mapping[datetime, int], ranges: Mapping[datetime, Mapping[int, tuple[int, int]]]
    ) -> dict[str, Any]:
        """Return a report with the count and offsets of each window.

        The ledger compares these offsets with those of the parts.
        """
        window_counts: list[dict[str, Any]] = []
        for start, count in sorted(windows.items()):
            offsets = {str(partition): [*each] for partition, each in sorted(ranges.get(start, {}).items())}
            window_counts.append({"start": start, "records": count, **({"offsets": offsets} if offsets else {})})
        return {"kind": "source", "dataset": self.dataset, "tier": self.tier, "windows": window_counts}

    def _start_of(self, moment: datetime) -> datetime:
        return moment - (moment - EPOCH) % self.step

    @property
    def _positions(self) -> Positions:
        return Positions(self.topic, self.dataset, self.tier, self.step)


def _moments(first: datetime, last: datetime, step: timedelta) -> Iterator[datetime]:
    while first <= last:
        yield first
        first += step


def _dumped(cell: CountedRange) -> Sequence[Any]:
    windows = {start.isoformat(): [count, *cell.ranges.get(start, ())] for start, count in cell.windows.items()}
    return cell.partition, cell.start, cell.next_offset, windows


def _loaded(fields: Sequence[Any]) -> CountedRange:
    partition, start, next_offset, windows = fields
    counts = {datetime.fromisoformat(each): count for each, (count, *_) in windows.items()}
    ranges = {datetime.fromisoformat(each): (held[0], held[1]) for each, (_, *held) in windows.items() if held}
    return CountedRange(partition, start, next_offset, counts, ranges)
