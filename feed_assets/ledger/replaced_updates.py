"""Updates that replaced others, until a report of them is stored for the channels of alerts.

Both are rows beside the alerts: what delivers alerts also delivers reports, each channel once.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.alerts import AGAIN, REPORT
from feed_assets.ledger.database import Ledger, insert_missing
from feed_assets.ledger.tables import alert


@dataclass(frozen=True, order=True)
class Again:
    """A partition that was made again, and its new update."""

    partition: Partition
    update: str

    @property
    def note(self) -> str:
        """Return the name of its row."""
        return f"{AGAIN}{self.partition.feed}|{self.update}|{self.partition.key}"


@dataclass(frozen=True)
class RerunReport:
    """A report about a dataset, delivered once. Its name is the same however often it is stored."""

    dataset: Feed
    name: str
    text: str
    receivers: tuple[str, ...]


def made_again(connection: sa.Connection, again: Again, now: datetime) -> None:
    """Note that a partition has another update, in the transaction that publishes it: so its report cannot be lost."""
    insert_missing(connection, alert, [{"name": again.note, "opened": now, "resolved": now, "reason": ""}])


def unreported(connection: sa.Connection) -> tuple[Again, ...]:
    """Return what was made again and has no stored report yet, oldest first."""
    query = sa.select(alert.c.name).where(alert.c.name.startswith(AGAIN)).order_by(alert.c.opened, alert.c.name)
    names = [name.removeprefix(AGAIN).split("|", 2) for name in connection.execute(query).scalars()]
    return tuple(Again(Partition(Feed.parse(feed), key), update) for feed, update, key in names)


def report(ledger: Ledger, reported: Iterable[Again], reports: Iterable[RerunReport], now: datetime) -> None:
    """Store reports for the channels, in place of the notes that they cover. Notes from since then stay.

    If two ticks do so at once, the second one finds notes gone, and stores nothing: the next one reports what is left.
    """
    notes = {each.note for each in reported}
    report_by_name = {f"{REPORT}{each.dataset}|{each.name}": each for each in reports}
    times = {"opened": now, "resolved": now}
    rows = [
        {**times, "name": name, "reason": each.text, "receivers": json.dumps(each.receivers)}
        for name, each in report_by_name.items()
    ]
    is_covered = alert.c.name.in_(notes)
    with ledger.change() as connection:  # These queue.
        if connection.execute(sa.select(sa.func.count()).where(is_covered)).scalar() == len(notes):
            connection.execute(sa.delete(alert).where(is_covered))
            insert_missing(connection, alert, rows)
