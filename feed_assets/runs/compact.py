"""Compaction: replace many batches of one of our appendable datasets by one batch with all their rows.

The process may be killed after any step: `reconcile` publishes an update that has a manifest, and sweeps an update
without a manifest. Readers get the old batches until the manifest exists, and then the new batch. The rows are the
same, so no event is published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from feed_assets.core.batch_names import LEAST, Numbers, numbers_in, version_of
from feed_assets.core.errors import UpdateChanged
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.pins import Pin
from feed_assets.core.plans import BY_HAND
from feed_assets.feeds import write
from feed_assets.ledger import batch_sets, claims, compacted, runs, update_changes, updates
from feed_assets.runs import reconcile
from feed_assets.runs.exclusive import alone
from feed_assets.runs.maker import Output, Task
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.services import Services
from feed_assets.runs.sync import pin


@dataclass(frozen=True)
class Compacted:
    """Batches to compact, and the name of the batch that replaces them. `applied` is True if that batch was written."""

    partition: Partition
    batches: tuple[str, ...]
    into: str
    applied: bool


def partitions_of(services: Services, feed: Feed) -> list[Partition]:
    """Return the partitions of a feed that hold batches written by our runs."""
    with services.ledger.read() as connection:
        return compacted.partitions(connection, feed)


def compact(services: Services, parent: Partition, least: int = LEAST, *, apply: bool = False) -> list[Compacted]:
    """Compact the batches of a partition, as many in a row as possible.

    Without `apply`, only return what would be compacted. An invalid batch that may become valid again is not compacted.
    The batches before it and after it become separate ranges.

    Raise AlreadyRunning while a run builds the partition, and the errors of reading, writing and Spark.
    """
    reconcile.reconcile(services, output=parent)
    with services.ledger.read() as connection:
        stretches = _in_a_row(
            batch_sets.pins_of(connection, [parent])[parent], compacted.may_return(connection, parent), least
        )
    return [_put_together(services, parent, pins, apply=apply) for pins in stretches]


def _in_a_row(pins: Sequence[Pin], returning: Sequence[Partition], least: int) -> list[list[Pin]]:
    """Return groups of batches with consecutive numbers. Each group can be replaced by one combined batch.

    A batch in `returning` is invalid but may become valid again, so no group reaches across it.
    """
    borders = sorted(numbers.first for at in returning if (numbers := numbers_in(at.name)))
    numbered = sorted((numbers, pin) for pin in pins if (numbers := numbers_in(pin.partition.name)))
    rows = groupby(numbered, key=lambda each: sum(border <= each[0].last for border in borders))
    stretches = [[pin for _, pin in group] for _, group in rows]
    return [each for each in stretches if len(each) >= max(least, 2)]


def _put_together(services: Services, parent: Partition, pins: Sequence[Pin], *, apply: bool) -> Compacted:
    held = [numbers for pin in pins if (numbers := numbers_in(pin.partition.name))]
    into = Numbers(held[0].first, max(each.last for each in held))
    if apply:
        _Compaction(services, parent, parent.batch(into.name), tuple(pins)).run()
    return Compacted(parent, tuple(pin.partition.name for pin in pins), into.name, apply)


def _as_they_are(batches: Any) -> Any:
    return batches


@dataclass(frozen=True)
class _Compaction:
    """One compaction of several batches into one, while no run builds the partition."""

    services: Services
    parent: Partition
    into: Partition
    pins: tuple[Pin, ...]

    def run(self) -> None:
        with alone(self.services, self.parent) as run_id:
            self._write(run_id)

    def _write(self, run_id: str) -> None:
        services, read = self.services, [pin(self.services, each.partition, None) for each in self.pins]
        self._refuse_others(tuple(pin for _, pin in read))
        update_id = self._claim(run_id)
        with services.maker().make(self._task([update for update, _ in read]), services.board) as rows:
            output = Output(self.into, update_id, rows.write(self.into, update_id))
            services.on_step("parts written")
            self._stage(output)
        write.seal(services.board, self.into, update_id, output.written.files)
        services.on_step("manifest written")
        with services.ledger.change() as connection:
            update_changes.publish(connection, self.into, update_id, services.now())
            runs.end(connection, run_id, updates.PUBLISHED, services.now(), None)
        services.on_step("published")

    def _refuse_others(self, pins: tuple[Pin, ...]) -> None:
        """Raise UpdateChanged if the newest update of a batch has changed since the compaction was planned."""
        if {pin.update_id for pin in pins} != {pin.update_id for pin in self.pins}:
            raise UpdateChanged(f"{self.parent}: a batch has changed since the compaction was planned. Compact again.")

    def _claim(self, run_id: str) -> str:
        services = self.services
        with services.ledger.read() as connection:
            after = batch_sets.last_id(connection, self.parent)
        update_id = write.claim(services.board, self.into, run_id.encode(), services.now(), after=after)
        services.on_step("claimed on the blackboard")
        with services.ledger.change() as connection:
            compacted.claim(connection, self.into, update_id, run_id=run_id, pins=self.pins, now=services.now())
        services.on_step("claimed in the ledger")
        return update_id

    def _task(self, read: Sequence[Update]) -> Task:
        """Return the task that copies all rows unchanged."""
        feed = self.parent.feed
        recipe = Recipe(feed, (RecipeInput("batches", feed, is_appendable=True),), _as_they_are)
        return Task(recipe, self.parent, {"batches": read}, {}, BY_HAND)

    def _stage(self, output: Output) -> None:
        """Record the statistics and the joint version of all batches. Raise UpdateChanged if the row count differs."""
        written = output.written
        with self.services.ledger.write() as connection:
            expected = compacted.records(connection, self.pins)
            if expected is not None and expected != written.records:
                raise UpdateChanged(
                    f"{self.into}: {written.records} rows were written, expected the {expected} of its batches: "
                    "nothing is published. Check them with `feed-assets feed verify`."
                )
            claims.stage(connection, output.update, version_of(self.pins), records=written.records)
        self.services.on_step("statistics in the ledger")
