"""Compaction of one partition: a new update with the same rows in few files, which may be sorted.

The process may be killed after any step: `reconcile` publishes an update that has a manifest, and sweeps an update
without a manifest. Readers get the old update until the manifest exists, and then the new one with the same rows.
"""

from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

from feed_assets.compaction import blocking
from feed_assets.compaction.rewriting import Rewriting
from feed_assets.core.compact import Compact
from feed_assets.core.errors import NotAsDeclared, NoValidUpdate, UpdateChanged
from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds import read
from feed_assets.ledger import claims, compacted_partitions, runs, updates
from feed_assets.runs import reconcile
from feed_assets.runs.exclusive import alone
from feed_assets.runs.maker import Output
from feed_assets.runs.services import Services
from feed_assets.runs.sync import pin


@dataclass(frozen=True)
class CompactedPartition:
    """The compaction of one partition: its updates and their numbers of files, before and after."""

    partition: Partition
    before: str
    after: str
    files_before: int
    files_after: int


def compact_partition(
    services: Services, partition: Partition, policy: Compact, dagster_run: str | None = None
) -> CompactedPartition | None:
    """Replace a partition's newest update by one with the same rows, and return both. Return None if it is not due.

    Raise AlreadyRunning while a run builds the partition, PartitionClosed, NotCompacted after a failed build or while a
    check blocks the readers, UpdateChanged if another update was published or this one was invalidated meanwhile, and
    the errors of reading, writing and Spark.
    """
    reconcile.reconcile(services, output=partition)
    blocking.refuse(services, partition)
    with alone(services, partition, dagster_run) as run_id:
        update, pinned = pin(services, partition, None)
        with services.ledger.read() as connection:
            row = updates.find(connection, partition, pinned.update_id)
        if row is None or not _is_due(row, policy):
            with services.ledger.change() as connection:
                runs.end(connection, run_id, runs.UNCHANGED, services.now(), None)
            return None
        return _Replacement(services, row, update, policy, run_id).make()


def _is_due(row: updates.UpdateRow, policy: Compact) -> bool:
    is_of_run = row.origin in (updates.RUN, updates.REBUILT)
    return is_of_run and row.records is not None and policy.is_due(row.files or 0, row.size or 0)


@dataclass(frozen=True)
class _Replacement:
    """The replacement of one update, while no other run builds its partition."""

    services: Services
    row: updates.UpdateRow
    update: Update
    policy: Compact
    run_id: str

    def make(self) -> CompactedPartition:
        partition = self.row.partition
        rewriting = Rewriting(self.services, self.run_id, partition, partition, self.policy)
        update_id = rewriting.claim(self.row.id, self._record)
        confirm = partial(self._confirm, update_id)
        output = rewriting.publish(update_id, [self.update], stage=self._stage, confirm=confirm)
        files = len(self.update.files), len(output.written.files)
        return CompactedPartition(partition, self.row.id, update_id, *files)

    def _record(self, connection: sa.Connection, update_id: str) -> None:
        compacted_partitions.claim(connection, self.row, update_id, self.run_id, self.services.now())

    def _stage(self, output: Output) -> None:
        """Record the written files. Raise NotAsDeclared if they have other rows than the replaced update.

        Record the size and the number of files of the replaced update, and not those of the written files. Policies for
        late data compare these two numbers, so a compaction does not look like a change of the input.
        """
        written = output.written
        if (written.records, written.data_version) != (self.row.records, self.row.version):
            raise NotAsDeclared(
                f"{self.row.partition} {self.row.id}: the compaction has {written.records} rows with the digest "
                f"{written.data_version}, expected {self.row.records} with {self.row.version}: nothing is published. "
                "Look for damage with `feed-assets feed verify --deep`."
            )
        with self.services.ledger.write() as connection:
            weight = {"size": self.row.size, "files": self.row.files}
            claims.stage(connection, output.update, written.data_version, **weight)
        self.services.on_step("statistics in the ledger")

    def _confirm(self, update_id: str) -> None:
        """Raise UpdateChanged unless the replaced update is valid, and no other update than the new one is newer."""
        board, row = self.services.board_of(self.row.partition.feed), self.row
        try:
            read.named(board, row.partition, row.id)
            newest = read.latest(board, row.partition).update
        except NoValidUpdate as error:
            raise UpdateChanged(f"{error} Nothing is published.") from error
        if newest is None or newest.id not in (row.id, update_id):
            raise UpdateChanged(
                f"{row.partition}: {row.id} is no longer the newest valid update. Nothing is published; the next "
                "compaction takes the newest update."
            )
