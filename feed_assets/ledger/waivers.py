"""Problems of a partition that somebody has waived, so that its consumers go on. No state changes by it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log, wanted
from feed_assets.ledger.database import Ledger, upsert
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import waiver

WAIVER = "waiver"
"""What the log calls it, beside the names of checks."""


@dataclass(frozen=True)
class Waiver:
    """What somebody has waived: for another problem than this one consumers wait again. `at` is UTC."""

    problem: str
    why: str
    who: str
    at: datetime


def waive(ledger: Ledger, partition: Partition, problem: str, why: str, who: str, now: datetime) -> None:
    """Let the consumers of a partition, or of a window, go on in spite of a problem. Repeatable; the log keeps it."""
    with ledger.change() as connection:
        if waived(connection, [partition]).get(partition) == Waiver(problem, why, who, now):
            return
        row = {"feed": str(partition.feed), "partition": partition.key, "problem": problem}
        upsert(connection, waiver, [{**row, "why": why, "who": who, "at": now}], ["problem", "why", "who", "at"])
        said = f"{why} (waived: {problem})"
        log.append(connection, [Change(partition, log.QUALITY, WAIVER, now, None, "waived", said, who)])


def waived(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[Partition, Waiver]:
    """What was waived of some partitions: one seek for each."""
    asked = wanted.partitions(connection, partitions)
    rows = connection.execute(sa.select(waiver).join(asked, wanted.same(waiver, asked)))
    return {Partition(Feed.parse(row.feed), row.partition): _waiver(row) for row in rows}


def _waiver(row: sa.Row[tuple[str, ...]]) -> Waiver:
    return Waiver(row.problem, row.why, row.who, row.at)
