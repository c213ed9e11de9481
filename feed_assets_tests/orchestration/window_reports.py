"""Reports of counts in windows."""

from datetime import UTC, datetime, timedelta

from feed_assets.core.feeds import Feed
from feed_assets.core.reports import Report
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.states.count_reports import report
from feed_assets.settings import settings

NOW = datetime(2026, 1, 20, tzinfo=UTC)
BASE = timedelta(minutes=5)


def moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d-%H:%M").replace(tzinfo=UTC)


_parts: list[int] = []


def report_counts(
    start: str,
    end: str,
    tier: str = "",
    count: int = 100,
    sub_partition: str = "",
    part: str = "",
    dataset: str = "web/foo",
) -> None:
    """Report `count` records in each base window between two moments."""
    first, last = moment(start), moment(end)
    windows = tuple((first + number * BASE, count) for number in range((last - first) // BASE))
    _parts.append(1)
    report(
        open_ledger(settings().ledger),
        [Report(Feed.parse(dataset), sub_partition, part or start, windows, tier, version=f"{len(_parts):020d}")],
        NOW,
    )


def report_complete(start: str, end: str, sub_partition: str = "") -> None:
    report_counts(start, end, "kafka", sub_partition=sub_partition)
    report_counts(start, end, sub_partition=sub_partition)
