"""API keys of the receiver, and what each key may write. The ledger stores only digests of keys."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.ledger.tables import api_key


@dataclass(frozen=True)
class KeyRow:
    """A key of a partner: `scopes` are the feeds and event sources that it may write; times in UTC."""

    id: str
    partner: str
    digest: str
    scopes: tuple[str, ...]
    made: datetime
    ends: datetime | None = None

    def holds(self, now: datetime) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.ends is None or now < self.ends


def every(connection: sa.Connection, partner: str | None = None) -> list[KeyRow]:
    """Return all keys, or the keys of one partner, ordered by partner and age. Ended keys are included."""
    query = sa.select(api_key).order_by(api_key.c.partner, api_key.c.made, api_key.c.id)
    query = query if partner is None else query.where(api_key.c.partner == partner)
    return [
        KeyRow(row.id, row.partner, row.digest, scopes=tuple(json.loads(row.scopes)), made=row.made, ends=row.ends)
        for row in connection.execute(query)
    ]


def add(connection: sa.Connection, new: KeyRow) -> None:
    """Store a key."""
    connection.execute(sa.insert(api_key).values({**vars(new), "scopes": json.dumps(new.scopes)}))


def end(connection: sa.Connection, ids: Collection[str], ends: datetime) -> None:
    """Make keys end at the given time, unless they end earlier."""
    earlier = api_key.c.ends.is_(None) | (api_key.c.ends > ends)
    connection.execute(sa.update(api_key).where(api_key.c.id.in_(sorted(ids)), earlier).values(ends=ends))
