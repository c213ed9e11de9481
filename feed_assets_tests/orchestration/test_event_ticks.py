"""Event tables tick by tick, in one process with Dagster: whatever is interleaved, each complete update is read once.

Also bad days of their sensor: a source that is down, very many events, runs that fail or are deleted.
"""

import os
from random import Random
from time import process_time

import dagster as dg
import pytest

from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset
from feed_assets.core.attempts import LONGEST_PAUSE
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed
from feed_assets.ledger import due, pauses
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.sources.sinks import SqlSink
from feed_assets.testing import Given
from feed_assets_tests.support.sum_projects import harness, later

REPORT = Feed.parse("gamma/report/v1.0")


class World:
    """A team's tables a and b, and a consumer of both that notes its slices."""

    def __init__(self, folder, late=()):
        self.sink = SqlSink(f"sqlite:///{folder / 'team.db'}", "events")
        self.sink.publish([])
        self.source = EventSource("team", (SqlTable(self.sink.url, "events", "id"),))
        self.fails = False
        self.read, self.by_hand, self.reported = [], [], {"a": {}, "b": {}}
        self.harness = harness(*self._assets(*late), give=self._give)

    def _assets(self, *names):
        tables = {n: event_table(f"team/{n}", source=self.source, table_name=n) for n in "ab"}
        by_events = ByEvents(pipelines={"p": ["team/a", "team/b"]})

        made = [feed_asset(f"gamma/{name}/v1.0", inputs=tables, by_events=by_events) for name in ("report", *names)]
        return [*tables.values(), *(decorate(lambda a, b: None) for decorate in made)]

    def _give(self, task):
        if self.fails:
            raise RuntimeError("no")
        slices = [(partition.feed.name[-1], each.start, each.end) for partition, each in task.run_spec.slices.items()]
        read = self.read if task.run_spec.consumes else self.by_hand
        read.append((task.recipe.feed.name.removeprefix("gamma/"), slices))
        return Given([{"n": len(self.read)}])

    def publish(self, table, correlation):
        marker = len(self.reported[table]) + 1
        self.reported[table][correlation] = marker
        event = WriteEvent(table, marker, marker, correlation, Operation.UPSERT)
        self.sink.publish([(0, event)])

    def ask(self, cursor=None):
        sensor = self.harness.definitions.resolve_sensor_def("events_team")
        context = dg.build_sensor_context(
            self.harness.instance, cursor, definitions=self.harness.definitions, sensor_name=sensor.name
        )
        with context, dg.partition_loading_context(self.harness.now()):
            return sensor(context)

    def start(self, request):
        job = self.harness.definitions.resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            instance=self.harness.instance,
            run_config=request.run_config,
            asset_selection=list(request.asset_selection),
            tags=request.tags,
            raise_on_error=False,
        )

    def markers_read(self, name, table, read=None):
        """Return every marker of a table in a consumer's slices, once for each time that it was read."""
        pieces = [
            piece
            for who, some in (self.read if read is None else read)
            if who == name
            for piece in some
            if piece[0] == table
        ]
        return sorted(m for _, start, end in pieces for m in range(int(start or 0) + 1, int(end) + 1))


class Chance:
    """Random acts on a world, one at a time."""

    def __init__(self, world, random):
        self.world, self.random, self.old = world, random, []

    def publish(self):
        missing = [(table, name) for table in "ab" for name in NAMES if name not in self.world.reported[table]]
        if missing:
            self.world.publish(*self.random.choice(missing))

    def tick(self):
        requests = self.world.ask().run_requests or ()
        self.old += requests
        for request in requests:
            self.world.start(request)

    def fail(self):
        self.world.fails = True
        self.tick()
        self.world.fails = False

    def again(self):
        if self.old:
            self.world.start(self.random.choice(self.old))

    def by_hand(self):
        if self.old:
            config = self.random.choice(self.old).run_config["ops"]["gamma__report"]["config"]
            reported = {"ops": {"gamma__report": {"config": {**config, "consumes": False}}}}
            self.world.start(dg.RunRequest(run_config=reported, asset_selection=[dg.AssetKey(["gamma", "report"])]))

    def pause(self):
        ledger = open_ledger(settings().ledger)
        pauses.pause_consumer(ledger, REPORT, "why", None, self.world.harness.now())
        assert not self.world.ask().run_requests
        pauses.resume(ledger, REPORT, self.world.harness.now())


