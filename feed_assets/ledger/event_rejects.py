"""Rejected events: texts that are not valid events. Each text is stored once, with the reason."""

from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256

import sqlalchemy as sa

from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.core.limits import as_text
from feed_assets.ledger.database import Ledger, insert_missing
from feed_assets.ledger.tables import event_reject

REJECTS_KEPT = 10_000
"""Number of newest rejects that are kept for each source, to limit the ledger's size.

Rejects with the same time as the oldest kept reject also stay.
"""


def reject(connection: sa.Connection, source: str, rejected: Iterable[Rejected], now: datetime) -> None:
    """Store texts that are not events, each with the reason. A repeated text is stored once."""
    rows = [{"source": source, "digest": _digest(each), "raw": each.raw, "reason": each.reason} for each in rejected]
    insert_missing(connection, event_reject, [{**row, "at": now} for row in rows])
    if rows:
        of_source = event_reject.c.source == source
        oldest = sa.select(event_reject.c.at).where(of_source).order_by(event_reject.c.at.desc()).offset(REJECTS_KEPT)
        connection.execute(
            sa.delete(event_reject).where(of_source, event_reject.c.at < oldest.limit(1).scalar_subquery())
        )


def prune(ledger: Ledger, before: datetime, limit: int, *, apply: bool) -> int:
    """Remove the rejects from before a time, up to `limit` rows in each transaction. Return their number.

    This reads the whole table. The table is small, because at most about `REJECTS_KEPT` rows are kept for each source.
    """
    old, key = event_reject.c.at < before, (event_reject.c.source, event_reject.c.digest)
    with ledger.read() as connection:
        going = connection.execute(sa.select(sa.func.count()).where(old)).scalar_one()
    while apply:
        with ledger.write() as connection:
            condition = sa.tuple_(*key).in_(sa.select(*key).where(old).limit(limit))
            if not connection.execute(sa.delete(event_reject).where(condition)).rowcount:
                break
    return going


def _digest(rejected: Rejected) -> str:
    return sha256(rejected.raw.encode()).hexdigest()[:32]


def rejects(connection: sa.Connection, limit: int) -> tuple[tuple[str, Rejected, datetime], ...]:
    """Return the rejected events of all event sources, each with the reason, newest first."""
    rows = connection.execute(sa.select(event_reject).order_by(event_reject.c.at.desc()).limit(limit))
    return tuple((row.source, Rejected(row.raw, row.reason), row.at) for row in rows)


def in_json(new: WriteEvent) -> str:
    """Return an event as one line of JSON."""
    fields = {name: getattr(new, name) for name in WriteEvent.__annotations__}
    return as_text({**fields, "context": dict(new.context)})
