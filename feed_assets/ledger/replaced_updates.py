"""Notes about updates that replaced earlier updates, and reports about them for the channels of alerts.

Notes and reports are rows of the table `alert`. Reports are delivered like alerts, once on each channel.
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
    """A note that a partition was built again, with the id of its new update."""

    partition: Partition
    update: str

    @property
    def note(self) -> str:
        """Return the name under which this note is stored."""
        return f"{AGAIN}{self.partition.feed}|{self.update}|{self.partition.key}"


@dataclass(frozen=True)
class RerunReport:
    """A report to people about the re-run of a dataset's partition.

    Its name identifies it, so that it is stored and delivered only once.
    """

    dataset: Feed
    name: str
    text: str
    receivers: tuple[str, ...]


def made_again(connection: sa.Connection, again: Again, now: datetime) -> None:
    """Store a note that a partition was built again. Call this in the publishing transaction, so no note is lost."""
    insert_missing(connection, alert, [{"name": again.note, "opened": now, "resolved": now, "reason": ""}])


def unreported(connection: sa.Connection) -> tuple[Again, ...]:
    """Return the notes about rebuilt partitions for which no report was stored yet, oldest first."""
    query = sa.select(alert.c.name).where(alert.c.name.startswith(AGAIN)).order_by(alert.c.opened, alert.c.name)
    names = [name.removeprefix(AGAIN).split("|", 2) for name in connection.execute(query).scalars()]
    return tuple(Again(Partition(Feed.parse(feed), key), update) for feed, update, key in names)


def report(ledger: Ledger, reported: Iterable[Again], reports: Iterable[RerunReport], now: datetime) -> None:
    """Replace notes by reports for the channels. Newer notes stay.

    If two ticks do this at once, the second tick finds that notes are missing, and stores nothing. The next tick
    reports the remaining notes.
    """
    notes = {each.note for each in reported}
    report_by_name = {f"{REPORT}{each.dataset}|{each.name}": each for each in reports}
    times = {"opened": now, "resolved": now}
    rows = [
        {**times, "name": name, "reason": each.text, "receivers": json.dumps(each.receivers)}
        for name, each in report_by_name.items()
    ]
    is_covered = alert.c.name.in_(notes)
    with ledger.change() as connection:  # These transactions run one by one, so only one of two ticks finds the notes.
        if connection.execute(sa.select(sa.func.count()).where(is_covered)).scalar() == len(notes):
            connection.execute(sa.delete(alert).where(is_covered))
            insert_missing(connection, alert, rows)
