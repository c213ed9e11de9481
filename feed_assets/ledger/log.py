"""The change log of the ledger: append-only, numbered in commit order.

Source: "Data Dependency Driven Orchestration", the global state store: "a log of state transitions that everything else
listens to".
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import bulk, key_tables
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.sessions import CHANGES
from feed_assets.ledger.tables import change, subscription

UPDATE, EVENT, QUALITY, WINDOW, UNCHANGED = "update", "event", "quality", "window", "unchanged"
"""Kinds of changes: of an update, a write event, a check, a window, and a run that left its dataset unchanged."""

COUNTED = "counted"
"""The kind for a change that stores how many records an update of another team has."""

CLOSED = "closed"
"""The kind for closing or reopening a partition: `after` is `closed`, `retired` or `open`."""

RUN = "run"
"""The kind for the start or end of a run."""

LATE = "late"
"""The kind for a decision (`after`) about late data. `subject` is the update after which the data arrived."""

NO_DATA = (RUN, LATE)
"""The kinds that change no data. Readers of data changes skip them."""

PUBLISHED, INVALIDATED, PRUNED = "published", "invalidated", "pruned"
"""The states of updates that the log contains."""

NO_WINDOWS: Mapping[Feed, str] = MappingProxyType({})

EVENTS_EACH = 500
"""Number of last changes among which every event is read.

