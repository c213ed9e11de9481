"""Which requests with an idempotency key were taken, by whom, and what was answered once that is sure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets.ledger import wanted
from feed_assets.ledger.database import insert_missing, upsert
from feed_assets.ledger.tables import idempotency

HOLDS = timedelta(days=7)
"""How long a key means the request that it came with first."""

At = tuple[str, str]
"""A feed, and a key of a partner's choice."""


@dataclass(frozen=True)
class Taken:
    """A key that a receiver has taken: the digest of the body, and the answer once its events are published."""

    feed: str
    key: str
    digest: str
    receiver: str
    answer: str | None = None

    @property
    def at(self) -> At:
        """What there is one of."""
        return self.feed, self.key


def take(connection: sa.Connection, asked: Sequence[Taken], now: datetime) -> dict[At, Taken]:
    """Take keys that nobody has, or that are too old; who has each of them now."""
    forget(connection, now)
    insert_missing(connection, idempotency, [{**vars(each), "at": now} for each in asked])
    rows = wanted.matching(connection, idempotency, (each.at for each in asked), ("feed", "key"))
    return {(row.feed, row.key): Taken(row.feed, row.key, row.digest, row.receiver, row.answer) for row in rows}


def answered(connection: sa.Connection, taken: Iterable[Taken], now: datetime) -> None:
    """Note what was answered: from here on every receiver gives the same answer. Repeatable."""
    upsert(connection, idempotency, [{**vars(each), "at": now} for each in taken], ["answer"])


def forget(connection: sa.Connection, now: datetime) -> None:
    """Remove keys that hold no longer."""
    connection.execute(sa.delete(idempotency).where(idempotency.c.at < now - HOLDS))
