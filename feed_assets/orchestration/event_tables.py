"""Tables of which others tell by events: external assets, whose events the ledger learns in the sensor's tick."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import dagster as dg

from feed_assets.core.cadence import Cadence
from feed_assets.core.errors import FeedAssetsError, InvalidDefinition
from feed_assets.core.events import Recorded, Rejected, WriteEvent, in_words
from feed_assets.core.feeds import Feed
from feed_assets.core.typed import typed
from feed_assets.ledger import events
from feed_assets.ledger.database import drop_cursor, get_cursor, put_cursor
from feed_assets.orchestration.declarations import Declaration, EventTable, metadata_of
from feed_assets.orchestration.graph import Graph, Node
from feed_assets.orchestration.inputs import asset_key
from feed_assets.orchestration.partitions import Partitions, Standing, standing
from feed_assets.orchestration.sensors import DATA_VERSION_TAG
from feed_assets.runs.workbench import Workbench
from feed_assets.sources.contract import EventSource as Reader
from feed_assets.sources.declared import EventSource

SOME = 5000
"""Events that are read and recorded at a time."""


@typed
def event_table(
    name: str,
    *,
    source: EventSource,
    table_name: str | None = None,
    partitions_def: Partitions = None,
    cadence: Cadence | None = None,
    description: str | None = None,
    owners: Sequence[str] | None = None,
) -> dg.AssetSpec:
    """Declare a table of which an event source tells, as an external asset. Its data version is its last marker.

    Args:
        name: Its name here, such as `shop/orders`.
        source: The event source that tells of it.
        table_name: What the source calls it; by default its name here.
        partitions_def: Dagster's partitions, if its events name partitions.
        cadence: When its events are expected; one that does not come raises an alert.
        description: A description for the UI.
        owners: Owners for the UI: `team:shop`, or an address of e-mail.

    Returns:
        The spec of the external asset, to be an input of datasets by events.

    Raises:
        InvalidName: The name is none that a table can have.
        InvalidDefinition: A value is of a wrong type.
    """
    found = Feed.parse(name)
    return dg.AssetSpec(
        asset_key(found),
        partitions_def=partitions_def,
        description=description or f"Table {table_name or name} of the event source {source.name}.",
        group_name=asset_key(found).path[0],
        kinds={"table"},
        owners=owners,
        metadata=metadata_of(EventTable(found, source, table_name or name, cadence)),
    )


@dataclass(frozen=True)
class Learned:
    """What a look at an event source gave: whether that was all, how many were no events, what could not be read."""

    is_complete: bool
    rejected: int
    problems: tuple[str, ...]


def sources_of(graph: Graph) -> dict[str, EventSource]:
    """The event sources of a code location, by name."""
    return declared_sources(node.declaration for node in graph.tables())


def declared_sources(declarations: Iterable[Declaration]) -> dict[str, EventSource]:
    """The event sources that tables declare, by name. Raises InvalidDefinition for two of one name."""
    found: dict[str, EventSource] = {}
    for source in [each.source for each in declarations if isinstance(each, EventTable)]:
        if found.setdefault(source.name, source) != source:
            raise InvalidDefinition(f"event source {source.name} is declared twice and differs: expected one.")
    return found


def learn(
    graph: Graph,
    bench: Workbench,
    source: EventSource,
    now: datetime,
    is_over: Callable[[], bool],
    *,
    again: bool = False,
) -> Learned:
    """Record what is new in an event source until the time is over. A part that cannot be read holds up no other.

    `again`: from the beginning, as what is known stays as it is.
    """
    names = {name: graph.node(feed) for name, feed in graph.by_table_name(source.name).items()}
    complete, rejected, problems = True, 0, list[str]()
    for number, part in enumerate(source.parts):
        cursor = f"read {source.name}/{number}"
        try:
            if again:
                _forget(bench, cursor)
            look = _Look(graph, bench, source, names, cursor, part.reader(bench.board), now)
            found = look.run(is_over)
        except FeedAssetsError as error:
            problems.append(f"part {number} of {source.name} could not be read: {error}")
            continue
        complete, rejected = complete and found.is_complete, rejected + found.rejected
        problems += found.problems
    return Learned(complete, rejected, tuple(problems))


def _forget(bench: Workbench, cursor: str) -> None:
    with bench.ledger.write() as connection:
        drop_cursor(connection, cursor)


@dataclass(frozen=True)
class _Look:
    graph: Graph
    bench: Workbench
    source: EventSource
    names: Mapping[str, Node]
    cursor: str
    reader: Reader
    now: datetime

    def run(self, is_over: Callable[[], bool]) -> Learned:
        rejected = 0
        while True:
            with self.bench.ledger.read() as connection:
                position = get_cursor(connection, self.cursor)
            batch = self.reader.read(position, SOME)
            rejected += self._record(batch.events, [*batch.rejected], position, batch.position)
            if batch.waits or batch.is_complete or batch.position == position:
                return Learned(batch.waits is None, rejected, (batch.waits,) if batch.waits else ())
            if is_over():
                return Learned(is_complete=False, rejected=rejected, problems=())

    def _record(
        self, new: Sequence[WriteEvent], turned_away: list[Rejected], before: str | None, after: str | None
    ) -> int:
        """Events, rejects and position in one transaction: a kill repeats all of it or nothing."""
        sound = [named for each in new if (named := self._named(each, turned_away))]
        refuse = self.source.out_of_order == "refuse"
        with self.bench.ledger.write() as connection:
            if get_cursor(connection, self.cursor) != before:
                return 0  # Another process has read this.
            refused = events.record(connection, self.source.name, sound, self.now, refuse_out_of_order=refuse)
            events.reject(connection, self.source.name, turned_away, self.now)
            if after is not None and after != before:
                put_cursor(connection, self.cursor, after)
        return len(refused) + len(turned_away)

    def _named(self, event: WriteEvent, turned_away: list[Rejected]) -> WriteEvent | None:
        """An event under our name of its table; None if it cannot be that table's."""
        node = self.names.get(event.table_name)
        if reason := self._why_not(event, node):
            turned_away.append(Rejected(events.in_json(event), reason))
            return None
        return replace(event, table_name=str(node.feed)) if node else event

    def _why_not(self, event: WriteEvent, node: Node | None) -> str | None:
        if node is None and event.place.feed in self.graph.by_feed:
            return f"{event.table_name} is declared here, and not as a table of the event source {self.source.name}."
        if node and standing(node.partitions_def, event.partition_key, self.now) is Standing.NEVER:
            return (
                f"{event.partition_key!r} is no partition of {node.feed} and never will be: expected one of its "
                "partitions. Declare the table with other partitions, or have its owner mend the event."
            )
        return None


def newest_events(graph: Graph, bench: Workbench, source: str, after: int, limit: int) -> tuple[Recorded, ...]:
    """The events of a source's declared tables that come after a number."""
    tables = [node.feed for node in graph.tables() if node.source == source]
    with bench.ledger.read() as connection:
        return events.after(connection, tables, after, events.last_sequence(connection), limit)


def materialization(graph: Graph, event: Recorded, now: datetime) -> dg.AssetMaterialization | None:
    """An event as Dagster hears of it; None while its partition is none yet."""
    node = graph.node(event.place.feed)
    if standing(node.partitions_def, event.place.key, now) is not Standing.IS:
        return None
    told = {name: value for name, value in event.context.items() if isinstance(value, (str, int, float, bool))}
    return dg.AssetMaterialization(
        asset_key=node.key,
        partition=node.key_of(event.place),
        metadata={
            "marker": in_words(event.marker),
            "correlation id": event.correlation,
            "operation": event.operation.value,
            **({"flag": event.flag} if event.flag else {}),
            **told,
        },
        tags={DATA_VERSION_TAG: event.marker},
    )
