"""Build one partition: pin, claim, transform, write, audit, publish.

The process may be killed after any step. The ledger gets claim and pins before the first part is written, and the
statistics before the manifest is written. So `reconcile` can publish an update that has a manifest, and sweep an update
that has none.
"""

import json
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from feed_assets.core.attempts import end_of
from feed_assets.core.errors import IllegalTransition, MixedInputs, NoValidUpdate
from feed_assets.core.feeds import Partition, Update
from feed_assets.core.inputs import WindowInput
from feed_assets.core.message_words import reason_of
from feed_assets.core.needs import Reprocess
from feed_assets.core.pins import changed, pins_digest
from feed_assets.core.plans import BY_HAND, RunSpec
from feed_assets.core.profiles import Measures
from feed_assets.core.reports import text_of
from feed_assets.core.secrets import without_secrets
from feed_assets.core.slices import Slice
from feed_assets.core.waits import Waits
from feed_assets.core.windows import WindowAddress
from feed_assets.core.write_result import Counts
from feed_assets.feeds import write as feed_write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import (
    batch_sets,
    claims,
    inbox,
    increment_base,
    log,
    newest_profiles,
    quality,
    runs,
    tainted,
    update_changes,
    update_counts,
    updates,
    window_facts,
)
from feed_assets.ledger.log import Change
from feed_assets.ledger.states import backfills
from feed_assets.runs import monitors, place_inputs, reconcile
from feed_assets.runs.appending import refuse_other_columns
from feed_assets.runs.maker import MadeRows, Output, Task
from feed_assets.runs.phases import Checked, Claimed, Outcome, Pinned, Published, Refused, Staged, Unchanged
from feed_assets.runs.pinning import BuildRequest, Inputs, backfilled, pin_inputs
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.run_turn import Patience, begin
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.runs.users_code import located

if TYPE_CHECKING:
    import sqlalchemy as sa

NEWEST: Mapping[Partition, str] = MappingProxyType({})
"""The default of `named`: no input updates are named, so the newest valid updates are read."""

NO_WINDOWS: Mapping[str, Sequence[WindowInput]] = MappingProxyType({})

UNKNOWN = runs.Launch()


def build(
    recipe: Recipe,
    output: Partition,
    inputs: Inputs,
    services: Services,
    named: Mapping[Partition, str] = NEWEST,
    run_spec: RunSpec = BY_HAND,
    *,
    launch: runs.Launch = UNKNOWN,
    optional: Set[Partition] = frozenset(),
    windows: Mapping[str, Sequence[WindowInput]] = NO_WINDOWS,
    baseline: Sequence[Partition] = (),
    made_again: Sequence[WindowAddress] = (),
    waits: Waits | None = None,
    absent: Sequence[Partition] = (),
    reprocess: Reprocess = "if_data_changed",
    patience: Patience | None = None,
) -> Outcome:
    """Build a partition from the newest valid updates of its inputs' partitions, or from the updates in `named`.

    `optional` partitions with neither a valid update nor an update in `named` are left out. `windows` of inputs must be
    complete. `waits` says which inputs may be missing, and after what time. `absent` partitions count as missing. Event
    tables are read by the slices of `run_spec`. If `run_spec` consumes the events, the publication also moves the
    markers. The profile is compared with the profiles of the `baseline` partitions. If a person requests the run,
    `made_again` has the windows that the partition fills. The bad windows among them are backfilled. While another run
    builds the partition, this run waits as `patience` allows. Without `patience`, it does not wait.

    Raise AlreadyRunning, NoValidUpdate, MixedInputs, UpdateChanged, UnreadableUpdate, UpdateAbandoned,
    SparkUnavailable, and any error of the function, with secrets masked. The run then ends by the rules of
    `core.attempts` and leaves no valid update.
    """
    run = begin(services, output, launch, patience or Patience())
    services.on_step("started")
    try:
        order = BuildRequest(
            recipe,
            output,
            inputs,
            named=named,
            run_spec=run_spec,
            optional=optional,
            windows=windows,
            baseline=baseline,
            made_again=made_again,
            waits=waits or Waits(),
            absent=absent,
            reprocess=reprocess,
            ignores_quality=bool(launch.asked_by),
        )
        return _Build(order, services, run.id).run()
    except BaseException as error:  # The claims must be finished after an interrupt, too.
        # The ledger gets only the text of this error. Dagster also gets the texts of its causes.
        shown_error = without_secrets(located(error, recipe.transform))
        reconcile.finish(services, run, end_of(error), reason_of(shown_error))
        if shown_error is error:
            raise
    raise shown_error


