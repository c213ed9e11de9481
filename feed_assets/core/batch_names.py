"""Names of the batches that our own appendable datasets write: the number of an increment, or a range of numbers.

A batch named by a range is a compacted batch. It holds the rows of all increments in the range, and replaces their
batches. Compaction and rebuilds write compacted batches.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from feed_assets.core.feeds import Partition
from feed_assets.core.intervals import Interval
from feed_assets.core.pins import Pin, pins_digest

LEAST = 20
"""Smallest number of consecutive batches for which compaction is worthwhile."""

_NAME = re.compile(r"b([0-9]{8})(?:-([0-9]{8}))?")


class Numbers(NamedTuple):
    """First and last increment that a batch holds. Increments are numbered from 1."""

    first: int
    last: int

    @property
    def is_range(self) -> bool:
        """Return whether the batch holds the rows of several increments."""
        return self.first < self.last

    @property
    def name(self) -> str:
        """Return the name of the batch: `b00000007`, or `b00000001-00000007`."""
        return f"b{self.first:08}-{self.last:08}" if self.is_range else f"b{self.first:08}"


def numbers_in(name: str) -> Numbers | None:
    """Parse a batch name into the increments that it holds. Return None if it is not our format."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    return Numbers(first, last) if 0 < first <= last and (not match[2] or first < last) else None


def following(names: Iterable[str]) -> int:
    """Return the number of the next increment: one more than the greatest number in these batches."""
    return 1 + max((numbers.last for name in names if (numbers := numbers_in(name))), default=0)


def replaced(batches: Iterable[Partition]) -> dict[Partition, Partition]:
    """Return the replaced batches, each with the compacted batch that replaces it.

    All `batches` must be of one partition and have a valid update.
    """
    numbered = {each: numbers for each in batches if (numbers := numbers_in(each.name))}
    range_by_batch: dict[Partition, Partition] = {}
    widest: tuple[int, Partition] | None = None
    for each in sorted(numbered, key=lambda at: (numbered[at].first, -numbered[at].last)):
        if widest and numbered[each].last <= widest[0]:
            range_by_batch[each] = widest[1]
        else:
            widest = numbered[each].last, each
    return range_by_batch


def held_by(batch: Partition, candidates: Iterable[Partition]) -> Partition | None:
    """Return the compacted batch that holds the rows of a batch. Return None if there is none.

    All `candidates` must have a valid update.
    """
    if numbers_in(batch.name) is None:
        return None
    return replaced({each for each in candidates if each.parent == batch.parent} | {batch}).get(batch)


def in_effect(batches: Iterable[Partition], valid: Mapping[Partition, object]) -> tuple[Partition, ...]:
    """Return the batches of one partition that no compacted batch replaces.

    Batches without a valid update are never replaced, and replace none.
    """
    batches = sorted(batches)
    gone = replaced(each for each in batches if each in valid)
    return tuple(each for each in batches if each not in gone)


def version_of(pins: Iterable[Pin]) -> str:
    """Return one version for the rows of several batches: the sum of their versions.

    The version of a compacted batch equals the sum of the versions of the batches that it replaces. So a compaction
    gives readers nothing new to read.
    """
    return f"{sum(int(pin.version or '0', 16) for pin in pins) % 2**128:032x}"


def set_version(pins: Iterable[Pin]) -> str:
    """Return the version of a set of batches.

    It is the sum of their versions (`version_of`) if one of the batches is ours, otherwise a digest of all pins.
    """
    pins = [*pins]
    return version_of(pins) if any(numbers_in(pin.partition.name) for pin in pins) else pins_digest(pins)


def same_rows(pins: Iterable[Pin], other_pins: Iterable[Pin]) -> set[Partition]:
    """Return the partitions whose batches have the same rows in two sets of pins, although the batches differ.

    Compaction has replaced some of these batches. Skip partitions without a compacted batch in either set.
    """
    read, other_read = _by_parent(pins), _by_parent(other_pins)
    ranged = {parent for some in (read, other_read) for parent, mine in some.items() if any(map(_is_range, mine))}
    return {at for at in ranged & read.keys() & other_read.keys() if version_of(read[at]) == version_of(other_read[at])}


def covers(pins: Iterable[Pin], other_pins: Iterable[Pin]) -> bool:
    """Return whether the event-table slices in `pins` cover those in `other_pins`, without a hole.

    A slice is the range of a table's rows, between two markers, that a run read.
    """
    read_intervals = _intervals(pins)
    pairs = ((pin, read_intervals.get(pin.partition, ())) for pin in other_pins if pin.is_slice)
    return all(_reach(mine, pin.start or "") >= pin.update_id for pin, mine in pairs)


def is_whole(pins: Iterable[Pin]) -> bool:
    """Return whether the slices of each event table start at the table's beginning and have no holes."""
    return all(_reach(mine, "") >= mine[-1].end for mine in _intervals(pins).values())


def _intervals(pins: Iterable[Pin]) -> dict[Partition, list[Interval]]:
    """Return the intervals of markers that were read, in order. The keys are event-table partitions."""
    intervals: dict[Partition, list[Interval]] = {}
    for pin in sorted(pins, key=lambda each: (each.start or "", each.update_id)):
        if pin.is_slice:
            intervals.setdefault(pin.partition, []).append(interval_of(pin))
    return intervals


def _reach(read: Iterable[Interval], start: str) -> str:
    """Return the marker up to which the intervals cover everything after `start`, without a hole."""
    for each in read:
        start = max(start, each.end) if (each.start or "") <= start else start
    return start


def told_last(pins: Iterable[Pin]) -> set[Pin]:
    """Leave out pins of older batches of our own appendable datasets.

    Only the last batch of each partition stays: events are about whole partitions, and the last batch has the
    correlation id of the partition's last event.
    """
    last: dict[Partition, Pin] = {}
    newest_pins = set[Pin]()
    for pin in pins:
        parent = pin.partition.parent if numbers_in(pin.partition.name) else None
        if parent is None:
            newest_pins.add(pin)
        elif parent not in last or last[parent].update_id < pin.update_id:
            last[parent] = pin
    return newest_pins | {*last.values()}


def interval_of(pin: Pin) -> Interval:
    """Return the interval of markers of an event table that a pin read."""
    return Interval(pin.start, pin.update_id)


def overlap(pins: Iterable[Pin], other_pins: Iterable[Pin]) -> bool:
    """Return whether a slice (range of rows) in one set of pins overlaps a slice of the same table in the other set."""
    of = {pin.partition: interval_of(pin) for pin in other_pins if pin.is_slice}
    return any(interval_of(pin).shares(of[pin.partition]) for pin in pins if pin.is_slice and pin.partition in of)


def _by_parent(pins: Iterable[Pin]) -> dict[Partition, list[Pin]]:
    pins_by_parent: dict[Partition, list[Pin]] = {}
    for pin in pins:
        if pin.partition.parent and numbers_in(pin.partition.name):
            pins_by_parent.setdefault(pin.partition.parent, []).append(pin)
    return pins_by_parent


def _is_range(pin: Pin) -> bool:
    numbers = numbers_in(pin.partition.name)
    return numbers is not None and numbers.is_range
