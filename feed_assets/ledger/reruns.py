"""Updates that replaced others, until a report of them is kept for the channels of alerts.

Both are rows beside the alerts: whoever delivers those delivers reports, each channel once.
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
    """A partition that was made again, and the update that it has got by that."""

    partition: Partition
    update: str

    @property
    def note(self) -> str:
        """The name of its row."""
        return f"{AGAIN}{self.partition.feed}|{self.update}|{self.partition.key}"


@dataclass(frozen=True)
class Report:
    """What is told once: of a dataset, under a name that is the same however often it is kept."""

    dataset: Feed
    name: str
    text: str
    receivers: tuple[str, ...]


def made_again(connection: sa.Connection, again: Again, now: datetime) -> None:
    """Note that a partition has another update. In the transaction that publishes: so its report cannot be lost."""
    insert_missing(connection, alert, [{"name": again.note, "opened": now, "resolved": now, "reason": ""}])


def unreported(connection: sa.Connection) -> tuple[Again, ...]:
    """What was made again and of which no report is kept yet, oldest first."""
    query = sa.select(alert.c.name).where(alert.c.name.startswith(AGAIN)).order_by(alert.c.opened, alert.c.name)
    names = [name.removeprefix(AGAIN).split("|", 2) for name in connection.execute(query).scalars()]
    return tuple(Again(Partition(Feed.parse(feed), key), update) for feed, update, key in names)


def report(ledger: Ledger, reported: Iterable[Again], reports: Iterable[Report], now: datetime) -> None:
    """Keep reports for the channels, in place of the notes of what they tell; what was made again since stays noted.

    Of two ticks at once the second one finds notes gone, and keeps nothing: what is left is told by the next one.
    """
    notes = {each.note for each in reported}
    told = {f"{REPORT}{each.dataset}|{each.name}": each for each in reports}
    same = {"opened": now, "resolved": now}
    rows = [
        {**same, "name": name, "reason": each.text, "receivers": json.dumps(each.receivers)}
        for name, each in told.items()
    ]
    mine = alert.c.name.in_(notes)
    with ledger.change() as connection:  # Where these queue.
        if connection.execute(sa.select(sa.func.count()).where(mine)).scalar() == len(notes):
            connection.execute(sa.delete(alert).where(mine))
            insert_missing(connection, alert, rows)
