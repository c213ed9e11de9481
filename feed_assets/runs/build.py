"""Build one partition: pin, claim, transform, write, audit, publish.

Each step may be the last one (a kill): the ledger has claim and pins before the first part is written and the
statistics before the manifest, so `reconcile` can finish what has a manifest and sweep what has none.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import uuid4

from feed_assets.core.errors import NoValidUpdate
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.plans import BY_HAND, Work
from feed_assets.core.positions import Pin, changed, pins_digest
from feed_assets.core.propagation import Slice
from feed_assets.feeds import write as feed_write
from feed_assets.ledger import inbox, runs, updates
from feed_assets.runs import reconcile, slices
from feed_assets.runs.checks import Audited, CheckResult, run_checks
from feed_assets.runs.observe import observe, pin, pin_batches
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.workbench import Workbench, this_process

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import sqlalchemy as sa

    from feed_assets.runs.transform import Cut, Found, Made
    from feed_assets.spark.write import Written

NEWEST: Mapping[Partition, str] = MappingProxyType({})
"""No update of an input is named: read the newest valid ones."""


@dataclass(frozen=True)
class Output:
    """One update that a run wrote, and what is in it."""

    partition: Partition
    id: str
    written: "Written"

    @property
    def update(self) -> Update:
        """The update with the exact files that were written."""
        return Update(self.partition, self.id, self.written.files)


@dataclass(frozen=True)
class Published:
    """The partition has a new update (the last of `outputs`; before it its rejects)."""

    outputs: tuple[Output, ...]
    pins: tuple[Pin, ...]
    checks: tuple[CheckResult, ...]
    preview: str
    """The first rows as Markdown."""
    chart: str | None
    """What the recipe's `chart` made of the rows."""


@dataclass(frozen=True)
class Refused:
    """A blocking check failed: nothing is published, and readers keep the previous valid update."""

    outputs: tuple[Output, ...]
    pins: tuple[Pin, ...]
    checks: tuple[CheckResult, ...]

    @property
    def reason(self) -> str:
        """Every failed check in words."""
        return "; ".join(result.message for result in self.checks if not result.passed)


@dataclass(frozen=True)
class Unchanged:
    """The published update was built from these very inputs: nothing was done."""

    update_id: str
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class _Audit:
    checks: tuple[CheckResult, ...]
    preview: str
    chart: str | None


Outcome = Published | Refused | Unchanged
Inputs = Mapping[str, Sequence[Partition]]


def build(
    recipe: Recipe,
    output: Partition,
    inputs: Inputs,
    bench: Workbench,
    named: Mapping[Partition, str] = NEWEST,
    dagster_run: str | None = None,
    work: Work = BY_HAND,
    *,
    optional: Set[Partition] = frozenset(),
) -> Outcome:
    """Build a partition from the partitions of each input: their newest valid updates, or those named.

    `optional` partitions are left out if they have no valid update, unless one is named. Of event tables the slices of
    `work` are read; if it consumes, markers move with the publication.

    Raises AlreadyRunning, NoValidUpdate, UpdateChanged, UnreadableUpdate, UpdateAbandoned, and what the function
    raises; the run is then `failed` in the ledger and leaves no valid update.
    """
    reconcile.release_dead(bench, output)
    run = runs.Run(uuid4().hex, output, runs.RUNNING, None, dagster_run, this_process(), bench.now(), None)
    runs.start(bench.ledger, run)
    bench.on_step("started")
    try:
        return _Build(recipe, output, bench, run.id, work, optional).run(inputs, named)
    except BaseException as error:  # Also an interrupt: whatever ends the run, its claims are settled.
        reconcile.settle(bench, run, runs.FAILED, f"{type(error).__name__}: {error}"[:1000])
        raise


def _reads_tables(recipe: Recipe) -> bool:
    return any(source.is_table for source in recipe.sources)


