"""Partitions that were made again, until a report of them is kept for the channels of alerts.

Both are rows beside the alerts: whoever delivers those delivers reports, each channel once.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger.alerts import AGAIN, REPORT
from feed_assets.ledger.database import Ledger, insert_missing, upsert
from feed_assets.ledger.tables import alert


@dataclass(frozen=True)
class Report:
    """What is told once: of a dataset, under a name that is the same however often it is kept."""

    dataset: Feed
    name: str
    text: str
    receivers: tuple[str, ...]


def made_again(connection: sa.Connection, partition: Partition, now: datetime) -> None:
    """Note that a partition has another update. In the transaction that publishes: so its report cannot be lost."""
    name = f"{AGAIN}{partition.feed}|{partition.key}"
    upsert(connection, alert, [{"name": name, "opened": now, "resolved": now, "reason": ""}], ["opened", "resolved"])


def unreported(connection: sa.Connection) -> dict[Partition, datetime]:
    """The partitions that were made again and of which no report is kept yet, by when (UTC) that was."""
    query = sa.select(alert.c.name, alert.c.opened).where(alert.c.name.startswith(AGAIN)).order_by(alert.c.opened)
    rows = [(row.name.removeprefix(AGAIN).partition("|"), row.opened) for row in connection.execute(query)]
    return {Partition(Feed.parse(feed), key): opened for (feed, _, key), opened in rows}


def report(ledger: Ledger, reported: Mapping[Partition, datetime], reports: Iterable[Report], now: datetime) -> None:
    """Keep reports for the channels, in place of the notes of what they tell; what was made again since stays noted."""
    same = {"opened": now, "resolved": now}
    told = {f"{REPORT}{each.dataset}|{each.name}": each for each in reports}
    rows = [
        {**same, "name": name, "reason": each.text, "receivers": json.dumps(each.receivers)}
        for name, each in told.items()
    ]
    with ledger.write() as connection:
        for partition, opened in reported.items():
            mine = alert.c.name == f"{AGAIN}{partition.feed}|{partition.key}"
            connection.execute(sa.delete(alert).where(mine, alert.c.opened == opened))
        insert_missing(connection, alert, rows)
