"""Quality as a fact: the newest state of each check of a partition, whoever reports it; its history is in the log.

Source: the global state store of the second article, "data quality as state".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log, wanted
from feed_assets.ledger.database import upsert
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import quality

PASSED, WARNED, FAILED = "passed", "warned", "failed"
"""States of a check. A failed one blocks what reads the partition, a warning does not."""


def report(
    connection: sa.Connection, partition: Partition, check: str, state: str, reason: str | None, by: str, now: datetime
) -> None:
    """Record the state of a check; the log hears of it if state or reason are other ones than before. Repeatable."""
    key = {"feed": str(partition.feed), "partition": partition.key, "check": check}
    same = sa.and_(*(quality.c[name] == value for name, value in key.items()))
    before = connection.execute(sa.select(quality.c.state, quality.c.reason).where(same)).first()
    row = {**key, "state": state, "reason": reason, "by": by, "at": now}
    upsert(connection, quality, [row], ["state", "reason", "by", "at"])
    if before is None or (before.state, before.reason) != (state, reason):
        was = before.state if before else None
        log.append(connection, [Change(partition, log.QUALITY, check, now, was, state, reason, by)])


def release(
    connection: sa.Connection, partitions: Iterable[Partition], by: str, now: datetime, why: str | None = None
) -> None:
    """Let every failed check of some partitions pass: what is published is good (again). Repeatable."""
    asked = wanted.partitions(connection, partitions)
    key = quality.c.feed, quality.c.partition, quality.c.check
    query = sa.select(*key).join(asked, wanted.same(quality, asked)).where(quality.c.state == FAILED)
    failed = connection.execute(query.order_by(*key)).mappings().all()
    values = {"state": PASSED, "reason": why, "by": by, "at": now}
    upsert(connection, quality, [{**row, **values} for row in failed], [*values])
    log.append(connection, [_passed(row, by, now, why) for row in failed])


def _passed(row: sa.RowMapping, by: str, now: datetime, why: str | None) -> Change:
    partition = Partition(Feed.parse(row["feed"]), row["partition"])
    return Change(partition, log.QUALITY, row["check"], now, FAILED, PASSED, why, by)


@dataclass(frozen=True)
class CheckState:
    """The newest state of a check, and the reason for it."""

    state: str
    reason: str | None


def known(connection: sa.Connection, partitions: Iterable[Partition]) -> dict[tuple[Partition, str], CheckState]:
    """The state of each check of some partitions, by partition and check."""
    asked = wanted.partitions(connection, partitions)
    rows = connection.execute(sa.select(quality).join(asked, wanted.same(quality, asked)))
    return {
        (Partition(Feed.parse(row.feed), row.partition), row.check): CheckState(row.state, row.reason) for row in rows
    }


def failed(connection: sa.Connection, partitions: Iterable[Partition]) -> Mapping[Partition, str]:
    """Those of some partitions of which a check has failed, with the reasons."""
    asked = wanted.partitions(connection, partitions)
    query = sa.select(quality).join(asked, wanted.same(quality, asked)).where(quality.c.state == FAILED)
    found: dict[Partition, list[str]] = {}
    for row in connection.execute(query.order_by(quality.c.check)):
        reasons = found.setdefault(Partition(Feed.parse(row.feed), row.partition), [])
        reasons.append(row.reason or f"check {row.check} failed")
    return {partition: "; ".join(dict.fromkeys(reasons)) for partition, reasons in found.items()}
