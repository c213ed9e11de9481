"""Start a run of a partition once no other run builds it. Finish the other run if its process is gone.

A waiting run holds neither a claim nor an engine, so two runs never wait for each other. A run that also needs a
compute target first waits for its turn (`wait_for_turn`). So a waiting run holds no cores.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from time import sleep
from uuid import uuid4

from feed_assets.core.errors import AlreadyRunning
from feed_assets.core.feeds import Partition
from feed_assets.ledger import runs
from feed_assets.runs.reconcile import process_is_dead, reconcile
from feed_assets.runs.services import Services, this_process

LOOK_SECONDS = 1.0
"""Seconds between two checks of the other run."""


def _silent(_: str) -> None:
    """Do nothing."""


@dataclass
class Patience:
    """Rules for how long a run waits for other runs (for all of its partitions together), and how it waits.

    `pause` waits for some seconds, and raises an error if the run is interrupted. `tell` gets a message about each
    other run for which this run waits. `has_ended` returns whether another run is over, although it is still running
    according to the ledger.
    """

    seconds: float = 0
    pause: Callable[[float], object] = sleep
    tell: Callable[[str], object] = _silent
    has_ended: Callable[[runs.Run], bool] = process_is_dead
    spent: float = field(default=0, init=False)

    @property
    def seconds_left(self) -> float:
        """Return the seconds that the run may still wait."""
        return max(self.seconds - self.spent, 0)

    def wait(self) -> None:
        """Wait until the next check. Count the planned time, even if the clock shows a different time."""
        seconds = min(LOOK_SECONDS, self.seconds_left)
        self.spent += seconds
        self.pause(seconds)


def wait_for_turn(services: Services, outputs: Sequence[Partition], patience: Patience) -> None:
    """Wait until at least one output is built by no other run, or until `patience` is used up. Start nothing."""
    reported_run: str | None = None
    while (other_runs := _first_busy(services, outputs, patience)) and patience.seconds_left:
        if other_runs[0].id != reported_run:
            patience.tell(_in_words(other_runs[0], patience))
            reported_run = other_runs[0].id
        patience.wait()


def has_its_turn(services: Services, outputs: Sequence[Partition], patience: Patience) -> bool:
    """Return whether at least one of the outputs is built by no other run."""
    return not _first_busy(services, outputs, patience)


def _first_busy(services: Services, outputs: Sequence[Partition], patience: Patience) -> Sequence[runs.Run]:
    """Return the runs that build the first output. Return () if one of the outputs is free."""
    busy = list[Sequence[runs.Run]]()
    for output in outputs:
        busy.append(_in_progress(services, output, patience))
        if not busy[-1]:
            return ()
    return busy[0] if busy else ()


def _in_progress(services: Services, output: Partition, patience: Patience) -> Sequence[runs.Run]:
    """Return the runs that build an output. The leftovers of ended runs are finished first."""
    reconcile(services, patience.has_ended, output)
    with services.ledger.read() as connection:
        return runs.running(connection, output)


def begin(services: Services, output: Partition, launch: runs.Launch, patience: Patience) -> runs.Run:
    """Record the start of a run as soon as no other run builds its partition.

    Before each check, the leftovers of ended runs are finished. Raise AlreadyRunning when `patience` is used up, and
    PartitionClosed if the partition is closed.
    """
    while True:
        wait_for_turn(services, [output], patience)
        try:
            return _started(services, output, launch)
        except AlreadyRunning as error:
            if patience.seconds_left:
                continue  # Another run started first, so check again.
            if not patience.spent:
                raise
            raise AlreadyRunning(f"{error} This run has waited {patience.spent:.0f} s.") from error


def _started(services: Services, output: Partition, launch: runs.Launch) -> runs.Run:
    process, now = this_process(), services.now()
    run = runs.Run(uuid4().hex, output, runs.RUNNING, process=process, started=now, **asdict(launch))
    runs.start(services.ledger, run)
    return run


def _in_words(other: runs.Run, patience: Patience) -> str:
    return (
        f"{other.output} is being built by run {other.dagster_run or other.id} in process {other.process} since "
        f"{other.started:%Y-%m-%d %H:%M:%S} UTC: this run waits for it, for up to {patience.seconds_left:.0f} s."
    )
