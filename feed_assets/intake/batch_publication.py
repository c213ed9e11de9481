"""Publication of one batch of an appendable feed. It is recorded in the ledger at once, before any look finds it."""

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

    The names of the batch and its parts depend only on where the data are from, so an earlier publication is
    recognised. Only one process at a time publishes a batch.

    Args:
        partition: The batch: its partition, and its own name as the last segment.
        parts: Contents by their names under the update. A file is not read into memory.
        windows: Record counts by window of event time (UTC). If unknown, the first dataset that reads the batch counts.
    """

    partition: Partition
    parts: Mapping[str, bytes | Path]
    windows: Counts | None = None

    def is_in(self, update: Update) -> bool:
        """Return whether an update has exactly these parts, compared by name and size."""
        files = {(file.key.removeprefix(f"{update.path}/"), file.size) for file in update.files}
        return files == {(name, write.size_of(data)) for name, data in self.parts.items()}


def publish(services: Services, batch: BatchContent, by: str) -> Update:
    """Publish a batch as a new update and record it in the ledger. An existing one with these parts is only recorded.

    It may be killed at any instruction. It is then called again, with the same name and the same parts:

    - before the manifest: nobody sees anything. The batch is written again under a greater id. A day later, the sensor
      `orphans` finds what the killed attempt left, by its claim (`runs/orphan_sweep.py`).
    - between the manifest and the ledger: the newest valid update has these parts, and is recorded.
    - in the ledger's transaction, with the change, the write event, the batch and its counts: all or nothing.
    - after it: the ledger has an update with these parts, and nothing is changed, here or on the blackboard. So an
      update that somebody has invalidated meanwhile stays invalid.

    If nobody calls it again, the same sensor records updates that have their manifest, and sweeps the rest. Raise
    errors of the blackboard and the ledger; InvalidName for invalid names.
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
    valid = read.latest(services.board, batch.partition).update
    if valid and batch.is_in(valid):
        return valid
    return write.publish(services.board, batch.partition, batch.parts, services.now(), write.INTAKE)
