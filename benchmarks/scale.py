"""Simulation of many datasets in one process: the real decisions on simulated time, without Spark and files.

Usage: .venv/bin/python -m benchmarks.scale [--datasets 2000] [--days 90] [--hours 24] [--seed 0] [--sqlite]

The ledger gets the rows that `--days` days leave. Then hours are simulated: files of foreign feeds arrive late with a
heavy tail, some are corrected, people start backfills, and runs take minutes. The steps of the sensor `feeds` that
decide (fan out, decide, request) and the sensors of late data are those of the product. What a run writes to the
ledger is written by the product's functions, too. An oracle in plain Python checks each run that is requested.
"""

import argparse
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from logging import getLogger
from pathlib import Path
from random import Random
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter

import dagster as dg

from benchmarks import at_home, executed_statements
from benchmarks.events import postgresql
from benchmarks.scale_arrivals import Arrivals
from benchmarks.scale_graph import REGIONS, ScaleGraph, hour, key_of, partition
from benchmarks.scale_model import Model
from benchmarks.scale_runs import SimulatedRuns
from feed_assets.core.feeds import Partition
from feed_assets.ledger import log, update_changes, updates
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.ledger.old_rows import prune_log
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to, look_at_held
from feed_assets.orchestration.decide.requests import in_progress, joined, requests_for
from feed_assets.orchestration.decide.run_blocks import RANGE_START, named_by
from feed_assets.orchestration.declare.dagster_warnings import without_dagsters_notes
from feed_assets.orchestration.ticks.steps import DECIDE, DECISIONS_PER_TICK, FAN_OUT
from feed_assets.orchestration.ticks.tick import Budget
from feed_assets.settings import settings

STEP = timedelta(minutes=5)
STEPS_OF_HOUR = 12
IDLE_STEPS = 12
"""Steps without a run after which nothing is expected any more."""

BACKFILLS = 200


@dataclass
class Spent:
    """Seconds and statements of one kind of work, and how much of it was done."""

    seconds: list[float] = field(default_factory=list[float])
    statements: int = 0
    done: int = 0

    @property
    def total(self) -> float:
        """Return all seconds."""
        return sum(self.seconds)

    @property
    def p95(self) -> float:
        """Return the 95th percentile of the seconds."""
        return quantiles(self.seconds, n=20)[-1] if len(self.seconds) > 1 else self.total


@dataclass(frozen=True)
class Figures:
    """The result of a simulation."""

    datasets: int
    history_updates: int
    hours: int
    decisions: int
    decisions_per_second: float
    statements_per_decision: float
    ticks: int
    tick_p95_seconds: float
    conditions_p95_seconds: float
    fill_seconds: float
    launches: int
    reruns: int
    backfilled: int
    wrong: int
    missed: int
    run_statements: float
    changes: int
    bytes_per_million_changes: int | None
    rows_pruned: int


