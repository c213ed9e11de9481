"""Entries of a data catalog for the batches of intake: one catalog table per feed, and one partition per batch."""

from dataclasses import dataclass
from datetime import datetime

from feed_assets.core.feeds import Partition
from feed_assets.ledger import log, updates
from feed_assets.ledger.database import Ledger
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.declarations import Foreign
from feed_assets.orchestration.declare.partitions import Partitions, by_dimension, is_hourly, times_of
from feed_assets.orchestration.declare.time_windows import bounds
from feed_assets.sources.glue import GlueTable, Registered

_EVERYTHING = 1 << 62


@dataclass(frozen=True)
class Catalog:
    """The batches of intake in a code location's feeds. `board` is the URL of their blackboard."""

    graph: Graph
    ledger: Ledger
    board: str

    def after(self, last: int, limit: int) -> list[tuple[int, Registered | None]]:
        """Return up to `limit` log changes after number `last`: the number of each, and the current state of its batch.

        The state is None if the change is about anything but a batch. Such changes are returned, too, so that the
        subscriber's position advances. The log keeps a change until every subscriber has read it.
        """
        with self.ledger.read() as connection:
            changes = log.after(connection, last, _EVERYTHING, limit)
            batches = {each.partition for each in changes if each.kind == log.UPDATE and self._table_of(each.partition)}
            newest = updates.newest(connection, batches)
        return [(each.sequence, self._registered(each.partition, newest, batches)) for each in changes]

    def _registered(
        self, batch: Partition, newest: dict[Partition, updates.UpdateRow], batches: set[Partition]
    ) -> Registered | None:
        table = self._table_of(batch) if batch in batches else None
        start = _start(self.graph.by_feed[batch.feed].partitions_def, batch) if table else None
        if table is None or start is None:
            return None
        _, *beside, name = batch.key.split("/")
        value_by_key = {"date": f"{start:%Y-%m-%d}", "hour": f"{start:%H}", "batch": name}
        value_by_key |= zip(_beside(self.graph.by_feed[batch.feed].partitions_def), beside, strict=True)
        values, row = tuple(value_by_key[key] for key in table.keys), newest.get(batch)
        return Registered(table, values, f"{self.board}/{batch.path}/{row.id}/" if row else None)

    def _table_of(self, batch: Partition) -> GlueTable | None:
        """Return the catalog table of a batch's feed. Return None if the partition is no batch of intake."""
        node = self.graph.by_feed.get(batch.feed)
        return _table(node, self.board) if node and node.by_intake and "/" in batch.key else None


def _start(partitions_def: Partitions, batch: Partition) -> datetime | None:
    """Return the start (UTC) of a batch's partition. Return None if its key is no time window (any more)."""
    times = times_of(partitions_def)
    try:
        return bounds(times, batch.key.partition("/")[0])[0] if times else None
    except ValueError:
        return None


def _beside(partitions_def: Partitions) -> list[str]:
    """Return the names of a partition's dimensions other than time."""
    return [name for name, part in by_dimension(partitions_def).items() if part is not times_of(partitions_def)]


def _table(node: Node, board: str) -> GlueTable | None:
    declared = node.declaration
    if not isinstance(declared, Foreign):
        return None
    hour = ("hour",) if is_hourly(times_of(node.partitions_def)) else ()
    keys = ("date", *hour, *_beside(node.partitions_def), "batch")
    name, location = GlueTable.name_of(str(node.feed)), f"{board}/{node.feed}/"
    return GlueTable(name, declared.schema, declared.format, keys=keys, location=location, dialect=declared.dialect)