Among the changes before these, only the last event of each partition is read.
"""


class Change(NamedTuple):
    """A change to append to the log: `subject` is an update id, marker or check; `before` and `after` are states."""

    partition: Partition
    kind: str
    subject: str
    at: datetime
    before: str | None = None
    after: str | None = None
    why: str | None = None
    who: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class LogEntry:
    """A change in the log, with its number."""

    sequence: int
    partition: Partition
    kind: str
    subject: str = ""
    before: str | None = None
    after: str | None = None
    who: str | None = None
    why: str | None = None


def append(connection: sa.Connection, changes: Sequence[Change]) -> int:
    """Append changes, and return the number of the first.

    Call this in a transaction of `Ledger.change()`. Its lock ensures that all changes with lower numbers are already
    committed. The last change is never pruned, so no number is used twice.
    """
    if connection.get_execution_options().get("write") != CHANGES:
        raise ValueError("a change outside of `Ledger.change()` would have no number in commit order.")
    first = last(connection) + 1
    if changes:
        bulk.insert(connection, change, [_row(number, each) for number, each in enumerate(changes, first)])
    return first


def _row(sequence: int, new: Change) -> dict[str, object]:
    partition = new.partition
    return {**new._asdict(), "sequence": sequence, "feed": str(partition.feed), "partition": partition.key}


def last(connection: sa.Connection) -> int:
    """Return the number of the last committed change."""
    return connection.execute(_LAST).scalar() or 0


_LAST = sa.select(sa.func.max(change.c.sequence))


def moment(connection: sa.Connection, sequence: int) -> datetime | None:
    """Return the time (UTC) of the change with this number. Return None if it does not exist or was pruned."""
    return connection.execute(sa.select(change.c.at).where(change.c.sequence == sequence)).scalar()


def newest(
    connection: sa.Connection,
    kind: str,
    sequence: int,
    upto: int,
    limit: int,
    feeds: Collection[Feed],
    windows: Mapping[Feed, str] = NO_WINDOWS,
) -> tuple[LogEntry, ...]:
    """Return the changes of a kind in `(sequence, upto]`, in order, without overtaken ones.

    A later change overtakes an earlier change of the same partition and kind (for checks: of the same check). Two kinds
    of changes are never overtaken: invalidations, and events among the last `EVENTS_EACH` changes. Prunes are skipped
    and overtake nothing. Only changes of `feeds` are returned. For feeds in `windows`, changes of windows of the given
    grain are returned, too.
    """
    parameters = {"kind": kind, "feeds": sorted(map(str, feeds)), "start": sequence, "upto": upto, "most": limit}
    parameters |= key_tables.row_parameter((str(feed), grain) for feed, grain in windows.items())
    query = _newest(connection.dialect.name, bool(windows))
    return tuple(_numbered(row) for row in connection.execute(query, parameters))


@cache
def _newest(dialect: str, with_windows: bool) -> sa.Select[Any]:
    """Build the query for the newest log entry of each partition and kind of change.

    The query is cached, because each tick runs it several times.
    """
    kind, upto = sa.bindparam("kind", type_=sa.String), sa.bindparam("upto", type_=sa.BigInteger)
    condition = change.c.feed.in_(sa.bindparam("feeds", expanding=True)) & (change.c.sequence > sa.bindparam("start"))
    recent_event = (change.c.kind == EVENT) & (change.c.sequence > upto - EVENTS_EACH)
    kept = ~_overtaken() | recent_event | (change.c.after == INVALIDATED)
    of_kind = change.c.kind == kind
    if with_windows:
        of_grain = (
            sa.exists()
            .where(key_tables.same_keys(change, key_tables.table(dialect, ("feed", "subject"))))
            .correlate(change)
        )
        of_kind |= (change.c.kind == WINDOW) & of_grain
    kept &= of_kind & change.c.after.is_distinct_from(PRUNED)
    query = sa.select(*_COLUMNS).where(condition, change.c.sequence <= upto, kept).order_by(change.c.sequence)
    return query.limit(sa.bindparam("most", type_=sa.BigInteger))


def newest_of(connection: sa.Connection, sequences: Collection[int]) -> tuple[LogEntry, ...]:
    """Return the changes with these numbers, in order, without overtaken ones (see `newest`).

    Events are never left out.
    """
    kept = ~_overtaken() | (change.c.after == INVALIDATED) | (change.c.kind == EVENT)
    query = sa.select(*_COLUMNS).where(_numbered_so(connection, sequences), kept).order_by(change.c.sequence)
    return tuple(_numbered(row) for row in connection.execute(query)) if sequences else ()


def last_of(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, int]:
    """Return the number of the last data change of each partition, or 0 if there is none.

    Cost: one index lookup for each partition.
    """
    key_table = key_tables.partitions(connection, partitions)
    of_data = key_tables.same_keys(change, key_table) & change.c.kind.not_in(NO_DATA)
    last = sa.select(sa.func.max(change.c.sequence)).where(of_data).scalar_subquery()
    rows = connection.execute(sa.select(key_table.c.feed, key_table.c.partition, last))
    return {Partition(Feed.parse(feed), key): number or 0 for feed, key, number in rows}


def after(
    connection: sa.Connection, sequence: int, upto: int, limit: int, feeds: Collection[Feed] | None = None
) -> tuple[LogEntry, ...]:
    """Return the data changes in `(sequence, upto]`, of some feeds or of all, in order."""
    of_data = change.c.kind.not_in(NO_DATA)
    query = sa.select(*_COLUMNS).where(change.c.sequence > sequence, change.c.sequence <= upto, of_data)
    if feeds is not None:
        query = query.where(change.c.feed.in_(sorted(map(str, feeds))))
    return tuple(_numbered(row) for row in connection.execute(query.order_by(change.c.sequence).limit(limit)))


def has_after(connection: sa.Connection, sequence: int) -> bool:
    """Return whether there is a data change with a greater number."""
    of_data = change.c.kind.not_in(NO_DATA)
    return bool(connection.scalar(sa.select(sa.exists().where(change.c.sequence > sequence, of_data))))


_COLUMNS: list[sa.ColumnElement[Any]] = [
    change.c[name] for name in ("sequence", "feed", "partition", "kind", "subject", "before", "after", "who", "why")
]


def _numbered(row: sa.Row[Any]) -> LogEntry:
    partition = Partition(Feed.parse(row.feed), row.partition)
    return LogEntry(
        row.sequence,
        partition,
        row.kind,
        subject=row.subject,
        before=row.before,
        after=row.after,
        who=row.who,
        why=row.why,
    )


@cache
def _overtaken() -> sa.ColumnElement[bool]:
    """Return the SQL condition that the log has a later entry for the same partition, kind of change and check.

    A later prune does not count.
    """
    later = change.alias()
    same_subject = (later.c.feed == change.c.feed) & (later.c.partition == change.c.partition)
    same_subject &= (change.c.kind != QUALITY) | (later.c.subject == change.c.subject)
    same_subject &= (later.c.kind == change.c.kind) & later.c.after.is_distinct_from(PRUNED)
    return sa.exists().where(same_subject, later.c.sequence > change.c.sequence)


def goes(before: datetime) -> sa.ColumnElement[bool]:
    """Return the SQL condition that a log change can be pruned.

    Such a change is old, every subscriber has read it, and a later change of the same subject follows. So the last
    change of each subject stays, as a snapshot for new subscribers. If there are no subscribers, nothing is pruned.
    """
    everybody_has = sa.select(sa.func.coalesce(sa.func.min(subscription.c.position), 0)).scalar_subquery()
    return (change.c.at < before) & (change.c.sequence <= everybody_has) & _overtaken()


def last_before(connection: sa.Connection, moment: datetime) -> int:
    """Return the number of the last change before a time. Search by bisection, with one index lookup for each step.

    If the clocks of processes differ, times do not always grow with the numbers, and the result is not exact. This does
    no harm, because a removal checks the age of each change again: at worst some rows stay until a later day.
    """
    low, high = 0, last(connection)
    while low < high:
        middle = (low + high) // 2
        query = sa.select(change.c.sequence, change.c.at).where(change.c.sequence > middle)
        following = connection.execute(query.order_by(change.c.sequence).limit(1)).one()
        if following.at < moment:
            low = following.sequence
        else:
            high = middle
    return low


def prune_some(
    ledger: Ledger, before: datetime, after: int, upto: int, limit: int, *, apply: bool
) -> tuple[int, int | None]:
    """Search the next `limit` changes in `(after, upto]`, and prune those that may be pruned.

    Return the number of pruned changes, and the last number searched (None at the end). Changes are searched without a
    lock, and checked again on removal. Without `apply` they are only counted.
    """
    in_range = (change.c.sequence > after) & (change.c.sequence <= upto)
    query = sa.select(change.c.sequence, goes(before)).where(in_range).order_by(change.c.sequence).limit(limit)
    with ledger.read() as connection:
        looked = [*connection.execute(query)]
    going = [number for number, each in looked if each]
    if going and apply:
        with ledger.write() as connection:
            connection.execute(sa.delete(change).where(_numbered_so(connection, going), goes(before)))
    return len(going), looked[-1].sequence if len(looked) == limit else None


def _numbered_so(connection: sa.Connection, sequences: Collection[int]) -> sa.ColumnElement[bool]:
    key_table = key_tables.rows(connection, ("sequence",), [[str(each)] for each in sequences])
    return change.c.sequence.in_(sa.select(sa.cast(key_table.c.sequence, sa.BigInteger)))
