"""Pruning of old events. All events of a propagation are removed together, once no event of it is held.

An event is held if something may still need it (`OldEvents._is_held`). The reasons do not depend on removed events. So
the order of removal does not change the result, and another process can continue after a kill.
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
    """The events with numbers up to `upto`. All of them are older than `before`."""

    ledger: Ledger
    before: datetime
    upto: int

    def prune_some(self, after: int, limit: int, *, apply: bool) -> tuple[int, int | None]:
        """Search the next `limit` events, and prune those that may be pruned.

        Return the number of pruned events, and the last number searched (None at the end). Events are searched without
        a lock, and checked again on removal, under the lock that publications use. Rows of the table `taken` about
        these events are removed, too. Without `apply` the events are only counted.
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
        """Return the events that can be pruned, because no event of their propagation must be kept.

        No event of a propagation that was joined into this propagation must be kept, either.
        """
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
        """Return a condition on the table `event`: the event is too young to be pruned, or its log entry stays.

        Readers of the log entry need the event.
        """
        same_number = change.c.sequence == event.c.sequence
        stays = sa.exists().where(same_number, ~log.goes(self.before)).correlate(event)
        return (event.c.sequence > self.upto) | stays

    def _is_of_current(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return a condition on the table `event`: it is the last event about a current update (`_is_current`)."""
        its = _its_update() & self._is_current(floors)
        return sa.exists().where(its).correlate(event) & ~_is_passed_on()

    def _was_taken(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return a condition on the table `event`: a run that made a current update consumed the event.

        If that update is invalidated, the event returns to an inbox.
        """
        its = (update.c.run == taken_event.c.run) & (update.c.feed == taken_event.c.feed)
        condition = (taken_event.c.sequence == event.c.sequence) & its & self._is_current(floors)
        return sa.exists().where(condition).correlate(event)

    def _was_read(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return a condition on the table `event`: a current update read the event's table exactly up to this event.

        Such an event is kept, because the next run takes over its correlation id.
        """
        at = (consumed.c.input_feed == event.c.feed) & (consumed.c.input_partition == event.c.partition)
        its = sa.and_(*(update.c[name] == consumed.c[name] for name in ("feed", "partition", "id")))
        condition = at & (consumed.c.position == event.c.marker) & its & self._is_current(floors)
        return sa.exists().where(condition).correlate(event)

    def _is_current(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Return a condition on the table `update`: the update may be read again, or `stats` shows it.

        An update may be read again if it is one of the two newest valid updates of its partition, or was one until
        lately. If the newest update is invalidated, the update before it is read again, however old it is.
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
    """Return the SQL condition that an event is among the newest events of its table, which `stats` shows."""
    first = sa.cast(floors.c.first, sa.BigInteger)
    return sa.select(first).where(floors.c.feed == feed).scalar_subquery() <= sequence


def _waits() -> sa.ColumnElement[bool]:
    """Return the SQL condition that an event is in an inbox, or waits for a consumer's partition to exist."""
    at = (awaited.c.feed == event.c.feed) & (awaited.c.partition == event.c.partition)
    not_told = sa.exists().where(at, awaited.c.sequence <= event.c.sequence).correlate(event)
    return event.c.sequence.in_(sa.select(inbox.c.sequence)) | not_told


def _is_last() -> sa.ColumnElement[bool]:
    """Return the SQL condition that an event has the last marker of its partition. New events are compared with it.

    Several events may announce the same feed update, one for each propagation. These events have the same marker, so
    only the last of them counts.
    """
    later = event.alias()
    after = (later.c.feed == event.c.feed) & (later.c.partition == event.c.partition)
    after &= (later.c.marker > event.c.marker) & removed_markers.of_one_kind(later.c.marker, event.c.marker)
    # Two conditions cost two index lookups. A single condition would scan the whole partition.
    is_update = sa.exists().where(_its_update()).correlate(event)
    return ~sa.exists().where(after).correlate(event) & ~(is_update & _is_passed_on())


def _its_update() -> sa.ColumnElement[bool]:
    """Return the SQL condition that joins an event with the feed update that it announces."""
    same_partition = (update.c.feed == event.c.feed) & (update.c.partition == event.c.partition)
    return same_partition & (update.c.id == event.c.marker)


def _is_passed_on() -> sa.ColumnElement[bool]:
    """Return the SQL condition that a later event of the same partition has the same marker."""
    later = event.alias()
    same_marker = sa.and_(*(later.c[name] == event.c[name] for name in ("feed", "partition", "marker")))
    # The `+ 0` keeps the database from scanning the index by table and number.
    return sa.exists().where(same_marker, later.c.sequence + 0 > event.c.sequence).correlate(event)


def _is_of_a_batch() -> sa.ColumnElement[bool]:
    """Return the SQL condition that an event is about one of our batches, which is current as long as it exists."""
    same_partition = (batch.c.feed == event.c.feed) & (batch.c.partition == event.c.partition)
    return sa.exists().where(same_partition).correlate(event)


def _remove(connection: sa.Connection, going: Sequence[sa.RowMapping]) -> None:
    removed_markers.forget(connection, going)
    for table in (taken_event, event):
        key_table = key_tables.rows(connection, ("sequence",), [[str(row["sequence"])] for row in going])
        gone = table.c.sequence.in_(sa.select(sa.cast(key_table.c.sequence, sa.BigInteger)))
        connection.execute(sa.delete(table).where(gone))
