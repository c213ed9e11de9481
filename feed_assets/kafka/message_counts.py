"""Counts of a topic's messages in each window of time: by the broker's offsets, or by reading all messages.

Offsets give counts only if the broker stamps messages on arrival (`LogAppendTime`) and removes only the oldest
messages. Also, no producer may use transactions, because the end of a transaction takes an offset, too.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from confluent_kafka import Consumer, TopicPartition

from feed_assets.core.chunks import line_before
from feed_assets.core.errors import LogTrimmed
from feed_assets.kafka import peeks, topic_reader
from feed_assets.kafka.clients import SECONDS, Clients, translated
from feed_assets.kafka.companion_topics import config_of
from feed_assets.kafka.messages import Message

CELL = 10_000
"""The number of offsets in a cell. A cell is a block of a partition's offsets that is counted and reported as one part.

After a kill, at most one cell per partition is counted again.
"""

_BYTES = 64 << 20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Origin of all windows of minutes and hours."""
_MILLISECOND = timedelta(milliseconds=1)

Offsets = Mapping[int, int]
"""Offsets by partition."""


def refusal(clients: Clients, topic: str) -> str | None:
    """Return why a topic's configuration does not allow counts by offsets; None if it does."""
    with translated(f"describe {topic}"):
        config = config_of(clients.admin(), topic)
    stamped, removed = config["message.timestamp.type"].value, config["cleanup.policy"].value
    if stamped != "LogAppendTime":
        return f"message.timestamp.type of {topic} is {stamped}: a message may arrive in any window at any time"
    return (
        None if removed == "delete" else f"cleanup.policy of {topic} is {removed}: messages in the middle are removed"
    )


@dataclass(frozen=True)
class Oldest:
    """The time (UTC) of a partition's first remaining message, and whether earlier messages were removed."""

    moment: datetime
    is_cut: bool


def oldest(clients: Clients, topic: str) -> list[Oldest]:
    """Return the oldest message of each partition that has messages.

    Raise KafkaUnavailable, also if the oldest messages of a partition crash their reader.
    """
    with closing(clients.peeker()) as reader, translated(f"count {topic}"):
        ends = topic_reader.bounds(reader, topic)
        begins = {each: low for each, (low, high) in ends.items() if low < high}
        messages = peeks.first(clients, reader, topic, begins)
    return [Oldest(moment_of(message), begins[each] > 0) for each, message in messages.items()]


def moment_of(message: Message) -> datetime:
    """Return a message's timestamp (UTC). It is the time of creation or of arrival, as the topic is configured."""
    return EPOCH + message.moment * _MILLISECOND


@dataclass(frozen=True)
class ByOffsets:
    """Numbers of messages in each window between two times, and the offsets at the last time.

    `ranges` has the first and last offset of each window, for each partition with messages in that window.
    """

    windows: Mapping[datetime, int]
    after: Offsets
    ranges: Mapping[datetime, Mapping[int, tuple[int, int]]]


def by_offsets(clients: Clients, topic: str, after: Offsets, bounds: Sequence[datetime]) -> ByOffsets:
    """Count the messages from each time to the next, by the broker's timestamps.

    Args:
        clients: Clients of the topic's broker.
        topic: The topic.
        after: The offsets at the first time, by partition. The broker is queried for partitions that `after` lacks.
        bounds: The times (UTC), all in the past.

    Raises:
        LogTrimmed: The broker has removed messages of the counted time, or the topic was recreated.
        KafkaUnavailable: The broker does not answer.
    """
    reader = clients.reader()
    try:
        with translated(f"count {topic}"):
            ends = topic_reader.bounds(reader, topic)
            first = {**_offsets(reader, topic, ends, bounds[0]), **after}
            _check(topic, after, first, ends, bounds[0])
            offsets = [first, *(_offsets(reader, topic, ends, moment) for moment in bounds[1:])]
    finally:
        reader.close()
    counts = [sum(these.values()) - sum(those.values()) for those, these in pairwise(offsets)]
    ranges = [
        {each: (those.get(each, 0), end - 1) for each, end in these.items() if those.get(each, 0) < end}
        for those, these in pairwise(offsets)
    ]
    return ByOffsets(dict(zip(bounds, counts, strict=False)), offsets[-1], dict(zip(bounds, ranges, strict=False)))