@dataclass
class Simulation:
    """Simulated hours of one code location, beginning after `first` hours of history."""

    scale: ScaleGraph
    ledger: Ledger
    instance: dg.DagsterInstance
    first: int
    hours: int
    seed: int = 0
    ticks: Spent = field(default_factory=Spent)
    conditions: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)  # noqa: S311
        self.model = Model(self.scale, hour(self.first))
        self.runs = SimulatedRuns(self.ledger, self.model, self.random)
        self.arrivals = Arrivals(self.scale, self.first, self.hours, self.random)
        self.backfilled = 0

    def run(self, after_hour: Callable[[], object] = lambda: None) -> None:
        """Simulate the hours, and go on until nothing runs and nothing is left to decide.

        Call `after_hour` at the end of each hour.
        """
        steps = self.hours * STEPS_OF_HOUR
        backfills = sorted(self.random.randrange(steps) for _ in range(BACKFILLS * self.hours // 24))
        for step in range(steps):
            self._step(step, backfills.count(step))
            if (step + 1) % STEPS_OF_HOUR == 0:
                after_hour()
        idle = 0
        while idle < IDLE_STEPS:
            idle = 0 if self._step(steps, 0) or self.arrivals.planned else idle + 1
            steps += 1

    def _step(self, number: int, backfills: int) -> bool:
        """Take one step of time. Return whether something was requested or still runs."""
        self.now = hour(self.first) + (number + 1) * STEP
        self._arrive()
        self.runs.finish(self.now)
        for _ in range(backfills):
            self.backfilled += self._backfill()
        before = self.runs.launched
        with dg.partition_loading_context(self.now, self.instance):
            while not self._tick():
                pass
            self._late_data()
        return self.runs.launched > before or bool(self.runs.running)

    def _arrive(self) -> None:
        """Record the files that have arrived, as discovery does."""
        minutes = (self.now - hour(self.first)) / timedelta(minutes=1)
        with self.ledger.change() as connection:
            for number, at, what in self.arrivals.until(minutes):
                new = self.model.arrived(at, self.now, "again" if what == "again" else f"{what} {number} {minutes}")
                values = {"version": new.version, "size": new.size, "files": 1, "correlation": f"{at.path}/{new.id}"}
                update_changes.insert(
                    connection, at, new.id, origin=updates.FOREIGN, state=updates.PUBLISHED, at=self.now, **values
                )

    def _backfill(self) -> int:
        """Start runs by hand of some hours of a dataset's history. Return their number."""
        name = self.random.choice([*self.scale.inputs])
        begin, region = self.random.randrange(self.first), self.random.choice(REGIONS)
        hours = range(begin, min(begin + self.random.randrange(1, 48), self.first))
        outputs = [partition(name, key_of(each, region)) for each in hours]
        return sum(self.runs.start(each, self.now, by_hand=True) for each in outputs if each not in self.runs.running)

    def _tick(self) -> bool:
        """Take the steps of a tick of the sensor `feeds` that decide. Return whether nothing is left to decide."""
        graph, datasets = self.scale.graph, self.scale.graph.datasets_of(None)
        with _measured(self.ticks):
            budget = Budget(settings().tick_seconds)
            is_told = fan_out_to(graph, datasets, self.ledger, self.now, budget.out_of_time(FAN_OUT.ends))
            look_at_held(graph, {node.feed for node in datasets}, self.ledger, self.now)
            busy = in_progress(graph, self.ledger, self.instance)
            decided = decide_due(
                graph,
                datasets,
                self.ledger,
                now=self.now,
                limit=DECISIONS_PER_TICK,
                out_of_time=budget.out_of_time(DECIDE.ends),
                busy=busy,
            )
            requests = requests_for(graph, self.ledger, decided.verdicts, busy, self.now)
        self.ticks.done += len(decided.verdicts)
        self._launch(requests)
        return is_told and decided.is_complete and not requests

    def _late_data(self) -> None:
        """Evaluate the automation conditions of all datasets, as Dagster's daemon does, and request their runs."""
        definitions, graph = self.scale.definitions, self.scale.graph
        with _measured(self.conditions):
            with without_dagsters_notes():
                found = dg.evaluate_automation_conditions(definitions, self.instance, evaluation_time=self.now)
            requests = [
                dg.RunRequest(partition_key=key, asset_selection=node.outputs)
                for node in graph.datasets()
                for key in sorted(found.get_requested_partitions(node.key), key=str)
            ]
            requests = joined(graph, self.ledger, requests, self.now)
        self.conditions.done += self._launch(requests)

    def _launch(self, requests: Iterable[dg.RunRequest]) -> int:
        outputs = [output for request in requests for output in _outputs(self.scale, request)]
        return sum(self.runs.start(each, self.now) for each in outputs)


def _outputs(scale: ScaleGraph, request: dg.RunRequest) -> list[Partition]:
    node = scale.graph.dataset(min(request.asset_selection or ()))
    tags = request.tags or {}
    keys = named_by(node.partitions_def, tags) if RANGE_START in tags else [request.partition_key]
    return [node.partition(key) for key in keys]


@contextmanager
def _measured(spent: Spent) -> Generator[None]:
    """Add the seconds and statements of the block, Dagster's included."""
    begin = perf_counter()
    with executed_statements() as statements:
        yield
    spent.seconds.append(perf_counter() - begin)
    spent.statements += len(statements)


def simulate(scale: ScaleGraph, url: str, days: int, hours: int, seed: int) -> Figures:
    """Fill a new ledger with `days` days, simulate `hours` hours, and return the figures."""
    ledger, first = open_ledger(url), days * 24
    begin = perf_counter()
    scale.fill(ledger, first)
    filled = perf_counter() - begin
    before, size = _last(ledger), _size(ledger)
    with TemporaryDirectory() as folder, dg.DagsterInstance.local_temp(folder) as instance:
        simulation = Simulation(scale, ledger, instance, first, hours, seed)
        simulation.run()
    changes, grown = _last(ledger) - before, _size(ledger) - size
    pruned = prune_log(ledger, simulation.now + timedelta(days=1), days=1, report_days=None, apply=True)
    ticks, conditions, runs, model = simulation.ticks, simulation.conditions, simulation.runs, simulation.model
    return Figures(
        datasets=scale.datasets,
        history_updates=(len(scale.foreign) + len(scale.inputs)) * first * len(REGIONS),
        hours=hours,
        decisions=ticks.done,
        decisions_per_second=round(ticks.done / ticks.total, 1),
        statements_per_decision=round(ticks.statements / max(ticks.done, 1), 3),
        ticks=len(ticks.seconds),
        tick_p95_seconds=round(ticks.p95, 2),
        conditions_p95_seconds=round(conditions.p95, 2),
        fill_seconds=round(filled, 1),
        launches=runs.launched,
        reruns=conditions.done,
        backfilled=simulation.backfilled,
        wrong=len(model.wrong),
        missed=len(model.missed()),
        run_statements=round(runs.statements / max(runs.finished, 1), 1),
        changes=changes,
        bytes_per_million_changes=int(grown * 1e6 / changes) if grown else None,
        rows_pruned=pruned.changes,
    )


def _last(ledger: Ledger) -> int:
    with ledger.read() as connection:
        return log.last(connection)


def _size(ledger: Ledger) -> int:
    if ledger.engine.dialect.name != "postgresql":
        return 0
    with ledger.read() as connection:
        return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())


def main() -> None:
    """Simulate, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=2000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sqlite", action="store_true")
    given = parser.parse_args()
    getLogger("dagster").setLevel("WARNING")
    with TemporaryDirectory() as folder, nullcontext() if given.sqlite else postgresql() as databases:
        url = f"sqlite:///{folder}/ledger.db" if databases is None else databases()
        with at_home(Path(folder), ledger=url):
            figures = simulate(ScaleGraph(given.datasets), url, given.days, given.hours, given.seed)
    for name, value in asdict(figures).items():
        print(f"{name.replace('_', ' '):28} {value}", flush=True)


if __name__ == "__main__":
    main()