NAMES = [f"X{number}" for number in range(6)]
ACTS = ["publish", "publish", "tick", "fail", "again", "by_hand", "pause"]
SEEDS = [int(os.environ.get("FAULT_SEED", 1)), *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 60))]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_complete_update_is_read_once_whatever_is_interleaved(tmp_path, setting, seed):
    setting(max_attempts=99)
    world, random = World(tmp_path), Random(seed)  # noqa: S311
    chance = Chance(world, random)
    for _ in range(14):
        getattr(chance, random.choice(ACTS))()
    for table in "ab":
        for name in [name for name in NAMES[:-1] if name not in world.reported[table]]:
            world.publish(table, name)
    later(world.harness, LONGEST_PAUSE)  # The pause after a failed attempt is over.
    world.harness.run_until_idle()
    complete = [name for name in NAMES if name in world.reported["a"] and name in world.reported["b"]]
    for table in "ab":
        expected = sorted(world.reported[table][name] for name in complete)
        once = world.markers_read("report", table)
        by_hand = world.markers_read("report", table, world.by_hand)
        assert len(once) == len({*once}), f"seed {seed}: {world.read}"
        # Markers that a run by hand has read exactly are consumed without reading them again.
        assert sorted({*once, *by_hand}) == expected, f"seed {seed}: {world.read}, by hand {world.by_hand}"


def test_ticks_stay_bounded_with_ten_thousand_events_and_consume_all_of_them(tmp_path, setting):
    setting(tick_seconds=10, max_requests=2)
    world = World(tmp_path, late=("second", "third"))
    events = [WriteEvent(table, n, n, f"X{n}", Operation.UPSERT) for n in range(1, 5001) for table in ("a", "b")]
    world.sink.publish([(0, event) for event in events])
    began = process_time()
    asked = world.ask()
    assert process_time() - began < 10
    assert len(asked.run_requests) <= 2
    assert len(asked.asset_events) <= 500
    world.harness.run_until_idle()
    for name in ("report", "second", "third"):
        assert world.markers_read(name, "a") == world.markers_read(name, "b") == [*range(1, 5001)]


def test_a_run_that_fails_is_requested_with_new_keys_up_to_max_attempts(tmp_path):
    world = World(tmp_path)
    world.publish("a", "X")
    world.publish("b", "X")
    world.fails, keys = True, []
    for _ in range(5):
        for request in world.ask().run_requests or ():
            keys.append(request.run_key)
            assert not world.start(request).success
        later(world.harness, LONGEST_PAUSE)
    assert len(keys) == len({*keys}) == settings().max_attempts
    world.fails = False
    world.publish("a", "Y")
    world.publish("b", "Y")
    world.harness.run_until_idle()
    assert world.markers_read("report", "a") == [1, 2]


def test_a_run_that_is_deleted_from_dagster_is_not_run_again(tmp_path):
    world = World(tmp_path)
    world.publish("a", "X")
    world.publish("b", "X")
    (run,) = world.harness.run_until_idle()
    world.harness.instance.delete_run(run.id)
    assert world.harness.run_until_idle() == []
    assert not world.ask().run_requests
    assert len(world.read) == 1


def test_events_read_before_an_outage_of_their_source_are_built(tmp_path):
    world = World(tmp_path)
    world.publish("a", "X")
    world.publish("b", "X")
    (lost,) = world.ask().run_requests
    (tmp_path / "team.db").rename(tmp_path / "away.db")
    due.end_waits(open_ledger(settings().ledger), world.harness.now())
    (again,) = world.ask().run_requests
    assert again.run_key != lost.run_key
    assert world.start(again).success
    (tmp_path / "away.db").replace(tmp_path / "team.db")
    world.harness.run_until_idle()
    assert len(world.read) == 1


def test_one_bad_event_does_not_hold_up_the_others(tmp_path):
    world = World(tmp_path)
    world.publish("a", "X")
    world.sink.publish([(0, WriteEvent("a", 0, 0, "", Operation.UPSERT, "no such partition"))])
    world.publish("b", "X")
    assert len(world.harness.run_until_idle()) == 1
