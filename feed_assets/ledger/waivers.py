"""Problems of a partition that somebody has waived, so that its consumers go on. No state changes by it."""

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
    """A problem that somebody waived, as it stood then: for anything more consumers wait again. `at` is UTC."""

    problem: str
    why: str
    who: str
    at: datetime


def waive(ledger: Ledger, partition: Partition, problem: str, why: str, who: str, now: datetime) -> None:
    """Let the consumers of a partition, or of a window, go on in spite of a problem. Log that. Repeatable."""
    with ledger.change() as connection:
        known = waived(connection, [partition]).get(partition)
        if known and (known.problem, known.why, known.who) == (problem, why, who):
            return
        key = {"feed": str(partition.feed), "partition": partition.key}
        values = {"problem": problem, "why": why, "who": who, "at": now, "position": log.last(connection)}
        upsert(connection, waiver, [{**key, **values}], [*values])
        said = f"{why} (waived: {problem})"
        log.append(connection, [Change(partition, log.QUALITY, WAIVER, now, None, "waived", said, who)])


def waived(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, Waiver]:
    """Return what was waived of some partitions, and still is: one seek for each."""
    asked = key_tables.partitions(connection, partitions)
    rows = connection.execute(sa.select(waiver).join(asked, key_tables.same(waiver, asked)).where(~_is_over()))
    return {Partition(Feed.parse(row.feed), row.partition): _waiver(row) for row in rows}


def _is_over() -> sa.ColumnElement[bool]:
    """Return whether the log has since then a check that failed anew, another state of the window, or other data.

    A mark with other words does not count, as its words are compared. First data are those that had the problem.
    """
    said = change.c.before.is_distinct_from(quality.MARKED) | (change.c.after != quality.MARKED)
    fails = (change.c.kind == log.QUALITY) & change.c.after.in_(quality.BLOCKING) & said
    earlier = change.alias()
    had_data = sa.exists().where(_of(earlier), _is_data(earlier), earlier.c.sequence <= waiver.c.position)
    is_other = _is_data(change) & had_data.correlate(waiver)
    later = _of(change) & (change.c.sequence > waiver.c.position)
    return sa.exists().where(later, fails | (change.c.kind == log.WINDOW) | is_other).correlate(waiver)


def _of(told: sa.FromClause) -> sa.ColumnElement[bool]:
    return (told.c.feed == waiver.c.feed) & (told.c.partition == waiver.c.partition)


def _is_data(told: sa.FromClause) -> sa.ColumnElement[bool]:
    return told.c.kind.in_((log.UPDATE, log.EVENT)) & told.c.after.is_distinct_from(log.PRUNED)


def _waiver(row: sa.Row[tuple[str, ...]]) -> Waiver:
    return Waiver(row.problem, row.why, row.who, row.at)
