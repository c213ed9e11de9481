"""Runs of the simulation of scale: what a run writes to the ledger, without a process, Spark and files."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from benchmarks import executed_statements
from benchmarks.scale_model import Model, version_of
from feed_assets.core.feeds import File, Partition, Update
from feed_assets.core.pins import Pin, pins_digest
from feed_assets.ledger import claims, runs, tainted, update_changes, updates
from feed_assets.ledger.database import Ledger

LONGEST = 4
"""Longest duration of a run, in steps of five minutes."""


@dataclass(frozen=True)
class Running:
    """A run that has pinned its inputs."""

    id: str
    output: Partition
    pins: tuple[Pin, ...]
    ends: datetime
    by_hand: bool


@dataclass
class SimulatedRuns:
    """The runs in progress. `statements` are those of runs that have `finished`."""

    ledger: Ledger
    model: Model
    random: Random
    running: dict[Partition, Running] = field(default_factory=dict[Partition, Running])
    launched: int = 0
    finished: int = 0
    statements: int = 0

    def start(self, output: Partition, now: datetime, *, by_hand: bool = False) -> int:
        """Start a run, and pin its inputs. Return the number of runs that were started."""
        if not by_hand:
            self.model.judge(output, output in self.running)
            self.launched += 1
        inputs = [(at, self.model.newest(at)) for at in self.model.inputs(output)]
        if output in self.running or any(newest is None for _, newest in inputs):
            return 0
        pins = tuple(Pin(at, new.id, new.version, new.size, 1) for at, new in inputs if new)
        number = f"{self.launched:08}-{output.path}-{now:%d%H%M}"
        asked_by = "ada" if by_hand else None
        runs.start(self.ledger, runs.Run(number, output, runs.RUNNING, "host:1:1", now, asked_by=asked_by))
        ends = now + timedelta(minutes=5 * self.random.randrange(1, LONGEST + 1))
        self.running[output] = Running(number, output, pins, ends, by_hand)
        return 1

    def finish(self, now: datetime) -> None:
        """Publish the updates of runs whose time is over, each in the transactions of a run."""
        over = [each for each in self.running.values() if each.ends <= now]
        with executed_statements() as statements:
            for run in over:
                self._publish(run, now)
                del self.running[run.output]
        self.finished += len(over)
        self.statements += len(statements)

    def _publish(self, run: Running, now: datetime) -> None:
        read = tuple(pin.version for pin in run.pins)
        version = version_of(run.output, read, {"by hand": run.id} if run.by_hand else {})
        new = self.model.published(run.output, now, read, version)
        written = Update(run.output, new.id, (File(f"{run.output.path}/{new.id}/part-0.parquet", new.size),))
        with self.ledger.change() as connection:
            runs.pinned(connection, run.id, pins_digest(run.pins))
            claims.claim(connection, run.id, [(run.output, new.id)], run.pins, "1", now, output=run.output)
        with self.ledger.write() as connection:
            claims.stage(connection, written, version, records=1)
            claims.audited(connection, written, {}, {})
        with self.ledger.change() as connection:
            update_changes.publish(connection, run.output, new.id, now)
            tainted.mark(connection, run.output, now)
            runs.end(connection, run.id, updates.PUBLISHED, now, None)
