"""The signals of a topic as write events, one for each chunk."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

from feed_assets.core.errors import InvalidEvent, InvalidName, NoTopic, SourceUnavailable
from feed_assets.core.events import NO_NEW_DATA, Operation, Rejected, WriteEvent, check_event
from feed_assets.core.limits import REJECT_BYTES, excerpt
from feed_assets.core.topics import signals_of
from feed_assets.kafka import signal_message, topic_reader
from feed_assets.kafka.clients import SECONDS
from feed_assets.kafka.lag import ends
from feed_assets.kafka.message_counts import EPOCH, moment_of
from feed_assets.kafka.messages import LATEST
from feed_assets.kafka.signal_message import Signal
from feed_assets.kafka.topic_reader import Placed
from feed_assets.sources.contract import EventBatch, Positions
from feed_assets.sources.topic_events import Messages, clients_for, translated

_NAMED = ("topic", "partition", "minutes", "snapshot_begins", "snapshot_ends")
"""Fields of a signal that are not copied to the event's context: the event's fields or the count reports have them."""


@dataclass(frozen=True)
class TopicSignals(Messages):
    """The signals of an upstream topic as write events. A signal announces a chunk: a file with a range of messages.

    Reading a signal again gives the same event.

    The event's marker is the offset after the signal's chunk. So the event covers the offsets from the marker of the
    previous event up to its own marker.
    """

    upstream: str
    reported: tuple[str, timedelta] | None = None
    """The dataset for which the counts of each chunk are reported, and the length of the dataset's windows."""

    def read(self, after: str | None, limit: int, seconds: float = SECONDS, /) -> EventBatch:
        """Return up to `limit` signals after a position; None is the beginning. Raise SourceUnavailable on failure."""
        try:
            batch = super().read(after, limit, seconds)
        except SourceUnavailable as error:
            if after is None and isinstance(error.__cause__, NoTopic):
                return EventBatch((), (), None, is_complete=True)
            raise
        return replace(batch, events=self._with_lag(batch.events)) if batch.events else batch

    def _with_lag(self, events: Sequence[WriteEvent]) -> tuple[WriteEvent, ...]:
        """Return the events with `lag` and `partitions` in their contexts.

        `lag` is the number of offsets in the event's partition that now follow its chunk. `partitions` is the number of
        the topic's partitions. Without it, a page that shows only the last event would hide that other partitions
        exist.
        """
        with translated():
            end_by_partition = ends(self.clients, self.upstream)
        lags = [max(0, end_by_partition.get(int(each.partition_key), 0) - cast(int, each.marker)) for each in events]
        return tuple(
            replace(each, context={**each.context, "lag": lag, "partitions": len(end_by_partition)})
            for each, lag in zip(events, lags, strict=True)
        )

    def _row(self, placed: Placed) -> WriteEvent | Rejected:
        partition, message = placed
        try:
            return self._event(partition, Signal.of(message.value or b""), moment_of(message))
        except (InvalidEvent, InvalidName) as error:
            raw = excerpt(repr(message.value), REJECT_BYTES)
            return Rejected(raw, f"{self.topic}/{partition} offset {message.offset}: {error}")

    def _reports(self, messages: Sequence[Placed], /) -> Iterator[Mapping[str, Any]]:
        """Yield the record counts of each chunk by window. A chunk never changes, so repetition is harmless."""
        if self.reported is None:
            return
        for partition, message in messages:
            with suppress(InvalidEvent, InvalidName):  # `_row` rejects such a signal.
                signal = Signal.of(message.value or b"")
                self._event(partition, signal, moment_of(message))
                if signal.minutes:
                    yield _report(signal, *self.reported)

    def _event(self, partition: int, signal: Signal, moment: datetime) -> WriteEvent:
        signal_message.check_place(signal, self.upstream, partition)
        context = {name: value for name, value in asdict(signal).items() if name not in _NAMED and value is not None}
        # Events of all sources use the name `bytes`, because rules for runs read it.
        context["bytes"] = context.pop("size")
        event = WriteEvent(
            table_name=signal.topic,
            marker=signal.next_offset,
            event_marker=moment,
            correlation_id=f"{signal.topic}/{partition}/{signal.first_offset}@{signal.topic_id}",
            write_operation=Operation.INSERT,
            partition_key=str(partition),
            context=context if signal.records else {**context, NO_NEW_DATA: True},
        )
        check_event(event)
        return event

    @property
    def _positions(self) -> Positions:
        return Positions(self.topic, self.reported)


def _report(signal: Signal, dataset: str, step: timedelta) -> Mapping[str, Any]:
    counts = Counter[datetime]()
    for minute, count in signal.minutes.items():
        moment = min(datetime.fromisoformat(minute), LATEST)  # Signals of earlier versions may have later minutes.
        counts[moment - (moment - EPOCH) % step] += count
    return {
        "kind": "part",
        "dataset": dataset,
        "part": f"{signal.topic}/{signal.partition}/{signal.first_offset}@{signal.topic_id}",
        "windows": [{"start": start, "records": count} for start, count in sorted(counts.items())],
        "offsets": {str(signal.partition): [signal.first_offset, signal.last_offset]},
        "records": signal.records,
    }


def partitions_of(topic: str, seconds: float) -> list[str]:
    """Return the partition keys of a topic's events. Raise SourceUnavailable or InvalidSetting on failure."""
    with translated():
        return [str(each) for each in sorted(topic_reader.partitions(clients_for(topic).admin(), topic, seconds))]


def topic_signals(topic: str, reported: tuple[str, timedelta] | None) -> TopicSignals:
    """Return the signals of a topic at the settings' broker. Raise InvalidSetting if no broker is set."""
    return TopicSignals(clients_for(topic), signals_of(topic), topic, reported)
