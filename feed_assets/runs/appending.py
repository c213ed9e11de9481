"""Choice of the batch that a run of an appendable dataset writes: a new one, one made again, or a range of all."""

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
    """The batch to write, and the slices that it is made of; `slices` is None if everything is loaded."""

    partition: Partition
    slices: Mapping[Partition, Slice] | None


def batch_for(services: Services, output: Partition, slices: Mapping[Partition, Slice], *, reloads: bool) -> BatchPlan:
    """Return the batch that a run with these slices writes.

    Rows that one batch has read already are read again together with all that it has read, and take its place: a late
    row is there once. If several have read them, or one only a part, everything is loaded, and takes the place of all.
    """
    with services.ledger.read() as connection:
        batches = batch_partitions.recorded_batches(connection, [output])[output]
        read = batch_sets.read_by_batch(connection, output)
    number = following([*(each.name for each in batches), *_on_the_blackboard(services, output)])
    touched = {batch: pins for batch, pins in read.items() if overlap(map(_as_pin, slices.values()), pins)}
    is_known = all(read.values())  # A ledger that was lost and rebuilt does not know what was read.
    all_pins = [pin for pins in read.values() for pin in pins] + [_as_pin(each) for each in slices.values()]
    if reloads or not read or not is_known or not is_whole(all_pins):
        return BatchPlan(output.batch(Numbers(1, number).name), None)
    if not touched:
        return BatchPlan(output.batch(Numbers(number, number).name), slices)
    (batch, pins), *others_touched = touched.items()
    beside = [each for at, each in read.items() if at != batch and overlap(each, pins)]
    # A range may have been read over another batch's slice.
    if others_touched or beside or not _holds(pins, slices.values()):
        return BatchPlan(output.batch(Numbers(1, number).name), None)
    return BatchPlan(batch, {pin.partition: _again(pin, slices) for pin in pins if pin.is_slice})


def refuse_other_columns(connection: sa.Connection, output: Output) -> None:
    """Raise InvalidDefinition for a batch whose columns are not those of one beside it: nobody could read both."""
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
            f"{batch}: its columns are not those of {beside[-1].partition.name} ({differences}): expected the same. "
            "Cast them, or have all loaded anew: materialize the partition by hand."
        )


def _on_the_blackboard(services: Services, output: Partition) -> list[str]:
    """Return the names of batches there: a ledger that was lost and rebuilt may lack some."""
    return [*services.board.children(output.path)]


def _as_pin(piece: Slice) -> Pin:
    return Pin(piece.partition, piece.end, piece.version, start=piece.start)


def _holds(pins: Sequence[Pin], slices: Collection[Slice]) -> bool:
    of = {pin.partition: interval_of(pin) for pin in pins if pin.is_slice}
    return all(each.partition in of and each.interval.within(of[each.partition]) for each in slices)


def _again(pin: Pin, slices: Mapping[Partition, Slice]) -> Slice:
    """Return the slice that a batch has read of a table, to be read once more."""
    piece = slices.get(pin.partition)
    again = Slice(pin.partition, pin.start, pin.update_id, frozenset({Operation.OVERWRITE}), 0)
    return replace(piece, start=pin.start, end=pin.update_id) if piece else again
