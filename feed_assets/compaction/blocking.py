"""Reasons for which a partition is not compacted: its last build failed, or a check blocks its readers.

They hold for the job and by hand. A build in progress and a closed partition are refused when the compaction starts.
"""

from collections.abc import Collection

import sqlalchemy as sa

from feed_assets.core import attempts
from feed_assets.core.errors import NotCompacted
from feed_assets.core.feeds import Partition
from feed_assets.core.message_words import first_line
from feed_assets.ledger import quality, runs
from feed_assets.runs.services import Services

_ENDED = {attempts.FAILED: "failed", attempts.REFUSED: "was refused"}


def reasons(connection: sa.Connection, partitions: Collection[Partition]) -> dict[Partition, str]:
    """Return the blocked ones of some partitions, each with the reason."""
    failed_checks = quality.failed(connection, partitions)
    failed_builds = {run.output: run for run in runs.open_attempts(connection, partitions)}
    return {at: f"a check blocks its readers: {first_line(why)}" for at, why in failed_checks.items()} | {
        at: f"its last build {_ENDED[run.state]}: {first_line(run.reason or 'no reason was recorded')}"
        for at, run in failed_builds.items()
    }


def refuse(services: Services, partition: Partition) -> None:
    """Raise NotCompacted for a blocked partition.

    A compaction is a successful run. After it, the partition would no longer count as failed, although nothing was
    repaired.
    """
    with services.ledger.read() as connection:
        why = reasons(connection, [partition])
    if partition in why:
        raise NotCompacted(f"{partition} is not compacted, because {why[partition]}. Repair that first.")
