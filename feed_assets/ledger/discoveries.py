"""Latest discovery of each code location: of which foreign feeds, at which stores, and when.

What it found is in the ledger as updates. So another code location on the same ledger needs no discovery of its own.
"""

import json
from collections.abc import Collection
from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets.ledger.database import Ledger, put_cursors
from feed_assets.ledger.tables import cursor

FRESH_FOR = timedelta(seconds=5)
"""Age up to which a code location uses the discovery of another: the daemon's interval between two ticks."""

_BY = "discovered by "


def put(ledger: Ledger, location: str, addresses: Collection[str], at: datetime, failed: Collection[str] = ()) -> None:
    """Record that a code location discovered feeds completely, by their addresses. `at` is when it began.

    `failed` are the addresses of feeds that it could not read.

    Call this after everything that was found is in the ledger. A process that is killed before then records nothing,
    and the other code locations discover for themselves.
    """
    value = json.dumps({"at": at.isoformat(), "addresses": sorted(addresses), "failed": sorted(failed)})
    with ledger.write() as connection:
        put_cursors(connection, {f"{_BY}{location}": value})


def fresh_by_others(connection: sa.Connection, location: str, now: datetime) -> set[str]:
    """Return the addresses that other code locations have discovered lately.

    A discovery from the future does not count, because a clock was wrong. A location's own discoveries do not count
    either: a code location that is alone discovers in each tick.
    """
    by_others = sa.select(cursor.c.value).where(cursor.c.name.startswith(_BY), cursor.c.name != f"{_BY}{location}")
    discoveries = [json.loads(value) for value in connection.execute(by_others).scalars()]
    fresh = [each for each in discoveries if now - FRESH_FOR < datetime.fromisoformat(each["at"]) <= now]
    return {address for each in fresh for address in each["addresses"]}


def failed_before(connection: sa.Connection, location: str) -> set[str]:
    """Return the addresses of the feeds that a code location could not read in its last discovery."""
    own = sa.select(cursor.c.value).where(cursor.c.name == f"{_BY}{location}")
    value = connection.execute(own).scalar()
    return {*json.loads(value).get("failed", [])} if value else set()
