"""Finish or sweep the claims of runs that failed or whose process was killed.

A claimed update with a valid manifest is published: a run writes the manifest last, when pins and statistics are in the
ledger. An update without a manifest is abandoned. Both steps may be repeated.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feed_assets.core.attempts import ABANDONED
from feed_assets.core.errors import BlackboardError
from feed_assets.core.feeds import Partition
from feed_assets.core.orphans import RULES, AttemptStatus, Contents, Treatment
from feed_assets.feeds import read
from feed_assets.ledger import claims, compacted, runs, tainted, update_changes, updates
from feed_assets.ledger.runs import Run
from feed_assets.ledger.states import backfills
from feed_assets.runs.orphan_sweep import FINISHED, SWEPT, OrphanAction, contents_of
from feed_assets.runs.services import Services, is_dead

_log = logging.getLogger(__name__)

GONE = "its process is gone, or Dagster has ended its run"


@dataclass(frozen=True)
class FinishedRun:
    """The result for the update ids that an ended run had claimed: some were published, the others were swept."""

    run: Run
    published: tuple[updates.UpdateRow, ...]
    swept: tuple[updates.UpdateRow, ...]

    @property
    def is_published(self) -> bool:
        """Return whether the run's own output is published, not only its rejects."""
        return any(self.run.output in (row.partition, row.partition.parent) for row in self.published)

    @property
    def done(self) -> tuple[OrphanAction, ...]:
        """Return the result for each update, with the reason."""
        ended = f"run {self.run.id} ended without recording its end"
        finished = [
            OrphanAction(FINISHED, row.partition, row.id, f"it has a manifest; {ended}") for row in self.published
        ]
        return (
            *finished,
            *(OrphanAction(SWEPT, row.partition, row.id, f"it is not valid; {ended}") for row in self.swept),
        )


def process_is_dead(run: Run) -> bool:
    """Return whether the process of a run has ended for certain."""
    return is_dead(run.process)


def reconcile(
    services: Services, has_ended: Callable[[Run], bool] = process_is_dead, output: Partition | None = None
) -> tuple[FinishedRun, ...]:
    """Finish every run that is running in the ledger but whose process is gone. Finish open claims of ended runs, too.

    With `output`, finish only the runs of this partition, before it is built again.
    """
    with services.ledger.read() as connection:
        believed, claiming = runs.running(connection, output), runs.with_claims(connection, output)
    killed = tuple(finish(services, run, ABANDONED, GONE) for run in believed if has_ended(run))
    ended = tuple(finish(services, run, run.state, run.reason or run.state) for run in claiming)
    backfills.settle(services.ledger, services.now())
    return killed + ended


def finish(services: Services, run: Run, state: str, reason: str) -> FinishedRun:
    """End a run: publish its claimed updates that have a valid manifest, sweep the others.

    If the blackboard is unreachable, the claims stay open for the next `reconcile`. If the run has ended since it was
    read from the ledger, that end stays. For example, a run that was refused meanwhile stays refused, so it still
    blocks its consumers.
    """
    with services.ledger.read() as connection:
        claimed = claims.claimed_by(connection, run.id)
    try:
        finished = _sort(services, run, claimed)
    except BlackboardError as error:
        _log.warning("%s: the claims of run %s stay open: %s", run.output, run.id, error)
        finished = FinishedRun(run, (), ())
    with services.ledger.change() as connection:
        if not runs.is_as_read(connection, run):
            return FinishedRun(run, (), ())
        for row in finished.published:
            update_changes.publish(connection, row.partition, row.id, services.now())
        for row in finished.swept:
            update_changes.change(connection, row.partition, row.id, updates.ABANDONED, services.now(), reason=reason)
        if finished.is_published:
            tainted.mark(connection, run.output, services.now())
        ended = updates.PUBLISHED if finished.is_published else state
        runs.end(connection, run.id, ended, services.now(), None if finished.is_published else reason)
    backfills.settle(services.ledger, services.now())
    return finished


def _sort(services: Services, run: Run, claimed: Sequence[updates.UpdateRow]) -> FinishedRun:
    """Sort claims into updates to publish and updates to sweep. Sweep the second group.

    Both are done at once, because the run that wrote the claims has ended, or is ending now.
    """
    published = tuple(
        row for row in claimed if _fate(services, row) is Treatment.FINISH and not _is_taken_back(services, row)
    )
    swept = tuple(row for row in claimed if row not in published)
    for row in swept:
        services.board_of(row.partition.feed).sweep(f"{row.partition.path}/{row.id}")
    return FinishedRun(run, published, swept)


def _fate(services: Services, row: updates.UpdateRow) -> Treatment:
    contents, _ = contents_of(services, row.partition, row.id)
    return RULES[AttemptStatus.GIVEN_UP][contents]


def _is_taken_back(services: Services, row: updates.UpdateRow) -> bool:
    """Return whether an update that a compaction replaces became invalid before the new manifest was there.

    A replaced update that was pruned, or whose files are gone, is none: then only the new update has its rows. A batch
    with a newer update counts as invalid.
    """
    with services.ledger.read() as connection:
        pins = compacted.replaced(connection, row)
        replaced = {pin: updates.find(connection, pin.partition, pin.update_id) for pin in pins}
    for pin in (each for each, known in replaced.items() if known is None or known.state != updates.PRUNED):
        contents, _ = contents_of(services, pin.partition, pin.update_id)
        if contents in (Contents.PARTS, Contents.MISCOUNTED):
            return True
        board = services.board_of(pin.partition.feed)
        newest = read.latest(board, pin.partition).update if pin.partition != row.partition else None
        if newest and newest.id > pin.update_id:
            return True
    return False
