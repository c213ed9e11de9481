"""Reading of partitions of appendable feeds: the newest valid update of every batch, as one set.

A batch is a partition whose key has one segment more than its parent's key. So it is written, named, invalidated and
downloaded like any other partition. The set has the newest valid update of each batch. A batch without a valid update
is left out, and listed with the reasons.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from feed_assets.core import batch_names
from feed_assets.core.batch_names import numbers_in, replaced
from feed_assets.core.errors import InvalidName, NoValidUpdate, UpdatePruned
from feed_assets.core.feeds import Partition, Skipped, Update, is_update_id
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard

_REASONS_SHOWN = 5


@dataclass(frozen=True)
class SetReading:
    """Result of reading a partition: a reading of each batch in order, and the names that are not batches."""

    partition: Partition
    batches: tuple[read.Reading, ...]
    strange: tuple[Skipped, ...]

    @property
    def updates(self) -> tuple[Update, ...]:
        """Return one valid update of each batch, in order. Skip batches that have none or were replaced."""
        return tuple(batch.update for batch in self.batches if batch.update and batch.partition not in self.replaced)

    @cached_property
    def replaced(self) -> dict[Partition, Partition]:
        """Return the replaced batches, each with the range (one batch made of several) that now holds its rows."""
        return replaced(batch.partition for batch in self.batches if batch.update)

    @property
    def left_out(self) -> tuple[Skipped, ...]:
        """Return the names that are not batches, and the batches without a valid update, each with the reason."""
        without = (Skipped(batch.partition.name, _why(batch)) for batch in self.batches if not batch.update)
        return (*self.strange, *without)


def latest(board: Blackboard, partition: Partition, as_of: datetime | None = None) -> SetReading:
    """Return the newest valid update of every batch. With `as_of` (timezone-aware) only ids up to this time count.

    A call costs one listing of prefixes, and one reading for each batch, eight batches at a time.
    """
    batches, strange = _sorted_out(partition, board.children(partition.path))
    with ThreadPoolExecutor(8) as pool:
        looks = {batch: pool.submit(read.latest, board, batch, as_of) for batch in batches}
    readings = {batch: look.result() for batch, look in looks.items() if not _is_pruned(look)}
    valid = {batch for batch, reading in readings.items() if reading.update}
    for batch in looks.keys() - readings.keys():
        if not batch_names.held_by(batch, valid):  # If another valid batch holds its rows, nothing is missing.
            looks[batch].result()  # This raises UpdatePruned.
    return SetReading(partition, tuple(readings.values()), tuple(strange))


def _is_pruned(look: "Future[read.Reading]") -> bool:
    return isinstance(look.exception(), UpdatePruned)


def held_by(board: Blackboard, batch: Partition) -> Partition | None:
    """Return the valid range (one batch made of several) that holds the rows of one of our batches.

    The batch itself may be invalid. Return None if no range holds its rows.
    """
    if batch.parent is None or numbers_in(batch.name) is None:
        return None  # This saves the listing of the partition.
    return batch_names.held_by(batch, (update.partition for update in latest(board, batch.parent).updates))


def download(board: Blackboard, reading: SetReading, folder: Path) -> None:
    """Copy exactly the validated files of each batch into a folder with its name. All folders appear at once."""
    read.check_target(folder)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as unfinished:
        for update in require(reading):
            read.download(board, update, Path(unfinished, "complete", update.partition.name))
        Path(unfinished, "complete").rename(folder)


def require(reading: SetReading, as_of: datetime | None = None) -> tuple[Update, ...]:
    """Return the set of valid updates. If it is empty, raise NoValidUpdate with the reason for each batch."""
    if reading.updates:
        return reading.updates
    if not reading.left_out:
        raise NoValidUpdate(read.nothing(reading.partition, "batch", as_of))
    reasons = read.in_words(reading.left_out)
    raise NoValidUpdate(f"{reading.partition} has no batch with a valid update. {reasons}. Publish one again.")


def _sorted_out(partition: Partition, names: Iterable[str]) -> tuple[list[Partition], list[Skipped]]:
    batches: list[Partition] = []
    strange: list[Skipped] = []
    for name in names:
        if is_update_id(name):
            strange.append(Skipped(name, "an update id: expected the name of a batch, because the feed is appendable"))
            continue
        try:
            batches.append(partition.batch(name))
        except InvalidName as error:
            strange.append(Skipped(name, str(error)))
    return batches, strange


def _why(batch: read.Reading) -> str:
    return "; ".join(f"{each.id}: {each.reason}" for each in batch.skipped[:_REASONS_SHOWN]) or "it has no update"
