"""Rows of the ledger about places that are down. All processes share the probes."""

from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from feed_assets.core.place_health import LOOK_EVERY, Health
from feed_assets.ledger.database import Ledger, insert_missing
from feed_assets.ledger.tables import place_health

_NAMES = [each.name for each in fields(Health)]


def health(connection: sa.Connection) -> dict[str, Health]:
    """Return the state of each place that was ever probed or marked."""
    return {row.place: _health(row) for row in connection.execute(sa.select(place_health))}


def _health(row: Any) -> Health:
    return Health(**{name: getattr(row, name) for name in _NAMES})


def mark(ledger: Ledger, place: str, why: str | None, by: str, now: datetime) -> None:
    """Mark a place down, or up with `why=None`."""
    with ledger.write() as connection:
        _put(connection, place, _locked(connection, place).marked(why, by, now))


def begin_look(ledger: Ledger, place: str, now: datetime) -> bool:
    """Return whether this process must probe a place now: nobody has done so for `LOOK_EVERY`.

    If the process is killed before it stores the result, the next probe follows after the same time.
    """
    last = place_health.c.looked
    is_old = last.is_(None) | (last <= now - LOOK_EVERY) | (last > now + LOOK_EVERY)
    with ledger.write() as connection:
        _locked(connection, place)
        own = sa.update(place_health).where(place_health.c.place == place, is_old).values(looked=now)
        return bool(connection.execute(own).rowcount)


def note_look(ledger: Ledger, place: str, error: str | None, now: datetime) -> tuple[Health, Health]:
    """Store the result of a probe. Return the states before and after it."""
    with ledger.write() as connection:
        before = _locked(connection, place)
        after = before.after(error, now)
        _put(connection, place, after)
    return before, after


def forget(connection: sa.Connection, place: str) -> None:
    """Remove what is recorded about a place."""
    connection.execute(sa.delete(place_health).where(place_health.c.place == place))


def _locked(connection: sa.Connection, place: str) -> Health:
    insert_missing(connection, place_health, [{"place": place, "failures": 0, "successes": 0}])
    row = connection.execute(sa.select(place_health).where(place_health.c.place == place).with_for_update()).one()
    return _health(row)


def _put(connection: sa.Connection, place: str, state: Health) -> None:
    values = {name: getattr(state, name) for name in _NAMES}
    connection.execute(sa.update(place_health).where(place_health.c.place == place).values(**values))
