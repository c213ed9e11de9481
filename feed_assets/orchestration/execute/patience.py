"""Rules for a Dagster run that waits for another run of the same partition."""

import logging
import sys
from functools import partial
from threading import Event

import dagster as dg

from feed_assets.ledger.runs import Run
from feed_assets.orchestration.execute.makers import DRIVER
from feed_assets.runs.run_turn import Patience
from feed_assets.runs.services import is_dead
from feed_assets.settings import settings

_logger = logging.getLogger(__name__)


def patience_of(context: dg.AssetExecutionContext, interrupted: Event) -> Patience:
    """Return the patience of a run: how long it waits for other runs, and where it reports that it waits.

    The wait ends once `interrupted` is set.
    """
    return Patience(
        settings().run_wait_seconds,
        partial(_pause, interrupted),
        partial(_tell, context),
        partial(has_ended, context.instance),
    )


def _pause(interrupted: Event, seconds: float) -> None:
    """Wait some seconds. Raise KeyboardInterrupt once `interrupted` is set.

    Only the main thread gets signals, so other threads need this check.
    """
    if interrupted.wait(seconds):
        raise KeyboardInterrupt("the run that builds it was stopped")


def _tell(context: dg.AssetExecutionContext, reason: str) -> None:
    """Write why a run waits to the run's log. Also write it to the run's output, or to the user's terminal."""
    context.log.info(reason)
    if DRIVER in context.run.tags:
        _logger.warning(reason)
    else:
        sys.stdout.write(f"{reason}\n")


def has_ended(instance: dg.DagsterInstance, run: Run) -> bool:
    """Return whether a run is over although the ledger still lists it as running.

    If its process is not known to be dead, for example on another host, Dagster's state of the run decides.
    """
    if is_dead(run.process):
        return True
    dagster_run = instance.get_run_by_id(run.dagster_run) if run.dagster_run else None
    return dagster_run is not None and dagster_run.is_finished
