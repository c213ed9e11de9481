"""Requests with an idempotency key: the receiver that accepted each request, and the final answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets.ledger import key_tables
from feed_assets.ledger.database import insert_missing, upsert
from feed_assets.ledger.tables import idempotency

HOLDS = timedelta(days=7)
"""Time for which a repeated key counts as a repeat of its first request."""

At = tuple[str, str]
"""A feed, and the name of a partner with a key that it chose, such as `men/daily-2026-11-30`."""


@dataclass(frozen=True)
class Taken:
    """A key that a receiver has taken, with the digest of the request's body.

    `answer` is None until the request's events are published.
    """

    feed: str
    key: str
    digest: str
    receiver: str
    answer: str | None = None

    @property
    def at(self) -> At:
        """Return the feed and the key, which together identify the request."""
        return self.feed, self.key


def take(connection: sa.Connection, keys: Sequence[Taken], now: datetime) -> dict[At, Taken]:
    """Take keys that are free or expired. Return the current owner of each key."""
    forget(connection, now)
    insert_missing(connection, idempotency, [{**vars(each), "at": now} for each in keys])
    rows = key_tables.matching(connection, idempotency, (each.at for each in keys), ("feed", "key"))
    return {(row.feed, row.key): Taken(row.feed, row.key, row.digest, row.receiver, row.answer) for row in rows}


def answered(connection: sa.Connection, keys: Iterable[Taken], now: datetime) -> None:
    """Store answers, so that every receiver gives the same answer from now on. A repeated call changes nothing."""
    upsert(connection, idempotency, [{**vars(each), "at": now} for each in keys], ["answer"])


def forget(connection: sa.Connection, now: datetime) -> None:
    """Remove idempotency keys that have expired."""
    connection.execute(sa.delete(idempotency).where(idempotency.c.at < now - HOLDS))