@dataclass(frozen=True)
class _Build:
    """One build that the ledger has recorded.

    Each phase takes the result of the phase before, so no phase can be skipped.
    """

    order: BuildRequest
    services: Services
    run_id: str

    def run(self) -> Outcome:
        pinned, bad = self._pin(), self._bad()
        if unchanged := self._unchanged(pinned, is_backfill=bool(bad)):
            return unchanged
        claimed = self._claim(pinned)
        self._begin(bad)
        place_inputs.check_answers(self.services)
        task = place_inputs.at_place(self.services, self._task(claimed))
        with place_inputs.watched(self.services, task), self.services.maker().make(task, self._board) as rows:
            staged = self._stage(claimed, rows)
            audited = self._audit(staged, rows)
        if self.order.recipe.is_companion:
            monitors.report(self.services, self.order, staged.pinned, audited.audit.checks, self.run_id)
        is_good = audited.audit.passed or self.order.recipe.is_companion
        outcome = self._publish(audited) if is_good else self._refuse(audited)
        backfills.settle(self.services.ledger, self.services.now())
        return outcome

    @property
    def _board(self) -> Blackboard:
        """Return the blackboard of the outputs. The rejects are on that of their dataset."""
        return self.services.board_of(self.order.output.feed)

    def _pin(self) -> Pinned:
        try:
            return pin_inputs(self.order, self.services)
        except (NoValidUpdate, MixedInputs):
            with (
                self.services.ledger.write() as connection
            ):  # Record empty pins: without pins, this attempt would count for later inputs, too.
                runs.pinned(connection, self.run_id, pins_digest(()))
            raise

    def _unchanged(self, pinned: Pinned, *, is_backfill: bool) -> Unchanged | None:
        """End the build if its result is already published, and return this outcome. Otherwise return None.

        The result may have been published by another run, even by a run that was killed right after the publication.
        """
        output, now = self.order.output, self.services.now()
        if not self.order.recipe.is_appendable:
            sync(self._board, self.services.ledger, output, now)
        with self.services.ledger.change() as connection:
            runs.pinned(connection, self.run_id, pins_digest(pinned.pins))
            published = batch_sets.newest(connection, [output]).get(output)
            if published is None or is_backfill or not self._is_done(connection, published, pinned):
                return None
            log.append(connection, [Change(output, log.UNCHANGED, published.id, now, who=self.run_id)])
            quality.release(connection, [output], self.run_id, now, "it was built from the same inputs")
            inbox.consume_now(connection, {output: self._consumed}, now)
            runs.end(connection, self.run_id, runs.UNCHANGED, now, None)
        return Unchanged(output, published.id, pinned.pins)

    def _is_new_of_table(self, piece: Slice) -> bool:
        tables = {source.feed for source in self.order.recipe.sources if source.is_table}
        return piece.partition.feed in tables and not piece.interval.is_empty

    def _is_done(self, connection: "sa.Connection", published: updates.UpdateRow, pinned: Pinned) -> bool:
        """Return whether the published update already is what this build would publish.

        A run that consumes events is done if the inbox no longer holds these events. For an appendable dataset, only
        the inbox decides: equal slices prove nothing, because a rebuilt batch reads the same slices again. A run by
        hand is never done if it reads event tables, because somebody may have corrected their rows.
        """
        recipe, consumes = self.order.recipe, self.order.run_spec.consumes
        if self._consumed and not inbox.holds(connection, self.order.output, self._consumed):
            return True
        if any(map(self._is_new_of_table, self._consumed)):
            return False  # The event reports changed rows, although the bounds of its slice may be the same.
        reads_again = recipe.is_appendable or (not consumes and any(source.is_table for source in recipe.sources))
        if published.code_version != recipe.code_version or reads_again:
            return False
        if increment_base.lost(connection, {self.order.output: published}):
            return False
        if recipe.grain and not update_counts.is_counted(connection, published.partition, published.id):
            return False  # The update was built before the dataset declared that its rows are counted.
        consumed = updates.consumed_by(connection, published.partition, published.id)
        if backfilled(self.order, self.services, published.changed, consumed):
            return False
        return not changed(pinned.pins, consumed)

    @property
    def _consumed(self) -> list[Slice]:
        """Return the slices (ranges of a table's rows) whose events this run consumes."""
        return [*self.order.run_spec.slices.values()] if self.order.run_spec.consumes else []

    def _claim(self, pinned: Pinned) -> Claimed:
        self.services.on_step("pinned")
        now = self.services.now()
        at = pinned.batch or self.order.output
        ids = tuple(self._claimed(Partition(feed, at.key)) for feed in self.order.recipe.outputs)
        self.services.on_step("claimed on the blackboard")
        with self.services.ledger.change() as connection:
            runs.refuse_given_up(connection, self.run_id)
            claims.claim(
                connection,
                self.run_id,
                ids,
                pins=pinned.pins,
                code_version=self.order.recipe.code_version,
                now=now,
                slices=self._consumed,
                without=pinned.without,
                base=pinned.base and pinned.base[1],
                output=self.order.output,
            )
        self.services.on_step("claimed in the ledger")
        return Claimed(pinned, ids)

    def _bad(self) -> list[WindowAddress]:
        """Return the bad windows that this run rebuilds, even from equal inputs."""
        with self.services.ledger.read() as connection:
            facts = window_facts.known_at(connection, [self.order.made_again] if self.order.made_again else ())
        return [at for at in self.order.made_again if (fact := facts.get(at.partition)) and fact.is_bad]

    def _begin(self, bad: Sequence[WindowAddress]) -> None:
        """Begin the backfills of bad windows that this run rebuilds. Call this after the update ids are claimed.

        After a kill, the process that finishes the claims also ends the backfills of this run.
        """
        for at in bad:
            with suppress(IllegalTransition):  # A window that was reopened cannot be backfilled.
                backfills.begin(self.services.ledger, at, "it is rebuilt by hand", self.run_id, self.services.now())
        if bad:
            self.services.on_step("backfills begun")

    def _claimed(self, at: Partition) -> tuple[Partition, str]:
        with self.services.ledger.read() as connection:
            after = batch_sets.last_id(connection, self.order.output) if self.order.recipe.is_appendable else None
        token, now = self.run_id.encode(), self.services.now()
        return at, feed_write.claim(self._board, at, token, now, after=after)

    def _task(self, claimed: Claimed) -> Task:
        """Return the task of the maker.

        The task is made from the claims, so that no file is written before the claims exist. Otherwise `reconcile`
        would not find the files that a kill leaves behind.
        """
        pinned, recipe = claimed.pinned, self.order.recipe
        updates, pieces = recipe.of_handed(pinned.updates), recipe.of_handed(pinned.slices)
        read = updates, pieces, pinned.run_spec, self._uncounted(pinned), recipe.of_handed(pinned.spans)
        named = place_inputs.board_names(recipe, self.services.place)
        boards = {name: self.services.board_named(board) for name, board in named.items()}
        context = self._baseline(), self._is_suspect(pinned), boards, pinned.base and pinned.base[0]
        return Task(recipe, self.order.output, *read, *context, claims=claimed.ids)

    def _baseline(self) -> tuple[Measures, ...]:
        if not self.order.baseline:
            return ()
        with self.services.ledger.read() as connection:
            return tuple(newest_profiles.profiles_of(connection, self.order.baseline).values())

    def _is_suspect(self, pinned: Pinned) -> bool:
        """Return whether a deep check found a problem when it last ran. If so, the deep checks must run again."""
        deep = {check.name for check in self.order.recipe.deep_checks}
        if not deep:
            return False
        with self.services.ledger.read() as connection:
            states = quality.check_states(connection, monitors.judged(self.order, pinned))
        return any(check in deep and each.state != quality.PASSED for (_, check), each in states.items())

    def _uncounted(self, pinned: Pinned) -> Mapping[str, Sequence[Update]]:
        """Return the input updates whose records this run counts, because no run has counted them before."""
        read = {each.name: pinned.updates[each.name] for each in self.order.recipe.sources if each.grain}
        with self.services.ledger.read() as connection:
            new = update_counts.uncounted(connection, [update for some in read.values() for update in some])
        return {
            name: new_updates for name, some in read.items() if (new_updates := [each for each in some if each in new])
        }

    def _stage(self, claimed: Claimed, rows: MadeRows) -> Staged:
        outputs: list[Output] = []
        for partition, update_id in reversed(
            claimed.ids
        ):  # Write the dataset first, because this shows whether there are rejects.
            outputs.insert(0, Output(partition, update_id, rows.write(partition, update_id)))
            self.services.on_step(f"parts of {partition.feed} written")
        with self.services.ledger.write() as connection:
            runs.refuse_given_up(connection, self.run_id)
            if self.order.recipe.is_appendable:
                refuse_other_columns(connection, outputs[-1])
            for output in outputs:
                written = output.written
                windows = None if written.windows is None else text_of(written.windows)
                statistics: dict[str, Any] = {"records": written.records, "first": written.first, "last": written.last}
                statistics |= {"columns": json.dumps(written.columns), "windows": windows}
                claims.stage(connection, output.update, written.data_version, **statistics)
        self._keep(rows.counted())
        self.services.on_step("statistics in the ledger")
        return Staged(claimed.pinned, tuple(outputs))

    def _keep(self, counts: Sequence[tuple[Update, Counts]]) -> None:
        """Store the numbers of records of the inputs in the ledger. They stay even if this run fails later.

        If the process is killed before this, the next run counts the inputs.
        """
        if counts:
            with self.services.ledger.change() as connection:
                update_counts.keep(connection, counts, self.run_id, self.services.now())

    def _audit(self, staged: Staged, rows: MadeRows) -> Checked:
        """Run the checks, and record the results in the ledger before the manifest is written.

        If the process is killed after the manifest, `reconcile` publishes the update and reports these results.
        """
        audit, output = rows.audit(staged.outputs), staged.outputs[-1]
        with self.services.ledger.write() as connection:
            if not self.order.recipe.is_companion:
                states = {each.check.name: each.state for each in audit.checks}
                claims.audited(connection, output.update, states, audit.figures)
            if audit.measures is not None and (audit.passed or self.order.recipe.is_companion):
                newest_profiles.keep(connection, output.partition, output.id, audit.measures, self.services.now())
        self.services.on_step("audited")
        return Checked(staged, audit)

    def _refuse(self, audited: Checked) -> Refused:
        """Record that the outputs are refused because a check failed.

        Their parts stay for examination. Without a manifest no reader sees them.
        """
        staged, now = audited.staged, self.services.now()
        refused = Refused(staged.outputs, staged.pinned.pins, audited.audit.checks)
        with self.services.ledger.change() as connection:
            for output in refused.outputs:
                update_changes.change(
                    connection, output.partition, output.id, updates.REFUSED, now, reason=refused.reason
                )
            for result in refused.checks:
                name, outcome = result.check.name, result.state
                quality.report(
                    connection,
                    self.order.output,
                    name,
                    state=outcome.state,
                    reason=outcome.reason,
                    by=self.run_id,
                    now=now,
                )
            runs.end(connection, self.run_id, updates.REFUSED, now, refused.reason)
        return refused

    def _publish(self, audited: Checked) -> Published:
        """Publish the rejects before the clean update, so that readers of the clean rows can see what was left out.

        A run that was given up publishes nothing. If it is given up between `refuse_given_up` and the manifest, its
        parts are swept. The manifest then counts files that no longer exist, so no reader takes the update. If it is
        given up after the manifest, `reconcile` has published this update.
        """
        staged, audit = audited.staged, audited.audit
        for output in staged.outputs:
            with self.services.ledger.read() as connection:
                runs.refuse_given_up(connection, self.run_id)
            feed_write.seal(self._board, output.partition, output.id, output.written.files)
            self.services.on_step(f"manifest of {output.partition.feed} written")
        with self.services.ledger.change() as connection:
            if not runs.is_published(connection, self.run_id):
                runs.refuse_given_up(connection, self.run_id)
                for output in staged.outputs:
                    update_changes.publish(connection, output.partition, output.id, self.services.now())
                tainted.mark(connection, self.order.output, self.services.now())
                runs.end(connection, self.run_id, updates.PUBLISHED, self.services.now(), None)
        self.services.on_step("published")
        pinned = staged.pinned
        results = staged.outputs, pinned.pins, audit.checks, audit.preview, audit.chart
        return Published(*results, pinned.without, pinned.base and pinned.base[1])
