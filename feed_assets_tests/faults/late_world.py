"""Two days of a feed with late data, an output of each day, and one of both: on disk, by the product's own steps.

All state is on the blackboard and in the ledger, so a process that is killed loses only its queue of requests.
"""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random

import alembic.command  # noqa: F401  (imported once, in the process that forks)
import dagster as dg
import sqlalchemy as sa

from feed_assets import Late, feed_asset, foreign_feed
from feed_assets.core.errors import AlreadyRunning, NoValidUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import due, runs
from feed_assets.ledger.database import Ledger, open_ledger
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.requests import requests_for
from feed_assets.orchestration.decide.run_blocks import PARTITION, named_by
from feed_assets.runs.build import NEWEST, build
from feed_assets.runs.maker import Task
from feed_assets.runs.recipe import Recipe, RecipeInput
from feed_assets.runs.reconcile import reconcile
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.testing import Given, PlainMaker, rows_of

RAW, MADE, TOP = (Feed.parse(f"late/{name}/v1.0") for name in ("raw", "made", "top"))
KEYS = ("2026-01-01", "2026-01-02")
HOUR = timedelta(hours=1)
START = datetime(2026, 1, 3, 0, 30, tzinfo=UTC)
POINTS = ("pinned", "claimed in the ledger", f"manifest of {MADE} written", "published")
"""Steps after which a run is killed: before its claim, before and after its output is visible, and once published."""

POLICIES = {
    "growth": Late("20%"),
    "every change": Late(),
    "growth or age": Late("20%", 2 * HOUR),
    "files, or age": Late(files=2, max_age=2 * HOUR),
    "growth or age, by the hour": Late("20%", 2 * HOUR, check="hourly", lookback=1000),
}
RECIPES = {
    MADE: Recipe(MADE, (RecipeInput("raw", RAW, "json", "n int"),), lambda raw: raw, code_version="1"),
    TOP: Recipe(TOP, (RecipeInput("made", MADE),), lambda made: made, code_version="1"),
}


def made_of(rows: list[dict], feed: Feed) -> list[dict]:
    """Return the rows that a dataset makes of its input: all of them in order, or their number and sum."""
    found = sorted(rows, key=str)
    return found if feed == MADE else [{"rows": len(found), "sum": sum(row["n"] for row in found)}]


@cache
def graph(policy: str) -> Graph:
    """Return the graph of the assets. This late policy decides when `made` runs again."""
    days = dg.DailyPartitionsDefinition(KEYS[0], end_date="2026-01-03")
    raw = foreign_feed(str(RAW), partitions_def=days, schema="n int", format="json")
    made = feed_asset(str(MADE), partitions_def=days, inputs={"raw": raw}, late=POLICIES[policy])(lambda raw: raw)
    top = feed_asset(str(TOP), inputs={"made": made})(lambda made: made)
    return Graph(dg.Definitions(assets=[raw, made, top]).resolve_asset_graph())


class Between(Ledger):
    """A ledger that calls `act` before one of its transactions."""

    def __init__(self, ledger: Ledger, number: int, act: Callable[[], object]) -> None:
        super().__init__(ledger.engine)
        self._left, self._act = number, act

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        self._pass()
        with super().read() as connection:
            yield connection

    @contextmanager
    def _writing(self, what: str) -> Generator[sa.Connection]:
        self._pass()
        with super()._writing(what) as connection:
            yield connection

    def _pass(self) -> None:
        self._left -= 1
        if not self._left:
            self._act()


