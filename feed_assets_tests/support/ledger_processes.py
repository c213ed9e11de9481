"""Functions that the ledger tests run in other processes."""

from datetime import UTC, datetime, timedelta

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report
from feed_assets.ledger import update_changes, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states import count_reports
from feed_assets_tests.support import feed_processes

NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
feed_processes.processes.set_forkserver_preload([feed_processes.__name__, __name__])
FEED = Feed.parse("ads/shown/v1.0")


def open_together(url: str, barrier) -> None:
    """Open a ledger at the same moment as other processes."""
    barrier.wait(60)
    open_ledger(url)


def change_many(url: str, writer: int, count: int, barrier) -> None:
    """Record updates, each in its own transaction, at the same time as other processes."""
    ledger = open_ledger(url)
    barrier.wait(60)
    for number in range(count):
        with ledger.change() as connection:
            partition = Partition(FEED, f"writer-{writer}/{number}")
            update_changes.insert(connection, partition, "20191125.060000", updates.FOREIGN, updates.PUBLISHED, NOW)


def report_many(url: str, writer: int, count: int, batch: int, barrier) -> None:
    """Report parts of a record in two windows each, among the same 48 windows, at the same time as other processes."""
    ledger = open_ledger(url)
    barrier.wait(60)
    for first in range(0, count, batch):
        count_reports.report(
            ledger, [_part(writer, number) for number in range(first, first + batch)], NOW, str(writer)
        )


def _part(writer: int, number: int) -> Report:
    starts = (NOW + timedelta(minutes=5 * ((number + shift) % 48)) for shift in (0, 7))
    return Report(FEED, "", f"writer-{writer}/{number}", tuple((start, 1) for start in sorted(starts)))
