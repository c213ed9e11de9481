"""Reasons for waiting that were reported to Dagster. A partition's reason is reported again when it changes."""

from collections.abc import Collection
from itertools import islice

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.core.readiness import WAITING
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import COLUMNS, DueOutput, listed_of
from feed_assets.ledger.tables import due


def to_tell(ledger: Ledger, consumers: Collection[Feed], limit: int) -> list[DueOutput]:
    """Return up to `limit` waiting partitions whose reason changed since Dagster last saw it. Mark them as reported.

    If the process is killed before Dagster stores a reason, the report is lost. `explain` still shows the reason.
    """
    waits = due.c.state.in_([state.value for state in WAITING])
    query = sa.select(*COLUMNS).where(waits, due.c.told.is_distinct_from(due.c.reason))
    with ledger.read() as connection:
        rows = (listed_of(row) for row in connection.execute(query.order_by(due.c.feed, due.c.partition)))
        items = [*islice((each for each in rows if each.partition.feed in consumers), limit)]
    if items:
        with ledger.write() as connection:
            connection.execute(_telling(), [_row(each) for each in items])
    return items


def forget(ledger: Ledger, items: Collection[DueOutput]) -> None:
    """Record that Dagster does not show why these outputs wait, because it dropped the report."""
    if items:
        with ledger.write() as connection:
            connection.execute(_telling(), [_row(each) | {"its_reason": None} for each in items])


def _telling() -> sa.Update:
    of_output = (due.c.feed == sa.bindparam("its_feed")) & (due.c.partition == sa.bindparam("its_key"))
    return sa.update(due).where(of_output).values(told=sa.bindparam("its_reason"))


def _row(item: DueOutput) -> dict[str, str | None]:
    return {"its_feed": str(item.partition.feed), "its_key": item.partition.key, "its_reason": item.reason}
