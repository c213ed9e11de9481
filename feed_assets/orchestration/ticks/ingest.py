"""Ingestion of an event source's rows as events of the ledger: exactly once, in order, even after a kill."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from feed_assets.core.errors import InvalidEvent, SourceBusy
from feed_assets.core.events import Rejected, WriteEvent, check_ahead
from feed_assets.core.isolation import failing_alone
from feed_assets.core.limits import as_text
from feed_assets.core.message_words import shortened
from feed_assets.core.readiness import NAMED
from feed_assets.ledger import event_owners, event_rejects, event_store
from feed_assets.ledger.database import Ledger, drop_cursor, get_cursor, put_cursors
from feed_assets.ledger.states.window_queries import declare
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.nodes import Node
from feed_assets.orchestration.declare.event_tables import declared_sources
from feed_assets.orchestration.declare.partitions import Existence, existence
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.sources.contract import Reader
from feed_assets.sources.databases import ANSWER_SECONDS, LATE_SECONDS
from feed_assets.sources.declared import EventSource
from feed_assets.sources.report_reader import record

BUSY_FOR = timedelta(minutes=10)
"""Time after which a source that other processes keep open counts as a problem.

Usually they open a source only briefly.
"""

ROWS_PER_READ = 5000
"""Number of rows to read and record at a time."""


@dataclass
class Ingested:
    """The result of reading an event source: whether everything was read, and how many rows were rejected.

    `problems` has the failures and `waits` has the reasons for a delay, both by part of the source.
    """

    is_complete: bool = True
    rejected: int = 0
    problems: dict[str, str] = field(default_factory=dict[str, str])
    waits: dict[str, str] = field(default_factory=dict[str, str])


def sources_of(graph: Graph) -> dict[str, EventSource]:
    """Return the event sources of a code location by name."""
    return declared_sources(node.declaration for node in graph.tables())


def register_tables(graph: Graph, ledger: Ledger, source: EventSource, now: datetime) -> None:
    """Register a source as the owner of its declared tables. Events of other sources for them are rejected."""
    event_owners.register(ledger, source.name, {*map(str, graph.by_table_name(source.name).values())}, now)


@dataclass(frozen=True)
class Naming:
    """Translation of a source's table names in events to our names for these tables."""

    graph: Graph
    source: EventSource

    def of(self, event: WriteEvent, now: datetime) -> WriteEvent | Rejected:
        """Return an event with our name for its table. Reject the event if it does not fit the table."""
        node = self._nodes.get(event.table_name)
        if reason := self._why_not(event, node, now):
            return Rejected(event_rejects.in_json(event), reason)
        return replace(event, table_name=str(node.feed)) if node else event

    def unborn(self, events: Sequence[WriteEvent], now: datetime) -> set[str]:
        """Return the partitions of Kafka topics that occur in these events, but that Dagster does not have yet.

        Only a tick of the sensor adds them to Dagster.
        """
        pairs = {(event.table_name, event.partition_key) for event in events}
        own_pairs = [(self._nodes[table], key) for table, key in pairs if table in self._nodes]
        absent = [
            (node, key) for node, key in own_pairs if existence(node.partitions_def, key, now) is Existence.NOT_YET
        ]
        return {f"{node.feed}/{key}" for node, key in absent if node.partitioned_as}

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {name: self.graph.node(feed) for name, feed in self.graph.by_table_name(self.source.name).items()}

    def _why_not(self, event: WriteEvent, node: Node | None, now: datetime) -> str | None:
        try:
            check_ahead(event, now, timedelta(hours=settings().event_hours_ahead))
        except InvalidEvent as error:
            return str(error)
        if node is None and event.partition.feed in self.graph.by_feed:
            return f"{event.table_name} is declared here, but not as a table of the event source {self.source.name}."
        if node and existence(node.partitions_def, event.partition_key, now) is Existence.NEVER:
            return (
                f"{event.partition_key!r} is no partition of {node.feed} and never will be: expected one of its "
                "partitions. Declare the table with other partitions, or let its owner correct the event."
            )
        return None


def ingest(
    graph: Graph,
    services: Services,
    source: EventSource,
    now: datetime,
    out_of_time: Callable[[], bool],
    *,
    again: bool = False,
) -> Ingested:
    """Record new events of a source until the time is over. If a part cannot be read, continue with the others.

    With `again`, read from the beginning. Events that the ledger has already are not recorded twice. Other sources can
    record no event of this source's tables from now on.
    """
    naming, total = Naming(graph, source), Ingested()
    register_tables(graph, services.ledger, source, now)
    for number, part in enumerate(source.parts):
        name, cursor = _names(source, number)
        with failing_alone(total.problems, name):
            if again:
                _forget(services, cursor)
            _SourcePart(services, naming, cursor, part.reader(services.board_named), now).ingest(
                name, out_of_time, total
            )
    return total


@dataclass(frozen=True)
class Unread:
    """A part of an event source that could not be read to its end, with the reason."""

    source: str
    why: str
    as_of: datetime | None
    """The time of the last reading (UTC). None means never."""


