"""Exclusive work on a partition, such as a compaction or a revalidation.

The work is recorded as a run, so that no other run builds the partition.
"""

from collections.abc import Generator
from contextlib import contextmanager
from uuid import uuid4

from feed_assets.core.attempts import ABANDONED
from feed_assets.core.feeds import Partition
from feed_assets.core.message_words import reason_of
from feed_assets.ledger import runs
from feed_assets.runs import reconcile
from feed_assets.runs.services import Services, this_process


@contextmanager
def alone(services: Services, output: Partition, dagster_run: str | None = None) -> Generator[str]:
    """Start a run and yield its id. The caller ends the run in the transaction of its work.

    `dagster_run` is the Dagster run that does the work. Its state tells any machine whether the work has ended.

    If the caller raises an error, the run is finished as abandoned. Raise AlreadyRunning while another run builds the
    partition. After a kill, `reconcile` finishes this run.
    """
    run = runs.Run(
        uuid4().hex, output, runs.RUNNING, process=this_process(), started=services.now(), dagster_run=dagster_run
    )
    runs.start(services.ledger, run)
    services.on_step("started")
    try:
        yield run.id
    except BaseException as error:  # Finish the run's claims after an interrupt, too.
        reconcile.finish(services, run, ABANDONED, reason_of(error))
        raise
