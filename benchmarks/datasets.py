"""Many datasets of a year's days, all built: the cost of a tick without changes, and of 1,000 changes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import dagster as dg

from benchmarks import Benchmark, Goal, Pair, at_home
from benchmarks.dataset_worlds import CHANGES, World, definitions
from benchmarks.events import Databases, postgresql, sqlite
from benchmarks.stock_datasets import Stock
from feed_assets.testing import Harness


@dataclass
class Home:
    """A home in which the datasets are built and reported to Dagster."""

    folder: Path
    world: World
    harness: Harness = field(init=False)

    def open(self, stack: ExitStack) -> "Home":
        """Fill the ledger, and tick until idle."""
        instance = stack.enter_context(dg.DagsterInstance.local_temp(str(self.folder)))
        with at_home(self.folder, ledger=self.world.url):
            self.harness = Harness(definitions(self.world.count), instance)
            self.world.fill()
            self.world.drop(self.folder / "blackboard")
            self.world.confirm(instance)
            self.harness.run_until_idle()
        return self

    def idle(self) -> None:
        """Run a tick of all sensors and conditions when there are no changes."""
        with at_home(self.folder, ledger=self.world.url):
            if done := self.harness.runner.tick():
                raise RuntimeError(f"{self.world.count} datasets: an idle tick did {done}, expected nothing.")


@contextmanager
def idle_with(count: int) -> Iterator[Pair]:
    """Compare an idle tick of `count` datasets with an idle evaluation of the same graph by stock conditions."""
    with ExitStack() as stack:
        databases = stack.enter_context(sqlite())
        home = Home(_folder(stack), World(databases(), count)).open(stack)
        stock = Stock(count).open(stack)
        yield Pair(home.idle, stock.idle)


@contextmanager
def changes_with(opened: Databases, count: int) -> Iterator[Pair]:
    """Compare the decision of 1,000 changes with stock conditions that see the same changes as materializations."""
    with ExitStack() as stack:
        world = World(opened(), count)
        world.fill()
        stock = Stock(count).open(stack)

        def change() -> None:
            world.change()
            stock.change()

        yield Pair(world.decide, stock.decide, change)


def _folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(TemporaryDirectory()))


def _idle(count: int, goal: Goal) -> Benchmark:
    what = f"an idle tick with {count:,} datasets of 365 days"
    made = lambda: idle_with(count)  # noqa: E731
    name, peer = f"datasets-{count}", "eager() in stock Dagster"
    return Benchmark(name, what, peer, goal, 10, 3, made, clock=process_time, large=count > 100)


@contextmanager
def _changes_on_postgresql() -> Iterator[Pair]:
    with postgresql() as databases, changes_with(databases, 1000) as pair:
        yield pair


@contextmanager
def _changes_on_sqlite() -> Iterator[Pair]:
    with sqlite() as databases, changes_with(databases, 1000) as pair:
        yield pair


_WHAT = f"{CHANGES:,} changes of 500 datasets decided, 1,000 datasets"

BENCHMARKS = [
    _idle(10, Goal(2, "s")),
    _idle(100, Goal(2, "s")),
    _idle(1000, Goal(2, "s")),
    Benchmark("changes", _WHAT, "eager() in stock Dagster", Goal(1, "s"), 10, 3, _changes_on_sqlite),
    Benchmark(
        "changes-pg", f"{_WHAT}, PostgreSQL", "eager() in stock Dagster", Goal(1, "s"), 10, 3, _changes_on_postgresql
    ),
]
