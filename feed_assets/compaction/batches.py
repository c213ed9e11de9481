"""Compaction: replace many batches of one of our appendable datasets by one batch with all their rows.

The process may be killed after any step: `reconcile` publishes an update that has a manifest, and sweeps an update
without a manifest. Readers get the old batches until the manifest exists, and then the new batch. The rows are the
same, so no event is published.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import sqlalchemy as sa

from feed_assets.compaction import blocking
from feed_assets.compaction.rewriting import Rewriting
from feed_assets.core.batch_names import LEAST, Numbers, numbers_in, version_of
from feed_assets.core.compact import UNSORTED, Compact
from feed_assets.core.errors import NotAsDeclared, NoValidUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.pins import Pin
from feed_assets.ledger import batch_sets, claims, compacted
from feed_assets.runs import reconcile
from feed_assets.runs.exclusive import alone
from feed_assets.runs.maker import Output
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


def compact(
    services: Services,
    parent: Partition,
    least: int = LEAST,
    *,
    apply: bool = False,
    policy: Compact = UNSORTED,
    by_size: bool = False,
    dagster_run: str | None = None,
) -> list[Compacted]:
    """Compact the batches of a partition, as many in a row as possible.

    `policy` says how the rows are arranged in files. With `by_size`, a batch that was made of several stays if it is
    larger than all newer batches together. So a row is rewritten only when the batch that has it doubles. Without
    `apply`, only return what would be compacted. An invalid batch that may become valid again is not compacted. The
    batches before it and after it are compacted separately.

    Raise AlreadyRunning while a run builds the partition, NotCompacted after a failed build or while a check blocks the
    readers, and the errors of reading, writing and Spark.
    """
    reconcile.reconcile(services, output=parent)
    blocking.refuse(services, parent)
    with services.ledger.read() as connection:
        groups = groups_of(connection, parent, least, by_size=by_size)
    compactions = [_compaction(services, parent, pins, policy) for pins in groups]
    for each in compactions if apply else ():
        each.run(dagster_run)
    return [
        Compacted(parent, tuple(pin.partition.name for pin in each.pins), each.into.name, apply) for each in compactions
    ]


def groups_of(connection: sa.Connection, parent: Partition, least: int, *, by_size: bool) -> list[list[Pin]]:
    """Return the groups of at least `least` batches of a partition that can each be replaced by one batch."""
    by_hand = batch_sets.of_others(connection, parent)
    pins = [pin for pin in batch_sets.pins_of(connection, [parent])[parent] if pin.partition not in by_hand]
    groups = _in_a_row(pins, [*compacted.may_return(connection, parent), *by_hand])
    groups = [_without_large(each) for each in groups] if by_size else groups
    return [each for each in groups if len(each) >= max(least, 2)]


def _without_large(pins: Sequence[Pin]) -> list[Pin]:
    """Return the batches after the last large one, or all if none is large.

    A batch is large if it was made of several and is larger than all later batches together.
    """
    total = 0
    for number, each in reversed([*enumerate(pins)]):
        if is_range(each) and each.size > total:
            return [*pins[number + 1 :]]
        total += each.size
    return [*pins]


def is_range(pin: Pin) -> bool:
    """Return whether a batch was made of several."""
    numbers = numbers_in(pin.partition.name)
    return numbers is not None and numbers.is_range


def _in_a_row(pins: Sequence[Pin], between: Sequence[Partition]) -> list[list[Pin]]:
    """Return groups of batches with consecutive numbers. Each group can be replaced by one combined batch.

    No group reaches across a batch in `between`: it is invalid but may become valid again, or it was written by hand,
    maybe with other columns.
    """
    borders = sorted(numbers.first for at in between if (numbers := numbers_in(at.name)))
    numbered = sorted((numbers, pin) for pin in pins if (numbers := numbers_in(pin.partition.name)))
    rows = groupby(numbered, key=lambda each: sum(border <= each[0].last for border in borders))
    return [[pin for _, pin in group] for _, group in rows]


def _compaction(services: Services, parent: Partition, pins: Sequence[Pin], policy: Compact) -> "_Compaction":
    held = [numbers for pin in pins if (numbers := numbers_in(pin.partition.name))]
    into = Numbers(held[0].first, max(each.last for each in held))
    return _Compaction(services, parent, parent.batch(into.name), tuple(pins), policy)


@dataclass(frozen=True)
class _Compaction:
    """One compaction of several batches into one, while no run builds the partition."""

    services: Services
    parent: Partition
    into: Partition
    pins: tuple[Pin, ...]
    policy: Compact

    def run(self, dagster_run: str | None) -> None:
        with alone(self.services, self.parent, dagster_run) as run_id:
            updates = self._read()
            with self.services.ledger.read() as connection:
                after = batch_sets.last_id(connection, self.parent)
            rewriting = Rewriting(self.services, run_id, self.parent, self.into, self.policy)
            update_id = rewriting.claim(after, partial(self._record, run_id))
            rewriting.publish(update_id, updates, stage=self._stage, confirm=self._read)

    def _record(self, run_id: str, connection: sa.Connection, update_id: str) -> None:
        now = self.services.now()
        compacted.claim(connection, self.into, update_id, run_id=run_id, pins=self.pins, now=now)

    def _read(self) -> list[Update]:
        """Return the newest updates of the batches. Raise UpdateChanged if one is not the planned one, or invalid."""
        try:
            read = [pin(self.services, each.partition, None) for each in self.pins]
        except NoValidUpdate as error:
            raise UpdateChanged(f"{error} Nothing is published.") from error
        if {pin.update_id for _, pin in read} != {pin.update_id for pin in self.pins}:
            raise UpdateChanged(f"{self.parent}: a batch has changed since the compaction was planned. Compact again.")
        return [update for update, _ in read]

    def _stage(self, output: Output) -> None:
        """Record the row count and the batches' joint version.

        Raise NotAsDeclared if the batches had another count.

        Record the size and the number of files of the batches, and not those of the written files. Policies for late
        data compare these two numbers, so a compaction does not look like a change of the input.
        """
        written = output.written
        with self.services.ledger.write() as connection:
            expected = compacted.records(connection, self.pins)
            if expected is not None and expected != written.records:
                raise NotAsDeclared(
                    f"{self.into}: {written.records} rows were written, expected the {expected} of its batches: "
                    "nothing is published. Check them with `feed-assets feed verify`."
                )
            weight = {"size": sum(pin.size for pin in self.pins), "files": sum(pin.files for pin in self.pins)}
            claims.stage(connection, output.update, version_of(self.pins), records=written.records, **weight)
        self.services.on_step("statistics in the ledger")
