"""Slices of event tables that a run reads, and their pins in the lineage."""

from collections.abc import Mapping, Sequence

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.events import Operation, in_words
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import shortened
from feed_assets.core.pins import Pin
from feed_assets.core.plans import RunSpec
from feed_assets.core.readiness import NAMED
from feed_assets.core.slices import Slice
from feed_assets.ledger import batch_sets, event_store, inbox, updates
from feed_assets.ledger.database import Ledger
from feed_assets.runs.recipe import Recipe

Cut = Mapping[str, Sequence[Slice]]
"""The slices of each input, by its name."""


def cut(ledger: Ledger, run_spec: RunSpec, output: Partition, partitions: Sequence[Partition]) -> list[Slice]:
    """Return the slices to read of an event table: those of the run spec, or everything up to the last marker.

    If the plan is `reload`, each table is read from the beginning. A table without new data is then read only up to its
    last read position.
    """
    new = [run_spec.slices[partition] for partition in partitions if partition in run_spec.slices]
    is_told = bool(run_spec.slices) or run_spec.consumes
    if is_told and run_spec.plan.kind == "incremental":
        return new
    upto = _read_upto(ledger, output)
    if not is_told:  # A run by hand without slices reads up to the last event.
        upto |= _upto_the_last(ledger, partitions)
    for each in new:  # A slice of late data may end earlier than the last read position.
        upto[each.partition] = max(each.end, upto.get(each.partition, ""))
    return [Slice(each, None, upto[each], _ALL) for each in partitions if each in upto]


def refuse_strange(ledger: Ledger, run_spec: RunSpec, tables: Mapping[str, Sequence[Partition]]) -> None:
    """Raise InvalidDefinition if a slice given by hand belongs to no input table, or ends after its table's last event.

    Rows after the last event may not all have arrived, and the missing ones would count as late data.
    """
    if run_spec.consumes or not run_spec.slices:
        return
    partitions = {partition for each in tables.values() for partition in each}
    last = _upto_the_last(ledger, [*partitions])
    for partition, piece in run_spec.slices.items():
        if partition not in partitions:
            expected = shortened([str(each) for each in sorted(partitions)], NAMED) or "no event table"
            raise InvalidDefinition(
                f"{partition} is to be read: expected a slice of {expected}. Correct `table` and `partition`."
            )
        upto = last.get(partition)
        if upto is None or upto.isdigit() != piece.end.isdigit() or piece.end > upto:
            most = f"at most {in_words(upto)}, its last marker" if upto else "an event of it, and there is none"
            raise InvalidDefinition(
                f"{partition} is to be read up to {in_words(piece.end)}: expected {most}. Correct `upto`, or wait for "
                "that event."
            )


_ALL = frozenset({Operation.OVERWRITE})


def _upto_the_last(ledger: Ledger, partitions: Sequence[Partition]) -> dict[Partition, str]:
    with ledger.read() as connection:
        last = {partition: event_store.last_marker(connection, partition) for partition in partitions}
    return {partition: marker for partition, marker in last.items() if marker}


def _read_upto(ledger: Ledger, output: Partition) -> dict[Partition, str]:
    """Return the marker up to which an output has read each partition of its tables.

    The marker is in the ledger's list of read markers, or in the pins of the output's newest update.
    """
    with ledger.read() as connection:
        rows = inbox.markers(connection, output.feed, output.key)
        pins = batch_sets.consumed(connection, batch_sets.newest(connection, [output])).get(output, ())
    upto = {Partition(Feed.parse(row["input_feed"]), row["input_partition"]): row["marker"] for row in rows}
    for pin in pins:
        upto[pin.partition] = max(pin.update_id, upto.get(pin.partition, ""))
    return upto


def pins_of(slices_by_table: Cut) -> set[Pin]:
    """Return for each slice the pin that records in the lineage which rows of a table were read."""
    return {
        Pin(each.partition, each.end, each.version, start=each.start)
        for some in slices_by_table.values()
        for each in some
    }


def carried(ledger: Ledger, recipe: Recipe, output: Partition, pinned: set[Pin]) -> set[Pin]:
    """Return the published update's pins of event tables without new data, so that the lineage stays complete.

    Return nothing if the output is appendable, because a batch must not have the pins of another batch.
    """
    tables = {source.feed for source in recipe.sources if source.is_table and not recipe.is_appendable}
    read = {pin.partition for pin in pinned}
    with ledger.read() as connection:
        published = updates.newest(connection, [output]).get(output) if tables else None
        consumed = updates.consumed_by(connection, output, published.id) if published else ()
    return {pin for pin in consumed if pin.partition.feed in tables and pin.partition not in read}
