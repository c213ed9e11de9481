"""Exclusive work on the batches of a partition, while no run builds it: it is a run itself, recorded in the ledger."""

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
def alone(services: Services, output: Partition) -> Generator[str]:
    """Yield the id of a run, which the caller ends in the transaction of its work; if that raises, the run is finished.

    Raise AlreadyRunning while another run builds the partition. If it is killed, `reconcile` finishes it.
    """
    run = runs.Run(uuid4().hex, output, runs.RUNNING, process=this_process(), started=services.now())
    runs.start(services.ledger, run)
    services.on_step("started")
    try:
        yield run.id
    except BaseException as error:  # Also an interrupt: whatever ends the run, its claim is finished.
        reconcile.finish(services, run, ABANDONED, reason_of(error))
        raise