@dataclass(frozen=True)
class _Build:
    recipe: Recipe
    output: Partition
    bench: Workbench
    run_id: str
    work: Work
    optional: Set[Partition]

    @property
    def consumed(self) -> list[Slice]:
        """Whose events this run consumes."""
        return [*self.work.slices.values()] if self.work.consumes else []

    def run(self, inputs: Inputs, named: Mapping[Partition, str]) -> Outcome:
        tables = {source.name for source in self.recipe.sources if source.is_table}
        found = self._pin({name: each for name, each in inputs.items() if name not in tables}, named)
        cut = {name: slices.cut(self.bench.ledger, self.work, inputs[name]) for name in tables}
        pinned = {pin for pairs in found.values() for _, pin in pairs} | slices.pins_of(cut)
        pins = tuple(sorted(pinned | slices.carried(self.bench.ledger, self.recipe, self.output, pinned)))
        if not pins:
            raise NoValidUpdate(f"{self.output}: none of its inputs has an event yet: expected one. Wait for it.")
        if unchanged := self._unchanged(pins):
            return unchanged
        claimed = self._claim(pins)
        updates_of = {name: [update for update, _ in pairs] for name, pairs in found.items()}
        with self._transformed(updates_of, cut) as made:
            outputs = self._write(claimed, made)
            audit = self._audit(outputs, made)
        if not all(result.passed for result in audit.checks):
            return self._refuse(Refused(outputs, pins, audit.checks))
        return self._publish(Published(outputs, pins, audit.checks, audit.preview, audit.chart))

    def _pin(self, inputs: Inputs, named: Mapping[Partition, str]) -> dict[str, list[tuple[Update, Pin]]]:
        try:
            return {
                name: [pair for partition in partitions for pair in self._pinned(name, partition, named)]
                for name, partitions in inputs.items()
            }
        except NoValidUpdate:
            with self.bench.ledger.write() as connection:  # It read nothing: no attempt on the inputs that will come.
                runs.pinned(connection, self.run_id, pins_digest(()))
            raise

    def _pinned(self, name: str, partition: Partition, named: Mapping[Partition, str]) -> list[tuple[Update, Pin]]:
        try:
            return self._required(name, partition, named)
        except NoValidUpdate:
            if partition not in self.optional or any(partition in (each, each.holder) for each in named):
                raise
            return []

    def _required(self, name: str, partition: Partition, named: Mapping[Partition, str]) -> list[tuple[Update, Pin]]:
        if any(source.is_appendable for source in self.recipe.sources if source.name == name):
            return pin_batches(self.bench, partition, named)
        return [pin(self.bench, partition, named.get(partition))]

    def _unchanged(self, pins: tuple[Pin, ...]) -> Unchanged | None:
        observe(self.bench.board, self.bench.ledger, self.output, self.bench.now())
        with self.bench.ledger.write() as connection:
            runs.pinned(connection, self.run_id, pins_digest(pins))
            published = updates.newest(connection, self.output)
            if published is None or not self._is_done(connection, published, pins):
                return None
            # What is published is good again: consumers that a refused run held look once more.
            updates.change(connection, self.output, published.id)
            inbox.consume_now(connection, self.output, self.consumed, self.bench.now())
            runs.end(connection, self.output, self.run_id, runs.UNCHANGED, self.bench.now(), None)
        return Unchanged(published.id, pins)

    def _is_done(self, connection: "sa.Connection", published: updates.Row, pins: tuple[Pin, ...]) -> bool:
        """Whether this very work was published: by this run before it was killed, or by one that was faster.

        By events the inbox tells. A run by hand reads a table again, whose rows somebody may have mended.
        """
        if self.consumed and not inbox.holds(connection, self.output, self.consumed):
            return True
        if published.code_version != self.recipe.code_version or (
            not self.work.consumes and _reads_tables(self.recipe)
        ):
            return False
        return not changed(pins, updates.consumed_by(connection, self.output, published.id))

    def _claim(self, pins: tuple[Pin, ...]) -> tuple[tuple[Partition, str], ...]:
        self.bench.on_step("pinned")
        partitions = [Partition(feed, self.output.key) for feed in self.recipe.outputs]
        token = self.run_id.encode()
        now = self.bench.now()
        claimed = tuple((place, feed_write.claim(self.bench.board, place, token, now)) for place in partitions)
        self.bench.on_step("claimed on the blackboard")
        with self.bench.ledger.write() as connection:
            updates.claim(connection, self.run_id, claimed, pins, self.recipe.code_version, now, self.consumed)
        self.bench.on_step("claimed in the ledger")
        return claimed

    def _transformed(self, found: "Found", cut: "Cut") -> "AbstractContextManager[Made]":
        from feed_assets.runs.transform import (
            Given,
            transformed,
        )  # Spark, and so only when there is something to build.

        given = Given(found, cut, self.work)
        return transformed(self.recipe, self.output, given, self.bench.spark(), self.bench.board)

    def _write(self, claimed: Sequence[tuple[Partition, str]], made: "Made") -> tuple[Output, ...]:
        from feed_assets.spark.write import write

        outputs: list[Output] = []
        for (partition, update_id), frame in zip(claimed, made.outputs, strict=True):
            event_time = self.recipe.event_time if partition == self.output else None
            written = write(frame, self.bench.board, partition, update_id, event_time=event_time)
            outputs.append(Output(partition, update_id, written))
            self.bench.on_step(f"parts of {partition.feed} written")
        self._stage(outputs)
        return tuple(outputs)

    def _stage(self, outputs: Sequence[Output]) -> None:
        with self.bench.ledger.write() as connection:
            for output in outputs:
                written = output.written
                statistics = {"records": written.records, "first": written.first, "last": written.last}
                updates.stage(connection, output.update, written.data_version, **statistics)
        self.bench.on_step("statistics in the ledger")

    def _audit(self, outputs: Sequence[Output], made: "Made") -> "_Audit":
        """Run the checks on what is on the blackboard now, not on what was meant to be written."""
        from feed_assets.spark.read import read_own
        from feed_assets.spark.write import preview

        main = outputs[-1]
        written = read_own(self.bench.spark(), self.bench.board, main.update, main.written.schema)
        rejected = sum(output.written.records for output in outputs[:-1])
        checks = run_checks(
            self.recipe.checks, Audited(written, main.written.records, rejected, made.inputs, made.read)
        )
        chart = self.recipe.chart(written) if self.recipe.chart else None
        self.bench.on_step("audited")
        return _Audit(checks, preview(written), chart)

    def _refuse(self, refused: Refused) -> Refused:
        """The parts stay for whoever looks into it; without a manifest no reader sees them."""
        now = self.bench.now()
        with self.bench.ledger.write() as connection:
            for output in refused.outputs:
                values = {"state": updates.REFUSED, "reason": refused.reason}
                updates.change(connection, output.partition, output.id, **values)
            runs.end(connection, self.output, self.run_id, updates.REFUSED, now, refused.reason)
        return refused

    def _publish(self, published: Published) -> Published:
        """Rejects before the clean update: who sees the clean rows can see what was left out."""
        for output in published.outputs:
            feed_write.seal(self.bench.board, output.partition, output.id, output.written.files)
            self.bench.on_step(f"manifest of {output.partition.feed} written")
        with self.bench.ledger.write() as connection:
            for output in published.outputs:
                updates.publish(connection, output.partition, output.id, self.bench.now())
            runs.end(connection, self.output, self.run_id, updates.PUBLISHED, self.bench.now(), None)
        self.bench.on_step("published")
        return published
