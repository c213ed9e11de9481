"""The partitions that a change may have made buildable: decided again until they are current.

Its size is what is new or incomplete, never the history. Staleness is a level: a row goes only when the
decision says 'current', so that a lost request, a failed run or a killed process is asked for again.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.launching import wait_after
from feed_assets.core.readiness import State, Verdict
from feed_assets.ledger.database import Ledger, get_cursor, put_cursor
from feed_assets.ledger.tables import due, inbox, update

AWAIT = timedelta(minutes=5)
"""How often an input's partition that does not exist yet, such as the day that is not over, is looked at again."""

NOT_YET, UNDECIDED = "no partition yet", "cannot be decided"
"""In place of a verdict's state: it is no partition, or what one must know to decide cannot be had."""


@dataclass(frozen=True)
class Due:
    """An output of `consumer` to decide about; or, `awaited`, an input's partition that does not exist yet.

    `changed` is the number of the change that put it here, `requested` how many runs were requested since.
    """

    consumer: Feed
    partition: Partition
    changed: int
    requested: int = 0
    why_not: str | None = field(default=None, compare=False)
    """What was raised when it was to be decided about."""

    @property
    def awaited(self) -> bool:
        """Whether it is an input's partition."""
        return self.partition.feed != self.consumer

    @property
    def key(self) -> str:
        """What the column `partition` holds; no name has a `|` in it."""
        return f"{self.partition.feed}|{self.partition.key}" if self.awaited else self.partition.key


def _is(item: Due) -> sa.ColumnElement[bool]:
    return (due.c.feed == str(item.consumer)) & (due.c.partition == item.key) & (due.c.awaited == item.awaited)


def _cursor(consumer: Feed) -> str:
    return f"fanned out to {consumer}"


def fanned_out(connection: sa.Connection, consumer: Feed) -> int:
    """The number of the last change that a consumer has been told of; a new consumer starts at the first."""
    return int(get_cursor(connection, _cursor(consumer)) or 0)


def fan_out(ledger: Ledger, consumer: Feed, affected: Iterable[Due], upto: int, now: datetime) -> None:
    """Put what changes affect on the list, and move the consumer's cursor, in one transaction."""
    with ledger.write() as connection:
        for item in affected:
            wake(connection, item, now)
        put_cursor(connection, _cursor(consumer), str(max(upto, fanned_out(connection, consumer))))


def wake(connection: sa.Connection, item: Due, now: datetime) -> None:
    """Put an item on the list, to be decided about now."""
    # Never a lower number: another process may be ahead, and its change would be settled with this one.
    changed = sa.case((due.c.changed > item.changed, due.c.changed), else_=item.changed)
    if (
        connection.execute(sa.update(due).where(_is(item)).values(changed=changed, look_at=now, requested=0)).rowcount
        == 0
    ):
        key = {"feed": str(item.consumer), "partition": item.key, "awaited": item.awaited}
        connection.execute(sa.insert(due).values(**key, changed=item.changed, requested=0, look_at=now, since=now))
    if item.why_not:
        connection.execute(sa.update(due).where(_is(item)).values(state=UNDECIDED, reason=item.why_not))


def look(connection: sa.Connection, consumers: Collection[Feed], now: datetime, limit: int) -> tuple[Due, ...]:
    """What to decide about now, what has waited longest first."""
    query = sa.select(due.c.feed, due.c.partition, due.c.awaited, due.c.changed, due.c.requested)
    query = query.where(due.c.feed.in_(sorted(map(str, consumers))), due.c.look_at <= now)
    rows = connection.execute(query.order_by(due.c.look_at, due.c.feed, due.c.partition).limit(limit))
    return tuple(_of(row) for row in rows)


def _of(row: Any) -> Due:
    consumer = Feed.parse(row.feed)
    feed, _, key = row.partition.rpartition("|")
    return Due(consumer, Partition(Feed.parse(feed) if row.awaited else consumer, key), row.changed, row.requested)


@dataclass(frozen=True)
class Listed:
    """An output on the list, as it was last decided; `since` is when it came there (UTC)."""

    partition: str
    state: str | None
    reason: str | None
    since: datetime
    requested: int
    """Runs that were requested since the last change."""
    look_at: datetime | None
    """When it is decided about again, and its next run requested; None if that takes a change."""


def listed(connection: sa.Connection, consumer: Feed) -> tuple[Listed, ...]:
    """What is on the list of a consumer."""
    query = sa.select(due.c.partition, due.c.state, due.c.reason, due.c.since, due.c.requested, due.c.look_at)
    rows = connection.execute(query.where(due.c.feed == str(consumer)).order_by(due.c.partition))
    return tuple(Listed(*row) for row in rows)


