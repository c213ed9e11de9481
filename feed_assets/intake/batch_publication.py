"""Publication of one batch of an appendable feed, recorded in the ledger at once: no look has to discover it."""

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
"""The step after which a batch is on the blackboard, and not in the ledger yet."""


@dataclass(frozen=True)
class BatchContent:
    """Content of one batch to be published.

    Both the batch's name and those of its parts are made of where the data are from: so what was published before is
    recognised. Only one process at a time publishes a batch.

    Args:
        partition: The batch: its partition, and its own name as the last segment.
        parts: Names under the update, and their content; a file is not read into memory.
        windows: Records by window of event time (UTC), if they are known; else the first dataset that reads it counts.
    """

    partition: Partition
    parts: Mapping[str, bytes | Path]
    windows: Counts | None = None

    def is_in(self, update: Update) -> bool:
        """Return whether an update has exactly these parts, by name and size."""
        files = {(file.key.removeprefix(f"{update.path}/"), file.size) for file in update.files}
        return files == {(name, write.size_of(data)) for name, data in self.parts.items()}


def publish(services: Services, batch: BatchContent, by: str) -> Update:
    """Publish a batch as a new update and record it in the ledger; one that has these parts already is only recorded.

    It may be killed at any instruction and is then called again, by the same name with the same parts:

    - before the manifest: nobody sees anything. It is written again under a greater id; what the killed attempt left,
      the sensor `orphans` finds by its claim a day later (`runs/orphan_sweep.py`).
    - between the manifest and the ledger: the newest valid update has these parts, and is recorded.
    - in the ledger's transaction, which holds the change, the write event, the batch and its counts: all or nothing.
    - after it: the ledger has an update with these parts, and neither it nor the blackboard is touched. So an update
      that somebody has invalidated meanwhile stays invalid.

    If nobody calls it again, the same sensor records in the ledger what has its manifest, and sweeps the rest. Raise
    errors of the blackboard and the ledger; InvalidName for names that cannot be.
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
    """Return the update with these parts: one that a killed attempt has published, or else a new one."""
    valid = read.latest(services.board, batch.partition).update
    if valid and batch.is_in(valid):
        return valid
    return write.publish(services.board, batch.partition, batch.parts, services.now(), write.INTAKE)
