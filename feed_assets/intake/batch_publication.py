"""Publication of one batch of an appendable feed, on the blackboard and in the ledger. No sensor has to discover it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from feed_assets.core.feeds import Partition, Update
from feed_assets.core.limits import check_partition
from feed_assets.core.write_result import Counts
from feed_assets.feeds import read, write
from feed_assets.ledger import intake
from feed_assets.runs.services import Services

PUBLISHED = "batch published"
"""The step after which a batch is on the blackboard, but not in the ledger yet."""


@dataclass(frozen=True)
class BatchContent:
    """Content of one batch to be published.

    The names of the batch and its parts depend only on the source of the data. So an earlier publication of the same
    data is recognised. Callers make sure that only one process at a time publishes a batch.

    Args:
        partition: The batch as a partition: the last segment of its key is the name of the batch.
        parts: Contents of the part files by name. A content that is a path is not read into memory.
        windows: Record counts by window of event time (UTC). If None, the first dataset that reads the batch counts its
            records.
    """

    partition: Partition
    parts: Mapping[str, bytes | Path]
    windows: Counts | None = None

    def is_in(self, update: Update) -> bool:
        """Return whether an update has exactly these parts, compared by name and size."""
        files = {(file.key.removeprefix(f"{update.path}/"), file.size) for file in update.files}
        return files == {(name, write.size_of(data)) for name, data in self.parts.items()}


def publish(services: Services, batch: BatchContent, by: str) -> Update:
    """Publish a batch as a new update, and record it in the ledger.

    The process may be killed at any instruction. The caller then repeats the call with the same name and parts. The
    repeated call continues from where the first one was killed:

    - Before the manifest: no reader has seen the batch. It is written again under a greater id. A day later, the sensor
      `orphans` finds the files of the killed attempt by its claim (`runs/orphan_sweep.py`).
    - Between the manifest and the ledger: the newest valid update already has these parts. It is only recorded.
    - In the ledger's transaction: the change, the write event, the batch and its counts are recorded together or not
      at all.
    - After the transaction: the ledger already has an update with these parts, so nothing changes. An update that
      somebody has invalidated meanwhile stays invalid.

    If nobody repeats the call, `orphans` records an update that has its manifest, and removes other files. Raise errors
    of the blackboard and the ledger, and InvalidName for invalid names.
    """
    check_partition(batch.partition)
    with services.ledger.read() as connection:
        recorded = intake.newest(connection, batch.partition)
    if recorded and batch.is_in(recorded):
        return recorded
    update = _published(services, batch)
    services.on_step(PUBLISHED)
    with services.ledger.change() as connection:
        intake.record(connection, update, batch.windows, by, services.now())
    return update


def _published(services: Services, batch: BatchContent) -> Update:
    """Return the update with these parts: one published by a killed attempt, or else a new one."""
    board = services.board_of(batch.partition.feed)
    valid = read.latest(board, batch.partition).update
    if valid and batch.is_in(valid):
        return valid
    return write.publish(board, batch.partition, batch.parts, services.now(), write.INTAKE)
