"""Number and bytes of the history runs requested today. All code locations and sensors of a ledger share it."""

import json
from collections.abc import Sequence
from datetime import date, datetime

import sqlalchemy as sa

from feed_assets.core.history import History, Spent, why_not
from feed_assets.ledger import due
from feed_assets.ledger.database import Ledger, get_cursor, insert_missing, put_cursors
from feed_assets.ledger.due import DueOutput
from feed_assets.ledger.tables import cursor

_CURSOR = "requested of history"


def spent(connection: sa.Connection, now: datetime) -> Spent:
    """Return what was spent on history runs on the day of `now` (UTC)."""
    return _parsed(get_cursor(connection, _CURSOR), now)


def claim(ledger: Ledger, ready: Sequence[DueOutput], before: Spent, after: Spent, now: datetime) -> bool:
    """Claim all `ready` outputs for run requests, and store the count `after`.

    Return False, and claim nothing, if the stored count is no longer `before` or an output has changed. This is one
    transaction. If the process is killed before Dagster has the runs, they are requested and counted again.
    """
    with ledger.write() as connection:
        if locked(connection, now) != before:
            return False
        if ready and len(due.still_as_read(connection, ready)) < len(ready):
            return False
        due.take(connection, ready, now)
        put(connection, after)
    return True


def put(connection: sa.Connection, count: Spent) -> None:
    """Store what was spent. The caller has called `locked` in the same transaction."""
    put_cursors(connection, {_CURSOR: _text(count)})


def spend(ledger: Ledger, history: History, size: int, now: datetime) -> str | None:
    """Count one history run that a person starts. If it may not start today, do not count it, and return the reason."""
    with ledger.write() as connection:
        before = locked(connection, now)
        why = why_not(history, before, size)
        put(connection, before.filled(history) if why else before.plus(1, size))
    return why


def locked(connection: sa.Connection, now: datetime) -> Spent:
    """Return the history that was requested today, and lock its row until the transaction ends.

    A transaction that also locks rows of `due` must lock this row first, to avoid a deadlock.
    """
    insert_missing(connection, cursor, [{"name": _CURSOR, "value": ""}])
    query = sa.select(cursor.c.value).where(cursor.c.name == _CURSOR).with_for_update()
    return _parsed(connection.execute(query).scalar_one(), now)


def _parsed(text: str | None, now: datetime) -> Spent:
    if not text:
        return Spent(date.min).on(now)
    day, runs, size, full = json.loads(text)
    return Spent(date.fromisoformat(day), runs, size, full).on(now)


def _text(count: Spent) -> str:
    return json.dumps([count.day.isoformat(), count.runs, count.bytes, count.full])
