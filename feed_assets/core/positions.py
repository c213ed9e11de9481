"""Which position of an input a run read, and whether the newest one is another."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from feed_assets.core.feeds import Partition


@dataclass(frozen=True, order=True)
class Pin:
    """The exact update of an input's partition that a run reads.

    `version` tells whether the data differ: the row digest of our own feeds, the files' digest of foreign ones.
    """

    partition: Partition
    update_id: str
    version: str
    size: int = 0
    files: int = 0


@dataclass(frozen=True)
class Change:
    """An input whose newest data (`new`) are not the consumed ones (`old`); None where there are none."""

    partition: Partition
    old: Pin | None
    new: Pin | None


def changed(newest: Iterable[Pin], consumed: Iterable[Pin]) -> tuple[Change, ...]:
    """The inputs whose data differ between two sets of pins.

    Another update with the same version is no change: a rebuild of the same rows stops here.
    """
    new = {pin.partition: pin for pin in newest}
    old = {pin.partition: pin for pin in consumed}
    return tuple(
        Change(partition, old.get(partition), new.get(partition))
        for partition in sorted(new.keys() | old.keys())
        if _version(new.get(partition)) != _version(old.get(partition))
    )


def _version(pin: Pin | None) -> str | None:
    return pin.version if pin else None


def pins_digest(pins: Iterable[Pin]) -> str:
    """One digest of the data that a set of pins reads; the same for another update with the same rows."""
    lines = (f"{pin.partition.path}\t{pin.version}\n" for pin in sorted(pins))
    return sha256("".join(lines).encode()).hexdigest()[:32]
