"""Quality as a fact: the newest state of each check of a partition, whoever reports it; its history is in the log.

Source: the global state store of the second article, "data quality as state".
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log, wanted
from feed_assets.ledger.database import upsert
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import quality

PASSED, FAILED = "passed", "failed"


def report(
    connection: sa.Connection, partition: Partition, check: str, state: str, reason: str | None, by: str, now: datetime
) -> None:
    """Record the state of a check; the log hears of it if it is another one than before. Repeatable."""
    key = {"feed": str(partition.feed), "partition": partition.key, "check": check}
    same = sa.and_(*(quality.c[name] == value for name, value in key.items()))
    before = connection.execute(sa.select(quality.c.state).where(same)).scalar()
    row = {**key, "state": state, "reason": reason, "by": by, "at": now}
    upsert(connection, quality, [row], ["state", "reason", "by", "at"])
    if before != state:
        log.append(connection, [Change(partition, log.QUALITY, check, now, before, state, reason, by)])


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


def failed(connection: sa.Connection, partitions: Iterable[Partition]) -> Mapping[Partition, str]:
    """Those of some partitions of which a check has failed, with the reasons."""
    asked = wanted.partitions(connection, partitions)
    query = sa.select(quality).join(asked, wanted.same(quality, asked)).where(quality.c.state == FAILED)
    found: dict[Partition, list[str]] = {}
    for row in connection.execute(query.order_by(quality.c.check)):
        reasons = found.setdefault(Partition(Feed.parse(row.feed), row.partition), [])
        reasons.append(row.reason or f"check {row.check} failed")
    return {partition: "; ".join(dict.fromkeys(reasons)) for partition, reasons in found.items()}
