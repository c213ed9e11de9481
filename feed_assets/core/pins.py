"""Pins: the positions of inputs that runs read, and changes of the newest ones against them."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256

from feed_assets.core.feeds import Feed, Partition


@dataclass(frozen=True, order=True)
class Pin:
    """The exact update of an input's partition (or of one batch of it) that a run reads.

    `version` shows whether the data differ: the row digest of our own feeds, the files' digest of foreign ones.
    """

    partition: Partition
    update_id: str
    version: str
    size: int = 0
    files: int = 0
    start: str | None = None
    """The marker after which an event table is read, up to `update_id`; None is the beginning."""
    modified: datetime | None = field(default=None, compare=False)
    """The time at which the newest of its files was written (UTC), if that is known."""

    @property
    def is_slice(self) -> bool:
        """Return whether it is a slice that was read of an event table, up to a marker."""
        return self.version == f"{self.start or ''}..{self.update_id}"


@dataclass(frozen=True)
class InputSource:
    """The part of an input that grows as one: all with the same keys besides the time. `is_appendable`: of batches."""

    feed: Feed
    keys: str
    is_appendable: bool = False


@dataclass(frozen=True)
class InputChange:
    """An input whose newest data (`new`) are not the consumed ones (`old`); None where there are none.

    `source_sizes` are the bytes of all that is read of its source, consumed and newest; for windows records.
    `is_one_more`: a batch of a partition of which others were consumed.
    """

    partition: Partition
    old: Pin | None
    new: Pin | None
    source: InputSource | None = field(default=None, compare=False)
    source_sizes: tuple[int, int] = field(default=(0, 0), compare=False)
    is_one_more: bool = field(default=False, compare=False)


def changed(
    newest: Iterable[Pin], consumed: Iterable[Pin], source_of: Callable[[Partition], InputSource] | None = None
) -> tuple[InputChange, ...]:
    """Return the inputs whose data differ between two sets of pins, with their sources if `source_of` is given.

    Another update with the same version is no change: a rebuild of the same rows stops here.
    """
    new = {pin.partition: pin for pin in newest}
    old = {pin.partition: pin for pin in consumed}
    changes = tuple(
        InputChange(partition, old.get(partition), new.get(partition))
        for partition in sorted(new.keys() | old.keys())
        if _version(new.get(partition)) != _version(old.get(partition))
    )
    return _measured(changes, old.values(), new.values(), source_of) if changes and source_of else changes


def _measured(
    changes: Iterable[InputChange],
    old: Iterable[Pin],
    new: Iterable[Pin],
    source_of: Callable[[Partition], InputSource],
) -> tuple[InputChange, ...]:
    before, after = _sizes(old, source_of), _sizes(new, source_of)
    held = {pin.partition.parent for pin in old}

    def measured(change: InputChange, source: InputSource) -> InputChange:
        is_one_more = change.old is None and source.is_appendable and change.partition.parent in held
        return replace(change, source=source, source_sizes=(before[source], after[source]), is_one_more=is_one_more)

    return tuple(measured(each, source_of(each.partition)) for each in changes)


def _sizes(pins: Iterable[Pin], source_of: Callable[[Partition], InputSource]) -> Counter[InputSource]:
    sizes: Counter[InputSource] = Counter()
    for pin in pins:
        sizes[source_of(pin.partition)] += pin.size
    return sizes


def _version(pin: Pin | None) -> str | None:
    return pin.version if pin else None


def pins_digest(pins: Iterable[Pin]) -> str:
    """Return one digest of the data that a set of pins reads; the same for another update with the same rows."""
    lines = (f"{pin.partition.path}\t{pin.version}\n" for pin in sorted(pins))
    return sha256("".join(lines).encode()).hexdigest()[:32]
