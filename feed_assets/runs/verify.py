"""Verify that the newest updates of our own feeds in the ledger are still on the blackboard and valid.

Nobody else writes these feeds, so there is no search for new updates. A missing update is recorded as invalid: its
dataset is built again, and its consumers get the change. If the store does not answer, nothing counts as missing.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from feed_assets.core.errors import BlackboardMissing, NoValidUpdate
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.isolation import failing_alone
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import updates
from feed_assets.ledger.database import get_cursor, put_cursors
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync

ROTATION = 40
"""Number of partitions that each call verifies, in rotation. Of 10,000 partitions, each is verified every 250 calls."""

FEEDS_PER_LOOK = 5
"""Greatest number of feeds per call. One SQL statement reads the partitions of all these feeds."""

_BEFORE_KEY = "\n"
"""Separator of feed and key in a position of the rotation. No name contains it."""

PARTITIONS_PER_READ = 500
"""Number of partitions that `verify_all` verifies at a time."""


@dataclass(frozen=True)
class Gone:
    """An update of our own feeds that is no longer valid, and why."""

    partition: Partition
    update_id: str
    why: str

    def __str__(self) -> str:
        return f"update {self.update_id} of {self.partition} is no longer valid: {self.why}"


@dataclass
class Verified:
    """Result of a verification: the updates that are gone, and for each feed that could not be verified the reason."""

    gone: list[Gone] = field(default_factory=list[Gone])
    problems: dict[str, str] = field(default_factory=dict[str, str])
    is_other_blackboard: bool = False
    """True if the blackboard has no files of any declared feed."""


def verify(
    services: Services, feeds: Collection[Feed], declared: Collection[Feed], out_of_time: Callable[[], bool]
) -> Verified:
    """Verify at least one partition of our own feeds, and more until the time is over.

    The next call continues after the last verified partition. If the blackboard is not the one that the ledger
    describes, the position in the rotation stays. So each call reports the problem until somebody corrects it.
    """
    report, ordered = Verified(), sorted(feeds, key=str)
    if not ordered:
        return report
    cursor = f"looked again at all from {ordered[0]}"  # No other code location has this feed: the cursor is unique.
    with services.ledger.read() as connection:
        position = get_cursor(connection, cursor) or ""
        partitions, ends = turn(connection, ordered, position)
    count = _visit(services, partitions, declared, report, out_of_time)
    ends = ends if count == len(partitions) else place_of(partitions[count - 1])
    if ends != position and not report.is_other_blackboard:
        with services.ledger.write() as connection:
            put_cursors(connection, {cursor: ends})
    return report


def verify_newest(services: Services, feed: Feed, declared: Collection[Feed]) -> Verified:
    """Verify the partitions with the last keys of one of our own feeds."""
    report = Verified()
    with services.ledger.read() as connection:
        keys = [*updates.published_keys(connection, feed)][-ROTATION:]
    _visit(services, [Partition(feed, key) for key in keys], declared, report)
    return report


def verify_all(services: Services, feeds: Collection[Feed], declared: Collection[Feed]) -> Verified:
    """Verify every partition of our own feeds, without a time limit."""
    report = Verified()
    for feed in sorted(feeds):
        with services.ledger.read() as connection:
            keys = [*updates.published_keys(connection, feed)]
        for first in range(0, len(keys), PARTITIONS_PER_READ):
            partitions = [Partition(feed, key) for key in keys[first : first + PARTITIONS_PER_READ]]
            _visit(services, partitions, declared, report)
    return report


def turn(
    connection: sa.Connection, feeds: Sequence[Feed], position: str, limit: int = ROTATION
) -> tuple[list[Partition], str]:
    """Return the next partitions after a position, and the position after them; '' at the end of the round."""
    name, is_within, key = position.partition(_BEFORE_KEY)
    remaining = [feed for feed in feeds if str(feed) >= name] or feeds
    after = Partition(remaining[0], key) if is_within and str(remaining[0]) == name else None
    partitions = updates.published(connection, remaining[:FEEDS_PER_LOOK], after, limit)
    if len(partitions) == limit:
        return partitions, place_of(partitions[-1])
    return partitions, str(remaining[FEEDS_PER_LOOK]) if len(remaining) > FEEDS_PER_LOOK else ""


def place_of(partition: Partition) -> str:
    """Return the position after a partition in the rotation."""
    return f"{partition.feed}{_BEFORE_KEY}{partition.key}"


def _never() -> bool:
    return False


def _visit(
    services: Services,
    partitions: Sequence[Partition],
    declared: Collection[Feed],
    report: Verified,
    out_of_time: Callable[[], bool] = _never,
) -> int:
    """Verify partitions until the time is over. Return how many. `declared` includes feeds that are only read.

    Stop if a partition shows that another blackboard is mounted.
    """
    with services.ledger.read() as connection:
        newest = updates.newest(connection, partitions)
    for count, partition in enumerate(partitions):
        if count and (out_of_time() or report.is_other_blackboard):
            return count
        with failing_alone(report.problems, str(partition.feed)):
            report.gone += _look(services, newest[partition], declared, report) if partition in newest else []
    return len(partitions)


def _look(services: Services, row: updates.UpdateRow, declared: Collection[Feed], report: Verified) -> list[Gone]:
    """Check with two requests that one published update still exists on the blackboard.

    If the update is missing, sync the partition, because the update may have been replaced and pruned.
    """
    board = services.board_of(row.partition.feed)
    try:
        read.named(board, row.partition, row.id)
    except NoValidUpdate:
        report.is_other_blackboard = not _has_some(services, row.partition.feed, declared)
        if report.is_other_blackboard:
            raise _other_blackboard(board) from None
        reading, _ = sync(board, services.ledger, row.partition, services.now())
    else:
        return []
    if reading.update and reading.update.id >= row.id:
        return []
    reasons = {skipped.id: skipped.reason for skipped in reading.skipped}
    return [Gone(row.partition, row.id, reasons.get(row.id, updates.NOT_THERE))]


def _has_some(services: Services, beside: Feed, declared: Collection[Feed]) -> bool:
    """Return whether a feed's blackboard has anything that is declared there. If not, another blackboard is mounted."""
    board, name = services.board_of(beside), services.elsewhere.get(beside)
    return any(board.page(str(feed)).names for feed in declared if services.elsewhere.get(feed) == name)


def _other_blackboard(board: Blackboard) -> BlackboardMissing:
    return BlackboardMissing(
        f"the blackboard {board.url} has none of the feeds declared here, and the ledger has updates of them: "
        "expected the blackboard on which they were published. No update is recorded as missing. Correct the setting "
        "or the mount. If it was emptied on purpose, `feed-assets explain FEED PARTITION` records that for one "
        "partition."
    )
