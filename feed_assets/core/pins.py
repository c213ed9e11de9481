"""Pins, which record the updates that a run reads, and changes of inputs since they were pinned."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256

from feed_assets.core.feeds import Feed, Partition


@dataclass(frozen=True, order=True)
class Pin:
    """The exact update of an input's partition, or of one of its batches, that a run reads.

    `version` identifies the data: a digest of the rows for our own feeds, of the files for foreign feeds.
    """

    partition: Partition
    update_id: str
    version: str
    size: int = 0
    files: int = 0
    start: str | None = None
    """The marker after which a slice of an event table begins; None is the beginning. The slice ends at `update_id`."""
    modified: datetime | None = field(default=None, compare=False)
    """The time (UTC) at which the newest file of the update was written, if known."""

    @property
    def is_slice(self) -> bool:
        """Return whether the pin is a slice of an event table."""
        return self.version == f"{self.start or ''}..{self.update_id}"


@dataclass(frozen=True)
class InputSource:
    """Partitions of an input whose growth is measured together. Their keys differ only in the time."""

    feed: Feed
    keys: str
    is_appendable: bool = False


@dataclass(frozen=True)
class InputChange:
    """A partition of an input whose newest data (`new`) differ from the data that the output was built from (`old`).

    `old` is None for a new input, and `new` is None if there is no valid update, or if it is no longer an input.
    `source_sizes` is the size of its whole source (bytes, or records of windows) when it was consumed, and now.
    `is_one_more` is True for a new batch of a partition from which other batches were consumed.
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
    """Return the inputs whose data differ between two sets of pins, with their sources' sizes if `source_of` is given.

    A newer update with the same version is not a change. So a rebuild with the same rows causes no further runs.
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
    """Return one digest of the data of several pins. Other updates with the same rows give the same digest."""
    lines = (f"{pin.partition.path}\t{pin.version}\n" for pin in sorted(pins))
    return sha256("".join(lines).encode()).hexdigest()[:32]
