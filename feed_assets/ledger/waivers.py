"""Waived problems of partitions, so that consumers proceed. A waiver changes no state."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import key_tables, log, quality
from feed_assets.ledger.database import Ledger, upsert
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import change, waiver

WAIVER = "waiver"
"""The name of a waiver in the log, beside the names of checks."""


@dataclass(frozen=True)
class Waiver:
    """A waived problem, with its text when it was waived. Consumers wait again for any other problem. `at` is UTC."""

    problem: str
    why: str
    by: str
    at: datetime


def waive(ledger: Ledger, partition: Partition, problem: str, why: str, by: str, now: datetime) -> None:
    """Waive a problem of a partition or window, so that its consumers proceed, and log it.

    A repeated call changes nothing.
    """
    with ledger.change() as connection:
        previous = waived(connection, [partition]).get(partition)
        if previous and (previous.problem, previous.why, previous.by) == (problem, why, by):
            return
        key = {"feed": str(partition.feed), "partition": partition.key}
        values = {"problem": problem, "why": why, "who": by, "at": now, "position": log.last(connection)}
        upsert(connection, waiver, [{**key, **values}], [*values])
        reason = f"{why} (waived: {problem})"
        log.append(connection, [Change(partition, log.QUALITY, WAIVER, at=now, after="waived", why=reason, who=by)])


def waived(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, Waiver]:
    """Return the waivers of partitions that are still in effect. Cost: one index lookup for each partition."""
    key_table = key_tables.partitions(connection, partitions)
    rows = connection.execute(
        sa.select(waiver).join(key_table, key_tables.same_keys(waiver, key_table)).where(~_is_over())
    )
    return {Partition(Feed.parse(row.feed), row.partition): _waiver(row) for row in rows}


def _is_over() -> sa.ColumnElement[bool]:
    """Return the condition that a waiver is over: a check failed again, or the window's state or the data changed.

    A mark says that an output was made of bad data. A new mark does not end a waiver here, because
    `core.facts.is_waived` compares the mark's text with the waived problem. If the partition had no data when the
    problem was waived, its first data do not end the waiver, either.
    """
    is_no_mark = change.c.before.is_distinct_from(quality.MARKED) | (change.c.after != quality.MARKED)
    fails = (change.c.kind == log.QUALITY) & change.c.after.in_(quality.BLOCKING) & is_no_mark
    earlier = change.alias()
    had_data = sa.exists().where(_of(earlier), _is_data(earlier), earlier.c.sequence <= waiver.c.position)
    is_other = _is_data(change) & had_data.correlate(waiver)
    later = _of(change) & (change.c.sequence > waiver.c.position)
    return sa.exists().where(later, fails | (change.c.kind == log.WINDOW) | is_other).correlate(waiver)


def _of(changes: sa.FromClause) -> sa.ColumnElement[bool]:
    return (changes.c.feed == waiver.c.feed) & (changes.c.partition == waiver.c.partition)


def _is_data(changes: sa.FromClause) -> sa.ColumnElement[bool]:
    return changes.c.kind.in_((log.UPDATE, log.EVENT)) & changes.c.after.is_distinct_from(log.PRUNED)


def _waiver(row: sa.Row[tuple[str, ...]]) -> Waiver:
    return Waiver(row.problem, row.why, row.who, row.at)
