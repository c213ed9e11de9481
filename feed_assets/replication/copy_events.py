"""Write events of copies: an update is published in a data center, or no longer valid there.

Such an event belongs to a table of its own, `shop/sales@b/v1.0`, so it is no new update of the dataset.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.data_centers import copied_feed
from feed_assets.core.events import BATCH, DATA_CENTER, PARENTS, REPLICA_OF, UPDATE_ID, WITHDRAWN, Operation, WriteEvent
from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import announce, event_store, log, updates
from feed_assets.ledger.place_copies import PUBLISHED
from feed_assets.ledger.tables import event
from feed_assets.replication.places import Place
from feed_assets.replication.replicas import Replica

_CONTEXT = (UPDATE_ID, "bytes", "files", "records", "code_version", "run", BATCH, PARENTS)
"""Keys of the source's event. The others compare an update with the one before, which a place may have skipped."""


@dataclass(frozen=True)
class CopyEvents:
    """Write events for the copies of one source in a place."""

    place: Place
    source: Blackboard

    def published(self, connection: sa.Connection, before: Replica | None, copy: Replica) -> None:
        """Record that a copy is published. Call it in the transaction that changes its row from `before`.

        A compacted update has no event, as at the source: it has the rows of updates that have one. A copy that is
        there without a row, because its place was forgotten, has its event already.
        """
        row = updates.find(connection, copy.partition, copy.id)
        if row is None or row.origin == updates.COMPACTED or (before and before.state == PUBLISHED):
            return
        new = self._event(connection, row, copy.at)
        if before and event_store.is_recorded(connection, new):
            new = _another(connection, new, Operation.OVERWRITE)
        _record(connection, new, copy.at)

    def withdrawn(self, connection: sa.Connection, before: Replica | None, now: datetime) -> None:
        """Record that a copy is no longer valid. Call it in the transaction that changes its row from `before`."""
        row = updates.find(connection, before.partition, before.id) if before else None
        if row is None or before is None or row.origin == updates.COMPACTED:
            return
        new = self._event(connection, row, now)
        # A copy that was missed or half-written meanwhile has another state, and its readers know of it.
        if before.state == PUBLISHED or event_store.last_operation(connection, new) not in (None, Operation.DELETE):
            new = _another(connection, new, Operation.DELETE)
            _record(connection, replace(new, context={**new.context, WITHDRAWN: True}), now)

    def _event(self, connection: sa.Connection, row: updates.UpdateRow, now: datetime) -> WriteEvent:
        of_source = announce.event_of(connection, row, now)
        path = Update(row.partition, row.id, ()).path
        context: dict[str, Any] = {key: of_source.context[key] for key in _CONTEXT if key in of_source.context}
        context |= {DATA_CENTER: self.place.name, "url": self.place.board.url, "path": path}
        context |= {REPLICA_OF: self.source.url}
        is_added = of_source.write_operation is Operation.INSERT
        return replace(
            of_source,
            table_name=str(copied_feed(of_source.partition.feed, self.place.name)),
            write_operation=Operation.INSERT if is_added else Operation.OVERWRITE,
            context=context,
        )


def _another(connection: sa.Connection, new: WriteEvent, operation: Operation) -> WriteEvent:
    """Return a further event about the same update. With the same correlation id, it would be a repetition."""
    correlation = f"{new.correlation_id}#{log.last(connection) + 1}"
    return replace(new, correlation_id=correlation, write_operation=operation)


def _record(connection: sa.Connection, new: WriteEvent, now: datetime) -> None:
    event_store.record(connection, event_store.OURS, [new], now, refuse_out_of_order=False)


def source_urls(connection: sa.Connection, row: updates.UpdateRow, places: Iterable[str]) -> dict[str, str]:
    """Return the URL of the blackboard that each place has copied an update from, by place, as far as events say it."""
    tables = {str(copied_feed(row.partition.feed, place)): place for place in places}
    its_events = event.c.feed.in_(sorted(tables)) & (event.c.partition == updates.output_of(connection, row).key)
    query = sa.select(event.c.feed, event.c.context).where(its_events, event.c.marker == row.id)
    contexts = {tables[feed]: json.loads(context) for feed, context in connection.execute(query)}
    return {place: context[REPLICA_OF] for place, context in contexts.items() if REPLICA_OF in context}
