"""Which old events nobody needs: an update on its way goes as a whole, once none of its events is held.

What holds an event is one condition of its own row, which removing others does not change: so it is the same whatever
was removed before, and whoever is killed between two steps goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import sqlalchemy as sa

from feed_assets.core.feeds import update_id
from feed_assets.ledger import durations, events, forgetting, log, updates, wanted
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import awaited, batch, change, consumed, event, inbox, taken, update


@dataclass(frozen=True)
class OldEvents:
    """The events with numbers up to `upto`, which are all older than `before`."""

    ledger: Ledger
    before: datetime
    upto: int

    def prune_some(self, after: int, limit: int, *, apply: bool) -> tuple[int, int | None]:
        """Of the next events: how many go, and the last number; None if these were all.

        What goes is looked for without a lock. It is looked at again where it is removed, while nobody publishes,
        consumes or gives back: with it go the rows that say who has consumed it.
        """
        mine = (event.c.sequence > after) & (event.c.sequence <= self.upto)
        query = sa.select(event).where(mine).order_by(event.c.sequence).limit(limit)
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
            return durations.shown_from(connection, durations.SHOWN)

    def _going(self, connection: sa.Connection, rows: Sequence[sa.RowMapping]) -> list[sa.RowMapping]:
        """Those of which neither an event of their own update is held, nor one of an update that went into it."""
        ids = {row["sequence"]: _ids(row) for row in rows}
        every = {each for some in ids.values() for each in some}
        asked = wanted.rows(connection, ("correlation",), [[each] for each in sorted(every)])
        mine = event.c.correlation.in_(sa.select(asked.c.correlation))
        query = sa.select(event.c.correlation).where(mine, self._is_held(connection)).distinct()
        held = {*connection.execute(query).scalars()} if rows else set[str]()
        return [row for row in rows if held.isdisjoint(ids[row["sequence"]])]

    def _is_held(self, connection: sa.Connection) -> sa.ColumnElement[bool]:
        floors = wanted.rows(connection, ("feed", "first"), self._floors.items(), "floors")
        shown = _is_shown(event.c.feed, event.c.sequence, floors)
        reasons = [self._is_new(), _waits(), _is_last(), shown, _is_of_a_batch()]
        reasons += [self._is_of_current(floors), self._was_taken(floors), self._was_read(floors)]
        return sa.or_(*reasons)

    def _is_new(self) -> sa.ColumnElement[bool]:
        """It is young, or its change stays in the log: who reads that on is told of it, and looks for it here."""
        same = change.c.sequence == event.c.sequence
        stays = sa.exists().where(same, ~log.goes(self.before)).correlate(event)
        return (event.c.sequence > self.upto) | stays

    def _is_of_current(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """It is the last word on an update that may be read again."""
        its = _its_update() & self._is_current(floors)
        return sa.exists().where(its).correlate(event) & ~_is_passed_on()

    def _was_taken(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """It is due again if an update that has consumed it is invalidated."""
        its = (update.c.run == taken.c.run) & (update.c.feed == taken.c.feed)
        mine = (taken.c.sequence == event.c.sequence) & its & self._is_current(floors)
        return sa.exists().where(mine).correlate(event)

    def _was_read(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """An update that may be read again, or is, was built up to it: what follows that carries its id."""
        at = (consumed.c.input_feed == event.c.feed) & (consumed.c.input_partition == event.c.partition)
        its = sa.and_(*(update.c[name] == consumed.c[name] for name in ("feed", "partition", "id")))
        mine = at & (consumed.c.position == event.c.marker) & its & self._is_current(floors)
        return sa.exists().where(mine).correlate(event)

    def _is_current(self, floors: sa.CTE) -> sa.ColumnElement[bool]:
        """Whether an update is the newest valid one, or the one before that, or was so lately; or `stats` looks at it.

        The one before is read again should the newest be invalidated, however long ago it was published.
        """
        newer, newest, its = update.alias(), update.alias(), event.alias()
        same = (newer.c.feed == update.c.feed) & (newer.c.partition == update.c.partition)
        replaced = same & (newer.c.state == updates.PUBLISHED) & (newer.c.id > update.c.id)
        again = (newest.c.feed == newer.c.feed) & (newest.c.partition == newer.c.partition)
        again &= (newest.c.state == updates.PUBLISHED) & (newest.c.id > newer.c.id)
        replaced &= sa.exists().where(again, newest.c.id <= update_id(self.before)).correlate(newer)
        may_be_read = update.c.state.in_([updates.PUBLISHED, updates.INVALIDATED, updates.CLAIMED])
        may_be_read &= ~sa.exists().where(replaced).correlate(update)
        own = (its.c.feed == update.c.feed) & (its.c.partition == update.c.partition) & (its.c.marker == update.c.id)
        shown = sa.exists().where(own, _is_shown(its.c.feed, its.c.sequence, floors)).correlate(update)
        return may_be_read | shown


def _ids(row: sa.RowMapping) -> set[str]:
    recorded = events.recorded_of(row)
    return {recorded.correlation, *recorded.parents}


def _is_shown(feed: sa.ColumnElement[str], sequence: sa.ColumnElement[int], floors: sa.CTE) -> sa.ColumnElement[bool]:
    """Whether an event is among the newest of its table."""
    first = sa.cast(floors.c.first, sa.BigInteger)
    return sa.select(first).where(floors.c.feed == feed).scalar_subquery() <= sequence


def _waits() -> sa.ColumnElement[bool]:
    """Whether somebody has not consumed it, or has not been told of it as a partition of its does not exist yet."""
    at = (awaited.c.feed == event.c.feed) & (awaited.c.partition == event.c.partition)
    not_told = sa.exists().where(at, awaited.c.sequence <= event.c.sequence).correlate(event)
    return event.c.sequence.in_(sa.select(inbox.c.sequence)) | not_told


def _is_last() -> sa.ColumnElement[bool]:
    """Whether no later marker of its partition is there: the next one is judged by it.

    Of those that pass on an update of a feed, and all have its marker, the last is enough.
    """
    later = event.alias()
    after = (later.c.feed == event.c.feed) & (later.c.partition == event.c.partition)
    after &= (later.c.marker > event.c.marker) & forgetting.of_one_kind(later.c.marker, event.c.marker)
    # Two seeks: one condition of both would go through all that the partition has.
    is_update = sa.exists().where(_its_update()).correlate(event)
    return ~sa.exists().where(after).correlate(event) & ~(is_update & _is_passed_on())


def _its_update() -> sa.ColumnElement[bool]:
    """The update that an event tells of, if it is of a feed."""
    same = (update.c.feed == event.c.feed) & (update.c.partition == event.c.partition)
    return same & (update.c.id == event.c.marker)


def _is_passed_on() -> sa.ColumnElement[bool]:
    """Whether a later event has the same marker."""
    later = event.alias()
    same = sa.and_(*(later.c[name] == event.c[name] for name in ("feed", "partition", "marker")))
    # No bare column: the index by table and number would be taken, and gone through.
    return sa.exists().where(same, later.c.sequence + 0 > event.c.sequence).correlate(event)


def _is_of_a_batch() -> sa.ColumnElement[bool]:
    """Whether it tells of a batch of ours: each of these is current for as long as it is there."""
    mine = (batch.c.feed == event.c.feed) & (batch.c.partition == event.c.partition)
    return sa.exists().where(mine).correlate(event)


def _remove(connection: sa.Connection, going: Sequence[sa.RowMapping]) -> None:
    forgetting.forget(connection, going)
    for table in (taken, event):
        asked = wanted.rows(connection, ("sequence",), [[str(row["sequence"])] for row in going])
        gone = table.c.sequence.in_(sa.select(sa.cast(asked.c.sequence, sa.BigInteger)))
        connection.execute(sa.delete(table).where(gone))
