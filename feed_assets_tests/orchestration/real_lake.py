"""The lake of `core/lake.py` on a real blackboard and ledger, where each step uses the product's own code.

The lake in memory keeps what was written and from which inputs; the oracle reads only that.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from zlib import crc32

import dagster as dg

from feed_assets import ByEvents, feed_asset, foreign_feed
from feed_assets.core.errors import MixedInputs, NotRevalidated, NoValidUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.plans import BY_HAND, Plan, RunSpec
from feed_assets.core.readiness import State, Verdict
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import log
from feed_assets.ledger.database import Ledger
from feed_assets.orchestration.decide.decisions import decide_due, fan_out_to
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.decide.output_needs import need_of
from feed_assets.orchestration.decide.run_config import RunConfig, named_in, run_config_of, run_spec_in
from feed_assets.orchestration.declare.datasets import recipe_of
from feed_assets.orchestration.declare.resolved import resolve
from feed_assets.runs.build import NEWEST, build
from feed_assets.runs.maker import Task
from feed_assets.runs.phases import Published
from feed_assets.runs.recipe import Recipe
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync
from feed_assets.testing import Given, PlainMaker
from feed_assets_tests.support.lake_histories import chance
from feed_assets_tests.support.lake_shapes import REPORT, SHAPES
from feed_assets_tests.support.memory_lake import Lake, Update, _place

ROUNDS_TO_REST = 60


@dataclass(frozen=True)
class Declared:
    """Assets of a shape as a graph, with their recipes by name."""

    graph: Graph
    recipes: dict[str, Recipe]


@cache
def declared(name: str) -> Declared:
    shape = SHAPES[name]
    assets, recipes = dict[str, dg.AssetSpec | dg.AssetsDefinition](), dict[str, Recipe]()

    def declare(one: str, made_of: str) -> None:
        if one in assets:
            return
        for each in made_of:
            declare(each, shape.made_of.get(each, ""))
        inputs = {each: assets[each] for each in made_of}
        if not inputs:
            assets[one] = foreign_feed(f"{one}/v1.0", schema="k string", format="parquet")
            return
        function = eval(f"lambda {', '.join(inputs)}: None")  # noqa: S307
        by_events = ByEvents() if one == REPORT else None
        assets[one] = feed_asset(f"{one}/v1.0", inputs=inputs, by_events=by_events, code_version="0")(function)
        recipe = recipe_of(_feed(one), function, resolve(_feed(one), None, inputs), {}, (), None, None, "0")
        recipes[one] = replace(recipe, is_by_events=by_events is not None)

    declare(REPORT, shape.reads)
    for each, made_of in shape.made_of.items():
        declare(each, made_of)
    return Declared(Graph(dg.Definitions(assets=[*assets.values()]).resolve_asset_graph()), recipes)


@dataclass
class RealLake(Lake):
    """A lake of the shape `name`. A tick handles one dataset, so that others lag behind."""

    name: str = ""
    board: Blackboard = field(kw_only=True)
    ledger: Ledger = field(kw_only=True)
    requested: list[Verdict] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, board: Blackboard, ledger: Ledger) -> "RealLake":
        """Return a lake after two updates of each source, both consumed."""
        made = cls(SHAPES[name], name=name, board=board, ledger=ledger)
        for rows in "12":
            for source in made.sources:
                made.drop(source, rows)
            made.finish(chance())
        return made

    @property
    def graph(self) -> Graph:
        return declared(self.name).graph

    @property
    def services(self) -> Services:
        return Services(self.board, self.ledger, lambda: PlainMaker(self._give), self._clock)

    def _clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    def _give(self, task: Task) -> Given:
        """Return rows that identify the read content; a coarse dataset has only two values."""
        name = task.output.feed.name
        text = [name, self.code.get(name, 0), *(self._content(each) for some in task.updates.values() for each in some)]
        rows = crc32(str(text).encode()) % 2 if name in self.shape.coarse else crc32(str(text).encode())
        return Given([{"n": rows}])

    def _content(self, update) -> str:
        return "".join((self.board.get(each.key) or b"").decode() for each in update.files)

    # Acts of others and of people.

    def drop(self, source: str, rows: str) -> None:
        made = write.publish(self.board, _real(source), {"part": rows.encode()}, self._clock())
        self.updates.setdefault(source, []).append(Update(made.id, made.files_digest, (), ""))

    def invalidate(self, name: str, at: int = -1) -> None:
        if valid := self.valid(name):
            gone = valid[at % len(valid)]
            write.invalidate(self.board, _real(name), gone.id)
            gone.is_valid = False
            if name not in self.sources:  # The command also tells the ledger.
                sync(self.board, self.ledger, _real(name), self._clock())

    def revalidate(self, name: str, at: int = -1) -> None:
        if gone := [each for each in self.updates.get(name, []) if not each.is_valid]:
            again = gone[at % len(gone)]
            with suppress(NotRevalidated):  # The ledger may never have seen it valid.
                revalidate(self.services, _real(name), again.id)
                again.is_valid = True

    def by_hand(self, name: str) -> None:
        self._build(name, NEWEST, BY_HAND)

    # Acts of sensors and their runs.

    def look_at_sources(self) -> None:
        for name in self.sources:
            sync(self.board, self.ledger, _real(name), self._clock())

    def look(self, name: str) -> None:
        self.look_at_sources()
        node, now = self.graph.node(_feed(name)), self._clock()
        assert fan_out_to(self.graph, [node], self.ledger, now, _never)
        found = decide_due(self.graph, [node], self.ledger, now, 10, _never).verdicts
        for verdict in (verdict for _, verdict in found if verdict.state in (State.BUILD, State.REBUILD)):
            if name != REPORT:
                self.by_hand(name)
            elif not self.requested:  # One run is in progress at a time.
                self.requested.append(verdict)

    def begin(self, at: int = -1) -> bool:
        """Run the last request by its own configuration. Return False if there is none."""
        has_begun = bool(self.requested)
        if has_begun:
            verdict = self.requested.pop(at % len(self.requested))
            node, need = self.graph.node(_feed(REPORT)), need_of(self.graph, _real(REPORT))
            config = RunConfig(**run_config_of(node, need, verdict, Plan())["ops"][REPORT]["config"])
            self._build(REPORT, named_in(config, {REPORT: need.partitions}), run_spec_in(config))
        return has_begun

    def finish(self, random) -> None:
        """Look at every dataset in random order until a round changes nothing."""
        for _ in range(ROUNDS_TO_REST):
            before, has_begun = self._last_change(), False
            for name in random.sample([*self.made_of], len(self.made_of)):
                self.look(name)
                has_begun |= self.begin()  # If its inputs are gone, the next round decides again.
            if self._last_change() == before and not has_begun:
                return
        raise AssertionError("it does not come to rest")

    def _last_change(self) -> int:
        with self.ledger.read() as connection:
            return log.last(connection)

    def _build(self, name: str, named, run_spec: RunSpec) -> None:
        recipe = replace(declared(self.name).recipes[name], code_version=str(self.code.get(name, 0)))
        need = need_of(self.graph, _real(name))
        inputs = {source.name: need.partitions_of(source.feed) for source in recipe.sources}
        try:
            outcome = build(recipe, _real(name), inputs, self.services, named, run_spec)
        except (NoValidUpdate, UpdateChanged):
            return
        except MixedInputs as error:
            self.refused.append(str(error))
            return
        if isinstance(outcome, Published):
            made, pins = outcome.outputs[-1], tuple(map(_known, outcome.pins))
            self.updates.setdefault(name, []).append(Update(made.id, made.written.data_version, pins, ""))
            if name == REPORT:
                self.published.append(pins)


def _never() -> bool:
    return False


def _feed(name: str) -> Feed:
    return Feed.parse(f"{name}/v1.0")


def _real(name: str) -> Partition:
    return Partition(_feed(name))


def _known(pin: Pin) -> Pin:
    """Return the pin under the name that the lake in memory uses."""
    return Pin(_place(pin.partition.feed.name), pin.update_id, pin.version)
