"""Which position of an input a run read, and whether the newest one is another."""

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256

from feed_assets.core.feeds import Feed, Partition


@dataclass(frozen=True, order=True)
class Pin:
    """The exact update of an input's partition (or of one batch of it) that a run reads.

    `version` tells whether the data differ: the row digest of our own feeds, the files' digest of foreign ones.
    """

    partition: Partition
    update_id: str
    version: str
    size: int = 0
    files: int = 0
    start: str | None = None
    """The marker after which an event table is read, up to `update_id`; None is the beginning."""
    modified: datetime | None = field(default=None, compare=False)
    """When the newest of its files was written (UTC), where that is known."""


@dataclass(frozen=True)
class InputChange:
    """An input whose newest data (`new`) are not the consumed ones (`old`); None where there are none.

    `whole` are, of a batch, the bytes of all batches of its partition, consumed and newest.
    """

    partition: Partition
    old: Pin | None
    new: Pin | None
    parent_bytes: tuple[int, int] | None = None


def changed(
    newest: Iterable[Pin], consumed: Iterable[Pin], appendable: Set[Feed] = frozenset()
) -> tuple[InputChange, ...]:
    """The inputs whose data differ between two sets of pins; those of `appendable` feeds are batches.

    Another update with the same version is no change: a rebuild of the same rows stops here.
    """
    new = {pin.partition: pin for pin in newest}
    old = {pin.partition: pin for pin in consumed}
    parent_bytes = _parent_bytes(old.values(), new.values(), appendable)
    return tuple(
        InputChange(partition, old.get(partition), new.get(partition), parent_bytes.get(partition.parent))
        for partition in sorted(new.keys() | old.keys())
        if _version(new.get(partition)) != _version(old.get(partition))
    )


def _parent_bytes(
    old: Iterable[Pin], new: Iterable[Pin], appendable: Set[Feed]
) -> dict[Partition | None, tuple[int, int]]:
    """The bytes of each partition that holds batches, consumed and newest."""
    before, now = _sizes(old, appendable), _sizes(new, appendable)
    return {parent: (before[parent], now[parent]) for parent in before.keys() | now.keys()}


def _sizes(pins: Iterable[Pin], appendable: Set[Feed]) -> Counter[Partition | None]:
    sizes: Counter[Partition | None] = Counter()
    for pin in pins:
        if pin.partition.feed in appendable:
            sizes[pin.partition.parent] += pin.size
    return sizes


def _version(pin: Pin | None) -> str | None:
    return pin.version if pin else None


def pins_digest(pins: Iterable[Pin]) -> str:
    """One digest of the data that a set of pins reads; the same for another update with the same rows."""
    lines = (f"{pin.partition.path}\t{pin.version}\n" for pin in sorted(pins))
    return sha256("".join(lines).encode()).hexdigest()[:32]