@dataclass
class LateWorld:
    """The state of a folder at a moment; `queue` holds requests that have not begun."""

    folder: Path
    policy: str
    random: Random
    now: datetime = START
    queue: list[Partition] = field(default_factory=list[Partition])
    keys: set[str] = field(default_factory=set[str])
    """Run keys that Dagster has already seen."""

    def __post_init__(self) -> None:
        self.board = Blackboard.open((self.folder / "lake").as_uri(), create=True)
        self.ledger = open_ledger(f"sqlite:///{self.folder / 'ledger.db'}")

    @property
    def graph(self) -> Graph:
        return graph(self.policy)

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def newest(self, feed: Feed, key: str = ""):
        return read.latest(self.board, Partition(feed, key)).update

    def land(self, kind: str, key: str) -> None:
        """Publish an update of a day as its partner would: half as much again, a tenth more, other or fewer rows."""
        known = self.newest(RAW, key)
        rows = rows_of(self.board, known) if known else []
        new = [{"n": self.random.randrange(100_000, 999_999)} for _ in range(10)]
        rows = {
            "more": rows + new[: max(4, len(rows) // 2)],
            "a little": rows + new[: max(1, len(rows) // 10)],
            "other": rows[:-1] + new[:1],
            "fewer": [*rows[:-2], *new[:1]],
            "first": new,
        }[kind]
        count = len(known.files) + (kind == "a little") if known else 1
        parts = {
            f"part-{number}": "".join(f'{{"n": {row["n"]}}}\n' for row in rows[number::count]).encode()
            for number in range(count)
        }
        write.publish(self.board, Partition(RAW, key), parts, self.clock())

    def tick(self, ledger: Ledger | None = None) -> None:
        """Discover, decide and request, as a tick of `feeds` followed by a tick of `late_data` does."""
        ledger, busy = ledger or self.ledger, {*self.queue}
        reconcile(self.services(ledger))
        for key in KEYS:
            sync(self.board, ledger, Partition(RAW, key), self.clock())
        with ledger.read() as connection:
            busy |= {run.output for run in runs.running(connection)}
        nodes, now = self.graph.datasets(), self.clock()
        fan_out_to(self.graph, nodes, ledger, now, _never)
        found = decide_due(self.graph, nodes, ledger, now, 100, _never).verdicts
        for request in requests_for(self.graph, ledger, found, busy, now):
            self._queue(request)
        with ledger.read() as connection:
            late = [each for some in due.to_rebuild(connection, now, 100).values() for each in some]
        free = [each for each in late if each.partition not in busy]
        self.queue += [each.partition for each in due.claim(ledger, free, now)]

    def _queue(self, request: dg.RunRequest) -> None:
        """Queue a request, unless its key was seen before: Dagster drops such a request."""
        if request.run_key not in self.keys:
            self.keys.add(request.run_key or "")
            node = self.graph.dataset(next(iter(request.asset_selection or ())))
            tags = {**request.tags, **({PARTITION: request.partition_key} if request.partition_key else {})}
            self.queue += [node.partition(key) for key in named_by(node.partitions_def, tags)]

    def two_ticks(self) -> None:
        """Run a second tick in the middle of the first, between any two of its transactions."""
        self.tick(Between(self.ledger, self.random.randrange(1, 30), self.tick))

    def begin(self, during: Callable[[], object] | None = None) -> None:
        """Start the oldest request, and call `during` between two of its transactions."""
        ledger = Between(self.ledger, self.random.randrange(1, 25), during) if during else self.ledger
        if self.queue:
            self.build(self.queue.pop(0), self.services(ledger))

    def build(self, output: Partition, services: Services, named=NEWEST, recipe: Recipe | None = None):
        """Return the result of a run. Return None if it could not begin."""
        recipe = recipe or RECIPES[output.feed]
        keys = [output.key] if output.key else KEYS
        inputs = {source.name: [Partition(source.feed, key) for key in keys] for source in recipe.sources}
        with suppress(AlreadyRunning, NoValidUpdate, UpdateChanged):
            return build(recipe, output, inputs, services, named)

    def services(self, ledger: Ledger | None = None, on_step: Callable[[str], None] = lambda _: None) -> Services:
        return Services(self.board, ledger or self.ledger, lambda: PlainMaker(self._give), self.clock, on_step)

    def _give(self, task: Task) -> Given:
        rows = [row for updates in task.updates.values() for each in updates for row in rows_of(self.board, each)]
        return Given(made_of(rows, task.output.feed))

    def dying(self, last: str, lands: tuple[str, str]) -> Services:
        """Return services that may land data in the middle of a run and kill it after the step `last`."""

        def on_step(step: str) -> None:
            if step == "pinned" and lands[0]:
                self.land(*lands)
            if step == last:
                os.kill(os.getpid(), signal.SIGKILL)

        return self.services(self.ledger, on_step)


def _never() -> bool:
    return False


def run_and_die(folder: Path, policy: str, seed: str, now: datetime, output: Partition, last: str, kind: str) -> None:
    """Build an output in this process, and kill the process."""
    world = LateWorld(folder, policy, Random(seed), now)  # noqa: S311
    world.build(output, world.dying(last, (kind, output.key or KEYS[0])))
