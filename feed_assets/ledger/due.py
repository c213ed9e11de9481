"""The partitions that a change may have made buildable: decided again until they are current.

Its size is what is new or incomplete, never the history. Staleness is a level: a row goes only when the
decision says 'current', so that a lost request, a failed run or a killed process is asked for again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State, Verdict
from feed_assets.ledger.database import Ledger, get_cursor, put_cursor
from feed_assets.ledger.tables import due

FANNED_OUT = "fanned out"


@dataclass(frozen=True)
class Due:
    """An output to decide about, and the number of the change that put it here."""

    output: Partition
    changed: int


def _is(output: Partition) -> sa.ColumnElement[bool]:
    return (due.c.feed == str(output.feed)) & (due.c.partition == output.key)


def fanned_out(connection: sa.Connection) -> int:
    """The number of the last change whose consumers were put on the list."""
    return int(get_cursor(connection, FANNED_OUT) or 0)


def fan_out(ledger: Ledger, affected: Iterable[Due], upto: int, now: datetime) -> None:
    """Put the outputs that changes affect on the list, and move the cursor, in one transaction."""
    with ledger.write() as connection:
        for item in affected:
            _wake(connection, item, now)
        put_cursor(connection, FANNED_OUT, str(max(upto, fanned_out(connection))))


def _wake(connection: sa.Connection, item: Due, now: datetime) -> None:
    values = {"changed": item.changed, "look_at": now}
    if connection.execute(sa.update(due).where(_is(item.output)).values(values)).rowcount == 0:
        key = {"feed": str(item.output.feed), "partition": item.output.key}
        connection.execute(sa.insert(due).values({**key, **values, "since": now}))


def look(connection: sa.Connection, now: datetime, limit: int, feed: Feed | None = None) -> tuple[Due, ...]:
    """The outputs to decide about now, those that have waited longest first."""
    query = sa.select(due.c.feed, due.c.partition, due.c.changed).where(due.c.look_at <= now)
    if feed:
        query = query.where(due.c.feed == str(feed))
    rows = connection.execute(query.order_by(due.c.look_at, due.c.feed, due.c.partition).limit(limit))
    return tuple(Due(Partition(Feed.parse(feed), key), changed) for feed, key, changed in rows)


def settle(ledger: Ledger, decided: Sequence[tuple[Due, Verdict]], now: datetime) -> None:
    """Keep the verdicts: 'current' leaves the list, what waits is not looked at until something changes.

    Only where no later change came in between: it would be lost otherwise.
    """
    with ledger.write() as connection:
        for item, verdict in decided:
            mine = _is(item.output) & (due.c.changed == item.changed)
            if verdict.state is State.CURRENT:
                connection.execute(sa.delete(due).where(mine))
            else:
                look_at = now if verdict.state in (State.BUILD, State.REBUILD) else verdict.look_again
                values = {"look_at": look_at, "state": verdict.state.value, "reason": verdict.reason}
                connection.execute(sa.update(due).where(mine).values(values))
