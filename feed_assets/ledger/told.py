"""What waits and why, as Dagster is told of it: of each partition once, and again when it is another."""

from collections.abc import Collection
from itertools import islice

import sqlalchemy as sa

from feed_assets.core.feeds import Feed
from feed_assets.core.readiness import WAITING
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.due import COLUMNS, Listed, listed_of
from feed_assets.ledger.tables import due


def to_tell(ledger: Ledger, consumers: Collection[Feed], limit: int) -> list[Listed]:
    """What waits for another reason than was told last, of these consumers, at most so many; it counts as told.

    Whoever is killed before Dagster has stored it has not told it: `explain` says it all the same.
    """
    waits = due.c.state.in_([state.value for state in WAITING])
    query = sa.select(*COLUMNS).where(waits, due.c.told.is_distinct_from(due.c.reason))
    with ledger.read() as connection:
        rows = (listed_of(row) for row in connection.execute(query.order_by(due.c.feed, due.c.partition)))
        found = [*islice((each for each in rows if each.partition.feed in consumers), limit)]
    if found:
        with ledger.write() as connection:
            connection.execute(_telling(), [_row(each) for each in found])
    return found


def forget(ledger: Ledger, told: Collection[Listed]) -> None:
    """Count these as not told: Dagster has dropped what it was to be told."""
    if told:
        with ledger.write() as connection:
            connection.execute(_telling(), [_row(each) | {"its_reason": None} for each in told])


def _telling() -> sa.Update:
    mine = (due.c.feed == sa.bindparam("its_feed")) & (due.c.partition == sa.bindparam("its_key"))
    return sa.update(due).where(mine).values(told=sa.bindparam("its_reason"))


def _row(item: Listed) -> dict[str, str | None]:
    return {"its_feed": str(item.partition.feed), "its_key": item.partition.key, "its_reason": item.reason}
