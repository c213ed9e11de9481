"""Changes that cannot be fanned out yet, and are retried.

Each row holds one changed partition that cannot be mapped to one reader's outputs yet. There are three reasons: the
partition does not exist yet, the time of an output has not come, or the reader's partition mapping raised an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import key_tables
from feed_assets.ledger.database import upsert
from feed_assets.ledger.due import LOOK_AGAIN
from feed_assets.ledger.tables import awaited


@dataclass(frozen=True)
class Awaited:
    """A changed partition that a subscriber must still get, from log number `sequence` on.

    `reason` is the error, if any.
    """

    subscriber: str
    partition: Partition
    sequence: int
    reason: str | None = None
    look_at: datetime | None = None
    """The time (UTC) of the next attempt to map the partition. If None, the next attempt follows after `LOOK_AGAIN`."""

    @property
    def edge(self) -> tuple[str, str]:
        """Return the subscription that still lacks the change: the subscriber and the feed."""
        return self.subscriber, str(self.partition.feed)


def put(connection: sa.Connection, absent: Iterable[Awaited], now: datetime) -> None:
    """Schedule the next attempts to map changed partitions to their subscribers.

    A row that exists keeps the log number of its first change.
    """
    rows = [
        {**_key(each), "sequence": each.sequence, "reason": each.reason, "look_at": each.look_at or now + LOOK_AGAIN}
        for each in absent
    ]
    upsert(connection, awaited, rows, ["look_at", "reason"])


def look(connection: sa.Connection, now: datetime) -> tuple[Awaited, ...]:
    """Return the changed partitions to map again to their subscribers now, in the order of the changes."""
    rows = connection.execute(sa.select(awaited).where(awaited.c.look_at <= now).order_by(awaited.c.sequence))
    return tuple(
        Awaited(row.subscriber, Partition(Feed.parse(row.feed), row.partition), row.sequence, row.reason)
        for row in rows
    )


def drop(connection: sa.Connection, looked: Sequence[Awaited]) -> list[Awaited]:
    """Delete the rows of changes that are now fanned out to their subscribers.

    Return only the rows that no other process had deleted before.
    """
    names = ("subscriber", "feed", "partition")
    key_table = key_tables.rows(connection, names, (tuple(_key(each).values()) for each in looked))
    key = [awaited.c[name] for name in names]
    condition = sa.tuple_(*key).in_(sa.select(*(key_table.c[name] for name in names)))
    gone = {(*row,) for row in connection.execute(sa.delete(awaited).where(condition).returning(*key))}
    return [each for each in looked if tuple(_key(each).values()) in gone]


def _key(each: Awaited) -> dict[str, str]:
    return {"subscriber": each.subscriber, "feed": str(each.partition.feed), "partition": each.partition.key}
