"""Pruning of old events that nobody needs: an update on its way goes as a whole, once none of its events is held.

An event is held by a condition of its own row, which removing others does not change. So the result is the same
whatever was removed before, and a process that was killed between two steps goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import sqlalchemy as sa

from feed_assets.core.feeds import update_id
from feed_assets.ledger import event_store, key_tables, log, removed_markers, update_durations, updates
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import awaited, batch, change, consumed, event, inbox, taken_event, update


@dataclass(frozen=True)
class OldEvents:
    """The events with numbers up to `upto`, which are all older than `before`."""

    ledger: Ledger
    before: datetime
    upto: int

    def prune_some(self, after: int, limit: int, *, apply: bool) -> tuple[int, int | None]:
        """Remove old ones of the next events. Return their count and the last number, None at the end.

        They are searched without a lock. They are checked again where they are removed, while nobody publishes,
        consumes or gives back, and the rows of who consumed them go with them. Without `apply` they are only counted.
        """
        in_range = (event.c.sequence > after) & (event.c.sequence <= self.upto)
        query = sa.select(event).where(in_range).order_by(event.c.sequence).limit(limit)
        with self.ledger.read() as connection:
            looked = connection.execute(query).mappings().all()
            going = self._going(connection, looked)
        if going and apply:
            with self.ledger.change() as connection:
                _remove(connection, self._going(connection, going))
        return len(going), looked[-1]["sequence"] if len(looked) == limit else None

    @cached_property
    def _floors(self) -> dict[str, int]:
        with self.ledger.read() as connection:
            return update_durations.shown_from(connection, update_durations.SHOWN)

    def _going(self, connection: sa.Connection, rows: Sequence[sa.RowMapping]) -> list[sa.RowMapping]:
        """Return the rows for which no event of their own update is held, and none of an update that went into it."""
        ids = {row["sequence"]: _ids(row) for row in rows}
        every = {each for own_ids in ids.values() for each in own_ids}
        key_table = key_tables.rows(connection, ("correlation",), [[each] for each in sorted(every)])
        is_related = event.c.correlation.in_(sa.select(key_table.c.correlation))
        query = sa.select(event.c.correlation).where(is_related, self._is_held(connection)).distinct()
        held = {*connection.execute(query).scalars()} if rows else set[str]()
        return [row for row in rows if held.isdisjoint(ids[row["sequence"]])]

    def _is_held(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        floors = key_tables.rows(connection, ("feed", "first"), self._floors.items(), "floors")
        is_shown = _is_shown(event.c.feed, event.c.sequence, floors)
        reasons = [self._is_new(), _waits(), _is_last(), is_shown, _is_of_a_batch()]
        reasons += [self._is_of_current(floors), self._was_taken(floors), self._was_read(floors)]
        return sa.or_(*reasons)

    def _is_new(self) -> sa.ColumnElement[bool]:
        """Return whether an event is young, or its change stays in the log: a reader of that change needs the event."""
        same_number = change.c.sequence == event.c.sequence
        stays = sa.exists().where(same_number, ~log.goes(self.before)).correlate(event)
        return (event.c.sequence > self.upto) | stays

    def _is_of_current(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return whether an event is the last about an update that may be read again."""
        its = _its_update() & self._is_current(floors)
        return sa.exists().where(its).correlate(event) & ~_is_passed_on()

    def _was_taken(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return whether an event is due again if an update that has consumed it is invalidated."""
        its = (update.c.run == taken_event.c.run) & (update.c.feed == taken_event.c.feed)
        condition = (taken_event.c.sequence == event.c.sequence) & its & self._is_current(floors)
        return sa.exists().where(condition).correlate(event)

    def _was_read(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return whether a current update was built up to an event: what follows that carries its id."""
        at = (consumed.c.input_feed == event.c.feed) & (consumed.c.input_partition == event.c.partition)
        its = sa.and_(*(update.c[name] == consumed.c[name] for name in ("feed", "partition", "id")))
        condition = at & (consumed.c.position == event.c.marker) & its & self._is_current(floors)
        return sa.exists().where(condition).correlate(event)

    def _is_current(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return whether an update is the newest valid one or the one before, or was so lately; or `stats` shows it.

        The one before is read again if the newest is invalidated, however long ago it was published.
        """
        newer, newest, its = update.alias(), update.alias(), event.alias()
        same_partition = (newer.c.feed == update.c.feed) & (newer.c.partition == update.c.partition)
        replaced = same_partition & (newer.c.state == updates.PUBLISHED) & (newer.c.id > update.c.id)
        again = (newest.c.feed == newer.c.feed) & (newest.c.partition == newer.c.partition)
        again &= (newest.c.state == updates.PUBLISHED) & (newest.c.id > newer.c.id)
        replaced &= sa.exists().where(again, newest.c.id <= update_id(self.before)).correlate(newer)
        may_be_read = update.c.state.in_([updates.PUBLISHED, updates.INVALIDATED, updates.CLAIMED])
        may_be_read &= ~sa.exists().where(replaced).correlate(update)
        own = (its.c.feed == update.c.feed) & (its.c.partition == update.c.partition) & (its.c.marker == update.c.id)
        is_shown = sa.exists().where(own, _is_shown(its.c.feed, its.c.sequence, floors)).correlate(update)
        return may_be_read | is_shown


def _ids(row: sa.RowMapping) -> set[str]:
    recorded = event_store.recorded_of(row)
    return {recorded.correlation, *recorded.parents}


def _is_shown(feed: sa.ColumnElement[str], sequence: sa.ColumnElement[int], floors: sa.CTE) -> sa.ColumnElement[bool]:
    """Return whether an event is among the newest of its table."""
    first = sa.cast(floors.c.first, sa.BigInteger)
    return sa.select(first).where(floors.c.feed == feed).scalar_subquery() <= sequence


def _waits() -> sa.ColumnElement[bool]:
    """Return whether a consumer has not consumed an event, or does not have it as its partition does not exist yet."""
    at = (awaited.c.feed == event.c.feed) & (awaited.c.partition == event.c.partition)
    not_told = sa.exists().where(at, awaited.c.sequence <= event.c.sequence).correlate(event)
    return event.c.sequence.in_(sa.select(inbox.c.sequence)) | not_told


def _is_last() -> sa.ColumnElement[bool]:
    """Return whether no later marker of an event's partition exists: the next one is judged by it.

    Events that pass on one update of a feed all have its marker: the last of them is enough.
    """
    later = event.alias()
    after = (later.c.feed == event.c.feed) & (later.c.partition == event.c.partition)
    after &= (later.c.marker > event.c.marker) & removed_markers.of_one_kind(later.c.marker, event.c.marker)
    # Two seeks: one condition for both would scan all of the partition.
    is_update = sa.exists().where(_its_update()).correlate(event)
    return ~sa.exists().where(after).correlate(event) & ~(is_update & _is_passed_on())


def _its_update() -> sa.ColumnElement[bool]:
    """Return the condition for the update of an event, if it is of a feed."""
    same_partition = (update.c.feed == event.c.feed) & (update.c.partition == event.c.partition)
    return same_partition & (update.c.id == event.c.marker)


def _is_passed_on() -> sa.ColumnElement[bool]:
    """Return whether a later event has the same marker."""
    later = event.alias()
    same_marker = sa.and_(*(later.c[name] == event.c[name] for name in ("feed", "partition", "marker")))
    # No bare column: the index by table and number would be used, and scanned.
    return sa.exists().where(same_marker, later.c.sequence + 0 > event.c.sequence).correlate(event)


def _is_of_a_batch() -> sa.ColumnElement[bool]:
    """Return whether an event is of a batch of ours: each of these is current for as long as it exists."""
    same_partition = (batch.c.feed == event.c.feed) & (batch.c.partition == event.c.partition)
    return sa.exists().where(same_partition).correlate(event)


def _remove(connection: sa.Connection, going: Sequence[sa.RowMapping]) -> None:
    removed_markers.forget(connection, going)
    for table in (taken_event, event):
        key_table = key_tables.rows(connection, ("sequence",), [[str(row["sequence"])] for row in going])
        gone = table.c.sequence.in_(sa.select(sa.cast(key_table.c.sequence, sa.BigInteger)))
        connection.execute(sa.delete(table).where(gone))
