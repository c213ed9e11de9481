"""What a run reads of event tables, and how that stands in the lineage."""

from collections.abc import Mapping, Sequence

from feed_assets.core.events import Operation
from feed_assets.core.feeds import Partition
from feed_assets.core.plans import RunSpec
from feed_assets.core.positions import Pin
from feed_assets.core.slices import Slice
from feed_assets.ledger import events, updates
from feed_assets.ledger.database import Ledger
from feed_assets.runs.recipe import Recipe

Cut = Mapping[str, Sequence[Slice]]
"""By input its slices."""


def cut(ledger: Ledger, run_spec: RunSpec, partitions: Sequence[Partition]) -> list[Slice]:
    """The slices of an event table: those of the run spec, or all there is, up to the last marker."""
    if run_spec.slices or run_spec.consumes:
        return [run_spec.slices[partition] for partition in partitions if partition in run_spec.slices]
    with ledger.read() as connection:
        last = {partition: events.last_marker(connection, partition) for partition in partitions}
    whole = frozenset({Operation.OVERWRITE})
    return [Slice(partition, None, marker, whole) for partition, marker in last.items() if marker]


def pins_of(found: Cut) -> set[Pin]:
    """Slices as the positions that are recorded in the lineage."""
    return {Pin(each.partition, each.end, each.version, start=each.start) for some in found.values() for each in some}


def carried(ledger: Ledger, recipe: Recipe, output: Partition, pinned: set[Pin]) -> set[Pin]:
    """The published positions of event tables with nothing new: lineage says how far each was read."""
    tables = {source.feed for source in recipe.sources if source.is_table}
    read = {pin.partition for pin in pinned}
    with ledger.read() as connection:
        published = updates.newest(connection, [output]).get(output) if tables else None
        known = updates.consumed_by(connection, output, published.id) if published else ()
    return {pin for pin in known if pin.partition.feed in tables and pin.partition not in read}
