"""The turn of one process to copy into a place: a lease in the ledger, renewed while the process works."""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Lock
from uuid import uuid4

import sqlalchemy as sa

from feed_assets.core.errors import TurnLost
from feed_assets.ledger.database import Ledger, insert_into
from feed_assets.ledger.tables import replica_place

LASTS = timedelta(minutes=2)
"""Time after which another process may go on, if the holder was killed. Clocks of hosts may differ by half of it."""

_RENEWED_AFTER = timedelta(seconds=20)
"""Age at which the turn is renewed. A reader or writer that is slower than `LASTS` for one chunk loses it."""


class Turn:
    """The turn of this process. Threads share it. `holder` is a word that no other turn has."""

    def __init__(self, ledger: Ledger, place: str, clock: Callable[[], datetime]) -> None:
        self._ledger, self._place, self._clock = ledger, place, clock
        self.holder, self._lock = uuid4().hex, Lock()
        self._taken: datetime | None = None

    def take(self) -> bool:
        """Take the turn. Return False if another process has it, or if the place is paused."""
        now = self._clock()
        is_free = replica_place.c.until.is_(None) | (replica_place.c.until <= now)
        row = {"place": self._place, "holder": self.holder, "until": now + LASTS}
        with self._ledger.write() as connection:
            insert = insert_into(connection, replica_place).values(row)
            values = {"holder": self.holder, "until": row["until"]}
            where = is_free & replica_place.c.paused.is_(None)
            upsert = insert.on_conflict_do_update(index_elements=["place"], set_=values, where=where)
            is_own = bool(connection.execute(upsert).rowcount)
        self._taken = now if is_own else None
        return is_own

    def take_or_raise(self) -> None:
        """Take the turn. Raise TurnLost if another process has it, or if the place is paused."""
        if not self.take():
            raise self._lost()

    def _renew(self) -> bool:
        """Prolong the turn. Return False if another process has had it since: what this one knows may be old."""
        now = self._clock()
        own = (replica_place.c.place == self._place) & (replica_place.c.holder == self.holder)
        renewed = sa.update(replica_place).where(own, replica_place.c.paused.is_(None)).values(until=now + LASTS)
        with self._ledger.write() as connection:
            is_own = bool(connection.execute(renewed).rowcount)
        self._taken = now if is_own else None
        return is_own

    def keep(self) -> None:
        """Renew the turn if that is due. Raise TurnLost if another process has had it, or if the place is paused."""
        with self._lock:
            is_fresh = self._taken is not None and self._clock() < self._taken + _RENEWED_AFTER
            if not is_fresh and not self._renew():
                raise self._lost()

    def check(self, connection: sa.Connection) -> None:
        """Raise TurnLost unless the ledger says that this process has the turn."""
        own = (replica_place.c.place == self._place) & (replica_place.c.holder == self.holder)
        own &= (replica_place.c.until > self._clock()) & replica_place.c.paused.is_(None)
        if not connection.scalar(sa.select(sa.exists().where(own))):
            raise self._lost()

    def end(self) -> None:
        """End the turn. If the process is killed, the turn ends when its time is over."""
        own = (replica_place.c.place == self._place) & (replica_place.c.holder == self.holder)
        with self._ledger.write() as connection:
            connection.execute(sa.update(replica_place).where(own).values(holder=None, until=None))

    def _lost(self) -> TurnLost:
        return TurnLost(
            f"this process does not have the turn to copy into the data center {self._place}: it is paused, or another "
            "process copies. The rest is copied later."
        )


def pause(ledger: Ledger, place: str, why: str | None, by: str, now: datetime) -> None:
    """Pause a place, or with `why=None` resume it. A copy in progress stops before it publishes."""
    values = {"paused": why, "paused_by": by if why else None, "paused_at": now if why else None}
    with ledger.write() as connection:
        insert = insert_into(connection, replica_place).values(place=place, **values)
        connection.execute(insert.on_conflict_do_update(index_elements=["place"], set_=values))


def why_paused(connection: sa.Connection, place: str) -> str | None:
    """Return why a place is paused. Return None if it is not."""
    return connection.scalar(sa.select(replica_place.c.paused).where(replica_place.c.place == place))