def to_rebuild(connection: sa.Connection, limit: int) -> dict[Feed, list[str]]:
    """By dataset the keys whose kept verdict is 'rebuild', at most so many of each: what was decided first comes first.

    Without those whose own updates have changed since: a run has published or failed, and no tick has decided again.
    """
    own = (update.c.feed == due.c.feed) & (update.c.partition == due.c.partition) & (update.c.state != "pruned")
    since = sa.exists().where(own, update.c.changed > due.c.changed)
    turn = sa.func.row_number().over(partition_by=due.c.feed, order_by=(due.c.look_at, due.c.partition))
    stale = sa.select(due.c.feed, due.c.partition, turn.label("turn"))
    stale = stale.where(due.c.state == State.REBUILD.value, ~due.c.awaited, ~since).subquery()
    found: dict[Feed, list[str]] = {}
    query = sa.select(stale.c.feed, stale.c.partition).where(stale.c.turn <= limit)
    for feed, key in connection.execute(query.order_by(stale.c.feed, stale.c.turn)):
        found.setdefault(Feed.parse(feed), []).append(key)
    return found


def settle(ledger: Ledger, decided: Sequence[tuple[Due, Verdict]], now: datetime) -> None:
    """Keep the verdicts: 'current' leaves the list, what waits is not looked at until something changes.

    Only where no later change came in between: it would be lost otherwise.
    """
    with ledger.write() as connection:
        for item, verdict in decided:
            same = _is(item) & (due.c.changed == item.changed)
            if verdict.state is State.CURRENT:
                connection.execute(sa.delete(due).where(same))
            else:
                look_at = now if verdict.state in (State.BUILD, State.REBUILD) else verdict.look_again
                values = {"look_at": look_at, "state": verdict.state.value, "reason": verdict.reason}
                connection.execute(sa.update(due).where(same).values(values))


def space_out(ledger: Ledger, requested: Iterable[Due], now: datetime) -> None:
    """Leave these alone for a while, as a run of each is being requested.

    A run that begins and ends ends the wait (`runs.end`, or the change that it makes); one that never begins, or is
    killed, is requested again after it.
    """
    with ledger.write() as connection:
        for item in requested:
            values = {"requested": item.requested + 1, "look_at": now + wait_after(item.requested)}
            connection.execute(sa.update(due).where(_is(item), due.c.changed == item.changed).values(values))


def end_waits(ledger: Ledger, now: datetime) -> None:
    """Look now at everything whose run was requested: whoever did it is dead, and so are its requests."""
    with ledger.write() as connection:
        connection.execute(sa.update(due).where(due.c.requested > 0, due.c.look_at > now).values(look_at=now))


def await_again(ledger: Ledger, items: Iterable[Due], now: datetime) -> None:
    """Look again later at what is no partition yet, or cannot be decided about."""
    with ledger.write() as connection:
        for item in items:
            values = {"state": UNDECIDED if item.why_not else NOT_YET, "reason": item.why_not, "look_at": now + AWAIT}
            connection.execute(sa.update(due).where(_is(item)).values(values))


def undecided(connection: sa.Connection, consumers: Collection[Feed]) -> dict[Feed, str]:
    """By consumer why something of it cannot be decided about."""
    mine = (due.c.state == UNDECIDED) & due.c.feed.in_(sorted(map(str, consumers)))
    query = sa.select(due.c.feed, sa.func.min(due.c.reason)).where(mine).group_by(due.c.feed).order_by(due.c.feed)
    return {Feed.parse(feed): reason for feed, reason in connection.execute(query)}


def arrived(ledger: Ledger, item: Due, affected: Sequence[Due], now: datetime) -> None:
    """An input's partition has come into being: put its outputs on the list in its place."""
    with ledger.write() as connection:
        connection.execute(sa.delete(due).where(_is(item) & (due.c.changed == item.changed)))
        _readdress(connection, item, affected)
        for each in affected:
            wake(connection, each, now)


def _readdress(connection: sa.Connection, item: Due, outputs: Sequence[Due]) -> None:
    """Events that waited for the input's partition go to the outputs that it concerns."""
    waited = (inbox.c.feed == str(item.consumer)) & (inbox.c.partition == item.key)
    for each in outputs:
        moved = sa.select(inbox.c.feed, sa.literal(each.key), inbox.c.sequence).where(waited)
        connection.execute(sa.insert(inbox).from_select(["feed", "partition", "sequence"], moved))
    connection.execute(sa.delete(inbox).where(waited))