_Ends = Mapping[int, tuple[int, int]]


def _offsets(reader: Consumer, topic: str, ends: _Ends, moment: datetime) -> dict[int, int]:
    """Return each partition's first offset at or after a time. If there is none, return the partition's end."""
    stamp = (moment - EPOCH) // _MILLISECOND
    queries = [TopicPartition(topic, partition, stamp) for partition in ends]
    offsets = reader.offsets_for_times(queries, timeout=SECONDS)
    return {each.partition: each.offset if each.offset >= 0 else ends[each.partition][1] for each in offsets}


def _check(topic: str, after: Offsets, first: Offsets, ends: _Ends, moment: datetime) -> None:
    """Raise LogTrimmed if messages from the start time on may be missing, or if the topic was recreated."""
    for partition, (low, high) in ends.items():
        if after.get(partition, 0) > high:
            raise LogTrimmed(
                f"{topic}/{partition} was counted up to offset {after[partition]}, but ends at {high}: it was deleted "
                "and recreated. Declare it with another dataset for its counts."
            )
        is_lost = after[partition] < low if partition in after else first[partition] == low and 0 < low < high
        if is_lost:
            raise LogTrimmed(
                f"{topic}/{partition} is to be counted from {moment:%Y-%m-%d %H:%M} UTC on, but begins with offset "
                f"{low}: the broker has removed earlier messages, so their number is unknown. "
                "`feed-assets reconcile` counts the remaining ones from the beginning, and continues from there."
            )


@dataclass(frozen=True)
class CountedRange:
    """The numbers of messages by window in a cell, as far as the cell was read.

    A cell is a block of one partition's offsets.
    """

    partition: int
    start: int
    next_offset: int
    windows: Mapping[datetime, int]
    ranges: Mapping[datetime, tuple[int, int]] = field(default_factory=dict[datetime, tuple[int, int]])
    """The first and last offset of each window."""


Cells = Mapping[int, CountedRange]


def by_reading(
    clients: Clients, topic: str, after: Cells, limit: int, seconds: float, start_of: Callable[[datetime], datetime]
) -> tuple[list[CountedRange], Cells, bool]:
    """Read the messages that were not counted yet, and count them by the window of their timestamp.

    Args:
        clients: Clients of the topic's broker.
        topic: The topic.
        after: The last counted cell of each partition. A cell is a block of `CELL` offsets that is counted as one part.
        limit: The most messages to read.
        seconds: Seconds to wait for the broker.
        start_of: A function that returns the start of a time's window (UTC).

    Returns:
        The changed cells, each partition's last cell, and whether there were no more messages. A cell has the same
        offsets, whichever process counts it. A report of a cell with a greater next offset replaces earlier reports.

    Raises:
        LogTrimmed: The broker has removed messages that were not counted yet.
        KafkaUnavailable: The broker does not answer.
    """
    begins = {partition: cell.next_offset for partition, cell in after.items()}
    read_messages = topic_reader.read(
        clients, topic, begins, limit=limit, size=_BYTES, seconds=seconds, kept=topic_reader.without_content
    )
    counts, ends = defaultdict[tuple[int, int], Counter[datetime]](Counter), dict[tuple[int, int], int]()
    ranges = defaultdict[tuple[int, int], dict[datetime, tuple[int, int]]](dict)
    for partition, message in read_messages.messages:
        cell = partition, line_before(message.offset, CELL)
        start = start_of(moment_of(message))
        if cell not in ranges:
            ranges[cell] = {**_last_of(after, *cell).ranges}
        counts[cell][start] += 1
        ranges[cell][start] = ranges[cell].get(start, (message.offset, 0))[0], message.offset
        ends[cell] = message.offset + 1
    changed = [
        CountedRange(*cell, ends[cell], Counter(_last_of(after, *cell).windows) + count, ranges[cell])
        for cell, count in sorted(counts.items())
    ]
    return changed, {**after, **{cell.partition: cell for cell in changed}}, read_messages.is_complete


def _last_of(after: Cells, partition: int, start: int) -> CountedRange:
    """Return the count of a cell (a block of offsets) so far, if it is its partition's last cell.

    Otherwise return the cell without counts.
    """
    last = after.get(partition)
    return last if last and last.start == start else CountedRange(partition, start, start, {})