def ingest_for(graph: Graph, services: Services, consumers: Sequence[Node], now: datetime) -> tuple[Unread, ...]:
    """Record the new events of the sources that some datasets read, as the next ticks would do.

    Return the unread parts.
    """
    names = {parent.source for node in consumers for parent in graph.parents(node)}
    sources = [source for name, source in sorted(sources_of(graph).items()) if name in names]
    return tuple(unread for source in sources for unread in _unread(graph, services, source, now))


def _unread(graph: Graph, services: Services, source: EventSource, now: datetime) -> Iterator[Unread]:
    ingested = ingest(graph, services, source, now, lambda: False)
    for number, _ in enumerate(source.parts):
        name, cursor = _names(source, number)
        if why := ingested.problems.get(name) or ingested.waits.get(name):
            with services.ledger.read() as connection:
                last = get_cursor(connection, _read_at(cursor))
            yield Unread(name, why, datetime.fromisoformat(last) if last else None)


def _names(source: EventSource, number: int) -> tuple[str, str]:
    """Return a part's name for messages, and the name of the cursor that stores the part's read position."""
    return f"part {number} of {source.name}", f"read {source.name}/{number}"


def _waits_for(unborn: Collection[str]) -> str:
    """Return why events are not recorded before Dagster has these partitions.

    Without the wait, consumers would get later events before the events of an absent partition.
    """
    named = shortened(sorted(unborn), NAMED)
    return f"Dagster does not have {named} as partitions yet: the next tick of the sensor will find them"


def _read_at(cursor: str) -> str:
    """Return the name of the cursor that has the time of a part's last reading."""
    return f"{cursor} at"


def _forget(services: Services, cursor: str) -> None:
    with services.ledger.write() as connection:
        drop_cursor(connection, cursor)


@dataclass(frozen=True)
class _SourcePart:
    services: Services
    naming: Naming
    cursor: str
    reader: Reader
    now: datetime

    def ingest(self, name: str, out_of_time: Callable[[], bool], total: Ingested) -> None:
        """Read events and record them until the source ends, a reason to wait occurs, or the time is over."""
        try:
            self._ingest(name, out_of_time, total)
        except SourceBusy as error:
            if self.now - self._busy_since() > BUSY_FOR:
                raise
            total.is_complete, total.waits[name] = False, str(error)

    def _busy_since(self) -> datetime:
        """Return the time since which the part has been busy.

        Return the current time if the part has just become busy.
        """
        name = f"{self.cursor} busy"
        with self.services.ledger.read() as connection:
            since, read = get_cursor(connection, name), get_cursor(connection, _read_at(self.cursor))
        if since and (read is None or datetime.fromisoformat(read) < datetime.fromisoformat(since)):
            return datetime.fromisoformat(since)
        with self.services.ledger.write() as connection:
            put_cursors(connection, {name: self.now.isoformat()})
        return self.now

    def _ingest(self, name: str, out_of_time: Callable[[], bool], total: Ingested) -> None:
        while True:
            with self.services.ledger.read() as connection:
                position = get_cursor(connection, self.cursor)
            # If the time is over, still read, but wait less. A tick that read nothing would resolve an alert about an
            # unreadable source, and the next tick would open it again.
            seconds = LATE_SECONDS if out_of_time() else ANSWER_SECONDS
            batch = self.reader.read(position, ROWS_PER_READ, seconds)
            if unborn := self.naming.unborn(batch.events, self.now):
                total.is_complete, total.waits[name] = False, _waits_for(unborn)
                return
            total.rejected += self._report(batch.reports)
            total.rejected += self._record(batch.events, [*batch.rejected], position, batch.position)
            if batch.waits:
                total.is_complete, total.waits[name] = False, batch.waits
            if batch.waits or batch.is_complete or batch.position == position:
                return
            if out_of_time():
                total.is_complete = False
                return

    def _report(self, reports: Sequence[Mapping[str, Any]]) -> int:
        """Record the counts that a source reports, before the read position moves. Return the number of rejects.

        After a kill, the same counts are recorded again, which does no harm. The datasets' current declarations are
        recorded first, because the tick that usually records them may come later.
        """
        if not reports:
            return 0
        named = {each["dataset"] for each in reports}
        tracked = {feed: each for feed, each in self.naming.graph.tracked().items() if str(feed) in named}
        # The tick that usually records declarations reports a refused declaration.
        declare(self.services.ledger, tracked, self.now)
        by, lines = self.naming.source.name, map(as_text, reports)
        return sum(len(outcome.rejected) for outcome in record(self.services.ledger, lines, by))

    def _record(
        self, new: Sequence[WriteEvent], rejected: list[Rejected], before: str | None, after: str | None
    ) -> int:
        """Record events, rejects and position in one transaction. Return the number of rejects."""
        named, source = [self.naming.of(event, self.now) for event in new], self.naming.source
        sound = [each for each in named if isinstance(each, WriteEvent)]
        rejected += [each for each in named if isinstance(each, Rejected)]
        refuse = source.out_of_order == "refuse"
        with self.services.ledger.change() as connection:
            if get_cursor(connection, self.cursor) != before:
                return 0  # another process has recorded these rows
            refused = event_store.record(connection, source.name, sound, self.now, refuse_out_of_order=refuse)
            event_rejects.reject(connection, source.name, rejected, self.now)
            read = {_read_at(self.cursor): self.now.isoformat()}
            put_cursors(connection, read if after is None else read | {self.cursor: after})
        return len(refused) + len(rejected)
