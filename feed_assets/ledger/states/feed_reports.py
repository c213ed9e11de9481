"""Count reports by feed_assets itself: the counter reads the log, and reports each partition's newest valid update.

The check results of a partition are reported, too, for the windows that the partition fills.

The counter is a subscriber of the log, so its work depends only on the number of changes. The counter serves only the
feeds that its own code location declares.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from feed_assets.core.errors import PartitionClosed
from feed_assets.core.events import encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.reports import Report, counts_of, windows_of
from feed_assets.core.sub_partitions import Tracked
from feed_assets.core.windows import FIRST_YEAR, LAST_YEAR, WindowAddress, address_of, window_of
from feed_assets.ledger import log, quality, subscriptions, update_counts
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.fan_out import PendingChanges, next_batch
from feed_assets.ledger.states.count_reports import report
from feed_assets.ledger.states.window_queries import report_quality
from feed_assets.ledger.update_counts import COUNTER

PARTITIONS_PER_READ = 500
"""Number of log changes that are read at a time. After each read the time limit is checked."""


@dataclass(frozen=True)
class CountedFeed:
    """A feed whose records are counted by windows of time.

    `sub_partition_of` returns the sub-partition of a partition or batch, or None if no asset has this partition.
    """

    tracked: Tracked
    sub_partition_of: Callable[[Partition], str | None]
    is_foreign: bool = False
    """True if the feed's producer may report counts. If the producer reports counts, the counter does not."""
    windows_within: Callable[[Partition], Sequence[WindowAddress]] = lambda _: ()
    """Function that returns the windows that a partition fills."""


def count(
    ledger: Ledger,
    feeds: Mapping[Feed, CountedFeed],
    now: datetime,
    out_of_time: Callable[[], bool],
    limit: int = PARTITIONS_PER_READ,
) -> bool:
    """Report counts and checks of every changed partition, until time is over. Return False if changes are left.

    The version of a report is the number of its partition's last change. The subscription moves after the reports: if
    the process is killed in between, the reports are repeated, which is harmless.
    """
    edges = {(COUNTER, str(feed)) for feed in feeds}
    with ledger.read() as connection:
        new = edges - subscriptions.positions(connection, [COUNTER]).keys()
    if new:
        with ledger.write() as connection:
            subscriptions.subscribe(connection, new)
    while batch := next_batch(ledger, edges, limit):
        _count(ledger, feeds, batch, now)
        if out_of_time():
            return next_batch(ledger, edges, limit) is None
    return True


def _count(ledger: Ledger, feeds: Mapping[Feed, CountedFeed], batch: PendingChanges, now: datetime) -> None:
    changed = {each.partition for each in batch.changes if each.kind in (log.UPDATE, log.COUNTED)}
    partitions = {each for each in changed if each.feed in feeds}
    if partitions:
        with ledger.read() as connection:
            reports = [*_reports(connection, feeds, partitions)]
        report(ledger, reports, now, COUNTER)
    _check(ledger, feeds, batch, now)
    with ledger.change() as connection:
        subscriptions.move(connection, batch.group, batch.start, batch.reached)


def _check(ledger: Ledger, feeds: Mapping[Feed, CountedFeed], batch: PendingChanges, now: datetime) -> None:
    """Report the newest state of every changed check for the windows of its partition."""
    reporters = {(at.partition, at.subject): at.who for at in batch.changes if at.kind == log.QUALITY}
    own_reporters = {
        key: reporter for key, reporter in reporters.items() if key[0].feed in feeds and not address_of(key[0])
    }
    if not own_reporters:
        return
    with ledger.read() as connection:
        states = quality.check_states(connection, {partition for partition, _ in own_reporters})
    for key in sorted(own_reporters.keys() & states.keys()):
        (partition, check), check_state = key, states[key]
        feed = feeds[partition.feed]
        for at in feed.windows_within(partition) if feed.sub_partition_of(partition) is not None else ():
            with suppress(PartitionClosed):  # The window is closed. The partition keeps its own check state.
                report_quality(
                    ledger,
                    at,
                    check,
                    state=check_state.state,
                    reason=check_state.reason,
                    by=own_reporters[key] or COUNTER,
                    now=now,
                )


def _reports(
    connection: sa.Connection, feeds: Mapping[Feed, CountedFeed], partitions: Collection[Partition]
) -> Iterator[Report]:
    """Yield a report with the record counts of each partition's newest update.

    The report is empty if there is no valid update, if it is not counted yet, or if the feed's producer reports counts.
    """
    foreign = {each.feed for each in partitions if feeds[each.feed].is_foreign}
    self_reported = update_counts.reported_by_others(connection, foreign)
    for partition, (text, number) in sorted(update_counts.newest(connection, partitions).items()):
        feed = feeds[partition.feed]
        sub_partition = feed.sub_partition_of(partition)
        if sub_partition is not None:
            counts = (
                _in_windows(text, feed.tracked, sub_partition) if text and partition.feed not in self_reported else ()
            )
            yield Report(partition.feed, sub_partition, partition.key, counts, version=encode(number))


def _in_windows(text: str, tracked: Tracked, sub_partition: str) -> tuple[tuple[datetime, int], ...]:
    """Parse the counts of an update, and sum them up to the dataset's smallest windows.

    The counts may be by smaller steps. For example, 96 steps of 15 minutes add up to one day. Skip years that a report
    cannot have: with a window that ends after the year 9999, each tick would fail here, for all feeds.
    """
    total: Counter[datetime] = Counter()
    sound = {start: records for start, records in windows_of(text).items() if FIRST_YEAR <= start.year <= LAST_YEAR}
    for start, records in sound.items():
        total[window_of(tracked.base, start, tracked.zone_of(sub_partition)).start] += records
    return counts_of(total)
