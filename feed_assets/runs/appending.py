"""Choice of the batch that a run of an appendable dataset writes: a new one, an existing one, or one with all rows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import sqlalchemy as sa

from feed_assets.core.batch_names import Numbers, following, interval_of, is_whole, numbers_in, overlap
from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.events import Operation
from feed_assets.core.feeds import Partition
from feed_assets.core.pins import Pin
from feed_assets.core.slices import Slice
from feed_assets.ledger import batch_partitions, batch_sets, updates
from feed_assets.runs.maker import Output
from feed_assets.runs.services import Services


class BatchPlan(NamedTuple):
    """The batch that a run writes, and the slices (ranges of a table's rows) that it reads for this batch.

    `slices` is None if the run must load all rows.
    """

    partition: Partition
    slices: Mapping[Partition, Slice] | None


def batch_for(services: Services, output: Partition, slices: Mapping[Partition, Slice], *, reloads: bool) -> BatchPlan:
    """Return the batch that a run with these slices writes.

    Usually no batch has read rows of the slices before, and the run writes a new batch. If exactly one batch has read
    all of these rows, the run writes this batch again, from all slices of the batch. So no row exists twice. If several
    batches have read the rows, or a batch has read only a part of them, the run loads all rows. They become one batch,
    which replaces all others.
    """
    with services.ledger.read() as connection:
        batches = batch_partitions.recorded_batches(connection, [output])[output]
        read = batch_sets.read_by_batch(connection, output)
    number = following([*(each.name for each in batches), *_on_the_blackboard(services, output)])
    touched = {batch: pins for batch, pins in read.items() if overlap(map(_as_pin, slices.values()), pins)}
    is_known = all(read.values())  # False for a rebuilt ledger, which does not know what batches have read.
    all_pins = [pin for pins in read.values() for pin in pins] + [_as_pin(each) for each in slices.values()]
    if reloads or not read or not is_known or not is_whole(all_pins):
        return BatchPlan(output.batch(Numbers(1, number).name), None)
    if not touched:
        return BatchPlan(output.batch(Numbers(number, number).name), slices)
    (batch, pins), *others_touched = touched.items()
    beside = [each for at, each in read.items() if at != batch and overlap(each, pins)]
    # If this batch has read all rows before, its slices may overlap those of other batches.
    if others_touched or beside or not _holds(pins, slices.values()):
        return BatchPlan(output.batch(Numbers(1, number).name), None)
    return BatchPlan(batch, {pin.partition: _again(pin, slices) for pin in pins if pin.is_slice})


def refuse_other_columns(connection: sa.Connection, output: Output) -> None:
    """Raise InvalidDefinition if a batch's columns differ from those of other batches.

    Readers could not combine such batches.
    """
    batch = output.partition
    numbers, parent = numbers_in(batch.name), batch.parent
    if parent is None or numbers is None or numbers.is_range:
        return
    beside = [pin for pin in batch_sets.pins_of(connection, [parent])[parent] if pin.partition != batch]
    expected = updates.columns_of(connection, beside[-1]) if beside else ()
    columns = output.written.columns
    if expected and columns and sorted(expected) != sorted(columns):
        differences = "; ".join(f"{' '.join(each)}" for each in sorted({*expected} ^ {*columns}))
        raise InvalidDefinition(
            f"{batch}: its columns are not those of {beside[-1].partition.name} ({differences}): expected the same "
            "columns. Cast them, or materialize the partition by hand, which loads everything again."
        )


def _on_the_blackboard(services: Services, output: Partition) -> list[str]:
    """Return the names of all batches on the blackboard. A rebuilt ledger may lack some of them."""
    return [*services.board_of(output.feed).children(output.path)]


def _as_pin(piece: Slice) -> Pin:
    return Pin(piece.partition, piece.end, piece.version, start=piece.start)


def _holds(pins: Sequence[Pin], slices: Collection[Slice]) -> bool:
    of = {pin.partition: interval_of(pin) for pin in pins if pin.is_slice}
    return all(each.partition in of and each.interval.within(of[each.partition]) for each in slices)


def _again(pin: Pin, slices: Mapping[Partition, Slice]) -> Slice:
    """Return the slice of a table that a batch has read before, so that the run can read it again."""
    piece = slices.get(pin.partition)
    again = Slice(pin.partition, pin.start, pin.update_id, frozenset({Operation.OVERWRITE}), 0)
    return replace(piece, start=pin.start, end=pin.update_id) if piece else again
