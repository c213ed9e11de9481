"""The partitions of a dataset whose compaction is due now."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa

from feed_assets.compaction import blocking
from feed_assets.compaction.batches import groups_of, is_range
from feed_assets.core.attempts import ABANDONED
from feed_assets.core.compact import Compact
from feed_assets.core.completeness import DONE
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.message_words import first_line
from feed_assets.core.windows import WindowAddress
from feed_assets.ledger import closures, compacted, compacted_partitions, runs, updates
from feed_assets.ledger.states.window_queries import stored_windows

PAUSE = timedelta(hours=1)
"""Time after a compaction that failed or was interrupted. Until then its partition is not compacted again."""

WindowsOf = Callable[[Partition], Iterable[WindowAddress]]
"""Returns the windows that a partition fills."""


def due(
    connection: sa.Connection,
    feed: Feed,
    policy: Compact,
    windows_of: WindowsOf,
    now: datetime,
    *,
    is_appendable: bool = False,
) -> list[Partition]:
    """Return the partitions of a dataset to compact now, in order.

    A partition is not due while it is built, after failed builds, while a check blocks its readers, while it is closed,
    or, with `when="complete"`, while one of its windows is not complete.
    """
    if is_appendable:
        partitions = _with_batches(connection, feed, policy)
    else:
        partitions = [row.partition for row in fitting(connection, feed, policy)]
    if policy.when == "complete":
        partitions = _complete(connection, {each: [*windows_of(each)] for each in partitions})
    blocked = {each.output for each in runs.running(connection)}
    blocked |= {*blocking.reasons(connection, partitions), *closures.closed(connection, partitions)}
    return [each for each in partitions if each not in blocked and not _was_interrupted(connection, each, now)]


def fitting(connection: sa.Connection, feed: Feed, policy: Compact) -> list[updates.UpdateRow]:
    """Return the newest updates of a dataset's partitions that have enough files, for their size, to be compacted."""
    rows = compacted_partitions.candidates(connection, feed, policy.files)
    return [row for row in rows if policy.is_due(row.files or 0, row.size or 0)]


def _with_batches(connection: sa.Connection, feed: Feed, policy: Compact) -> list[Partition]:
    """Return the partitions with enough consecutive batches that no compaction has merged yet."""
    return [
        each
        for each in compacted.with_new_batches(connection, feed, policy.files)
        if any(
            sum(not is_range(pin) for pin in pins) >= policy.files
            for pins in groups_of(connection, each, policy.files, by_size=True)
        )
    ]


def _was_interrupted(connection: sa.Connection, partition: Partition, now: datetime) -> bool:
    last = runs.last(connection, partition)
    return last is not None and last.state == ABANDONED and last.ended is not None and now < last.ended + PAUSE


def failure(connection: sa.Connection, partition: Partition) -> str:
    """Return why the last run of a partition, a compaction, failed, and when it is tried again. Return '' otherwise."""
    last = runs.last(connection, partition)
    if (
        last is None
        or last.ended is None
        or last.state != ABANDONED
        or not compacted.was_compaction(connection, last.id)
    ):
        return ""
    again = f"{last.ended + PAUSE:%Y-%m-%d %H:%M} UTC"
    return f"its last compaction failed and is not tried again before {again}: {first_line(last.reason or '')}"


def _complete(
    connection: sa.Connection, windows_by_partition: Mapping[Partition, Sequence[WindowAddress]]
) -> list[Partition]:
    """Return the partitions whose windows are all complete, by one query."""
    rows = stored_windows(connection, (each for windows in windows_by_partition.values() for each in windows))
    done = {address for address, row in rows.items() if row.state in DONE}
    return [partition for partition, windows in windows_by_partition.items() if done.issuperset(windows)]
