"""Existing rows as a new update: the steps that both compactions share, while no other run builds the partition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from feed_assets.compaction.arrangement import ROW_GROUP, ROWS, Arrangement
from feed_assets.core.compact import Compact
from feed_assets.core.errors import UpdateChanged
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.plans import BY_HAND
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import runs, update_changes, updates
from feed_assets.runs.maker import Output, Task
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.services import Services


@dataclass(frozen=True)
class Rewriting:
    """The writing of one update by a run. `into` is the partition, or the batch of it, that gets the update."""

    services: Services
    run_id: str
    partition: Partition
    into: Partition
    policy: Compact

    def claim(self, after: str | None, record: Callable[[sa.Connection, str], None]) -> str:
        """Claim an update id greater than `after`, and let `record` put the claim into the ledger. Return the id.

        Raise UpdateAbandoned if this run was given up meanwhile.
        """
        services = self.services
        update_id = write.claim(self._board, self.into, self.run_id.encode(), services.now(), after=after)
        services.on_step("claimed on the blackboard")
        with services.ledger.change() as connection:
            runs.refuse_given_up(connection, self.run_id)
            record(connection, update_id)
        services.on_step("claimed in the ledger")
        return update_id

    def publish(
        self,
        update_id: str,
        read: Sequence[Update],
        *,
        stage: Callable[[Output], None],
        confirm: Callable[[], object],
    ) -> Output:
        """Write the rows of some updates, and publish them. `stage` records their facts, or raises if they are wrong.

        `confirm` raises UpdateChanged if one of the updates is no longer valid. After a kill, `reconcile` publishes the
        new update if it has its manifest and all updates are still valid, and sweeps it otherwise.
        """
        services = self.services
        with services.maker().make(self._task(read), self._board) as rows:
            output = Output(self.into, update_id, rows.write(self.into, update_id))
            services.on_step("parts written")
            stage(output)
            confirm()
        write.seal(self._board, self.into, update_id, output.written.files)
        services.on_step("manifest written")
        self._confirm_again(update_id, confirm)
        with services.ledger.change() as connection:
            update_changes.publish(connection, self.into, update_id, services.now())
            runs.end(connection, self.run_id, updates.PUBLISHED, services.now(), None)
        services.on_step("published")
        return output

    @property
    def _board(self) -> Blackboard:
        return self.services.board_of(self.into.feed)

    def _confirm_again(self, update_id: str, confirm: Callable[[], object]) -> None:
        """Withdraw the manifest if a read update became invalid before the manifest was there.

        `feed invalidate` finds the claim in the ledger. It looks at the new update before and after it invalidates the
        replaced one, so one of the two sees what the other has done.
        """
        try:
            confirm()
        except UpdateChanged:
            write.invalidate(self._board, self.into, update_id)
            raise

    def _task(self, read: Sequence[Update]) -> Task:
        """Return the task that copies all rows."""
        feed, size = self.partition.feed, sum(each.size for each in read)
        arrange = Arrangement.of(self.policy, size)
        rows = RecipeInput(ROWS, feed, is_appendable=self.into != self.partition)
        recipe = Recipe(feed, (rows,), arrange, row_group=ROW_GROUP if arrange.sort_by else None)
        return Task(recipe, self.partition, {ROWS: read}, {}, BY_HAND)
