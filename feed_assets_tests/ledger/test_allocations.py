"""Histories by chance: sensors, runs and kills on one queue for resources, held to an oracle."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

import pytest
import sqlalchemy as sa

from feed_assets.core import allotment
from feed_assets.core.allotment import STEP, Placement, QueueEntry
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.launching import LONGEST_WAIT
from feed_assets.core.readiness import State, Verdict
from feed_assets.core.resources import NOTHING, Amount, Resources
from feed_assets.core.target_room import Probe, Room, free_of
from feed_assets.ledger import allocations, due, resource_queue, runs, target_probes
from feed_assets.ledger.due import AffectedOutput
from feed_assets.ledger.resource_queue import LOOK_AGAIN, ResourceRequest
from feed_assets.ledger.tables import allocation
from feed_assets_tests.support.fault_seeds import single_seeds
from feed_assets_tests.support.ledger_records import NOW, new_run, statements

GIB = 1 << 30
TOTALS = {"a": 8, "b": 4, "c": 12}
OUTPUTS = 200
SENSORS = 3
LOOKS_AT_ONCE = 25
SECOND = timedelta(seconds=1)


@dataclass
class FakeRun:
    """A run of Dagster: its output, the id in its tag, and how far it is."""

    id: str
    output: Partition
    tag: str
    has: str | None = None
    """The id of its resources, once it has taken them up."""
    is_dead: bool = False


@dataclass
class World:
    """A ledger with outputs of several sensors, targets of changing load, and Dagster's runs."""

    ledger: object
    chance: Random
    now: datetime = NOW
    runs: dict[str, FakeRun] = field(default_factory=dict)
    built: dict[Partition, datetime] = field(default_factory=dict)
    asked: Counter = field(default_factory=Counter)
    foreign: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOTALS, 0))
    offline: set[str] = field(default_factory=set)
    number: int = 0

    def __post_init__(self) -> None:
        outputs = [Partition(Feed.parse(f"t/s{each % SENSORS}/v1.0"), f"{each:03}") for each in range(OUTPUTS)]
        needs = [self.chance.choice([1, 1, 2, 2, 3, 4, 8, 11]) for _ in outputs]
        self.needs = {
            output: Resources(cores=cores, memory=f"{cores}g", priority=self.chance.randrange(3))
            for output, cores in zip(outputs, needs, strict=True)
        }
        with self.ledger.write() as connection:
            due.wake(connection, [AffectedOutput(each, 1, NOW) for each in outputs], NOW)

    def rooms(self):
        probes, asked = target_probes.answers(self.ledger, [*TOTALS], self.now)
        self.asked.update(asked)
        probes |= target_probes.keep(self.ledger, {name: self.answer(name) for name in asked}) if asked else {}

        def of(grants):
            return {name: self.room(probes.get(name), grants.get(name, ())) for name in TOTALS}

        return resource_queue.Rooms(frozenset(TOTALS), of)

    def answer(self, name):
        if name in self.offline:
            return Probe(self.now, offline="no answer", since=self.now)
        used = self.cores_in_use()[name] + self.foreign[name]
        total = Amount(TOTALS[name], 99 * GIB)
        return Probe(self.now, total, Amount(max(TOTALS[name] - used, 0), 99 * GIB))

    def room(self, probe, grants):
        if probe is None or probe.offline:
            return Room(Amount(0, 0), Amount(0, 0), closed="offline")
        return Room(probe.total, free_of(probe, grants), granted=sum((each.amount for each in grants), NOTHING))

    def cores_in_use(self):
        """Return the cores of the runs that have a target, as the targets' own masters would count them."""
        needs = {each.has: self.needs[each.output] for each in self.runs.values() if each.has}
        with self.ledger.read() as connection:
            rows = {each.id: each for each in allocations.in_use(connection)}
        cores = Counter()
        for row in rows.values():
            cores[row.target] += needs[row.id].cores if row.id in needs else 0
        return cores

    def tick(self):
        feed = Feed.parse(f"t/s{self.chance.randrange(SENSORS)}/v1.0")
        busy = {each.output for each in self.runs.values()}
        with self.ledger.read() as connection:
            looked = due.look(connection, [feed], self.now, limit=LOOKS_AT_ONCE)
        due.acknowledge(
            self.ledger, [(item, Verdict(item.partition, State.BUILD, "ready")) for item in looked], self.now
        )
        ready = [item for item in looked if item.partition not in busy]
        if not ready or self.dies():
            return
        rooms, requests = self.rooms(), [self.request(item) for item in ready]
        if self.dies():
            return
        with self.ledger.write() as connection:
            allocations.lock(connection)
            still = {*due.still_as_read(connection, ready)}
            requests = [each for each in requests if each.items[0] in still]
            places = resource_queue.claim(connection, requests, rooms, self.now)
        for request in requests:
            if isinstance(places[request.id], Placement):
                if self.dies():
                    return
                self.launch(request.items[0].partition, request.id)

    def request(self, item):
        self.number += 1
        return ResourceRequest(f"{self.number:06}", (item,), self.needs[item.partition], is_history=False)

    def launch(self, output, tag):
        self.number += 1
        self.runs[f"run-{self.number}"] = FakeRun(f"run-{self.number}", output, tag)

    def dies(self):
        return self.chance.random() < 0.1

    def step_of_a_run(self):
        """Let one run go on: it takes its resources up, starts Spark, ends, or is killed."""
        live = [each for each in self.runs.values() if not each.is_dead]
        if not live:
            return
        each = self.chance.choice(live)
        if each.has is None:
            taken = allocations.take_up(self.ledger, each.tag, each.id)
            each.has = taken.id if taken else self.waits(each)
        elif self.chance.random() < 0.3:
            allocations.session_is_up(self.ledger, each.has, self.now)
        elif self.dies():
            each.is_dead = True
        elif self.chance.random() < 0.5:
            self.end(each)

    def waits(self, each):
        """Let a run whose resources were taken back ask for others, as a run by hand does."""
        entry = QueueEntry(f"own-{each.id}", self.needs[each.output], is_history=False, since=self.now)
        place = resource_queue.ask(self.ledger, entry, each.id, self.rooms(), self.now)
        return entry.name if isinstance(place, Placement) else None

    def end(self, each):
        with self.ledger.write() as connection:
            listed = [item for item in due.listed(connection, each.output.feed) if item.partition == each.output]
            due.remove(connection, listed)
            allocations.end(connection, {each.has})
            resource_queue.wake_first(connection, self.now)
        self.built.setdefault(each.output, self.now)
        del self.runs[each.id]

    def finish_dead(self):
        """Let Dagster learn which runs are dead, and end what belongs to none."""
        self.runs = {name: each for name, each in self.runs.items() if not each.is_dead}
        with self.ledger.read() as connection:
            listed = allocations.in_use(connection)
        with self.ledger.write() as connection:
            allocations.lock(connection)
            allocations.end(connection, allocations.unused(connection, listed, self.runs.__contains__, self.now))

    def change_load(self):
        name = self.chance.choice([*TOTALS])
        self.foreign[name] = self.chance.randrange(TOTALS[name] + 1)
        self.offline ^= {name} if self.chance.random() < 0.2 else set()

    def check(self):
        """Hold what runs have to the oracle: each has one row of its own, and no target has more than its size."""
        held = Counter(each.has for each in self.runs.values() if each.has)
        assert {*held.values()} <= {1}
        cores = self.cores_in_use()
        assert all(cores[name] <= total for name, total in TOTALS.items())


@pytest.mark.parametrize("seed", single_seeds(0, 10))
def test_no_run_has_more_than_there_is_and_each_output_is_built_whatever_dies(ledger, seed):
    world = World(ledger, Random(seed))  # noqa: S311
    started = world.now
    acts = [world.tick, *[world.step_of_a_run] * 3, world.finish_dead, world.change_load]
    for _ in range(600):
        world.chance.choice(acts)()
        world.check()
        world.now += timedelta(seconds=world.chance.randrange(4))
    world.foreign, world.offline = dict.fromkeys(TOTALS, 0), set()
    for _ in range(6000):
        if len(world.built) == OUTPUTS:
            break
        world.chance.choice(acts[:-1])()
        world.check()
        world.now += timedelta(seconds=world.chance.randrange(4))
    assert len(world.built) == OUTPUTS
    most = (world.now - started) // LOOK_AGAIN + 1
    assert max(world.asked.values()) <= most, "one request per lifetime, by all sensors"


def smalls_and_a_big_one(steps):
    """Return the minute in which a request for a whole target is served, while small ones never stop coming."""
    rooms, running, waiting = {"x": Room(Amount(8, 64 * GIB), Amount(8, 64 * GIB))}, [], []
    waiting.append(QueueEntry("big", Resources(cores=8, memory="8g"), is_history=False, since=NOW))
    for minute in range(steps):
        now = NOW + timedelta(minutes=minute)
        waiting += [
            QueueEntry(f"{minute}-{each}", Resources(cores=2), is_history=False, since=now) for each in range(3)
        ]
        running = [(ends, cores) for ends, cores in running if ends > minute]
        used = sum(cores for _, cores in running)
        free = {"x": Room(rooms["x"].total, Amount(8 - used, 64 * GIB), granted=Amount(used, 0))}
        places = allotment.allot(waiting, free, now)
        served = {name for name, place in places.items() if isinstance(place, Placement)}
        if "big" in served:
            return minute
        running += [(minute + 3, each.resources.cores) for each in waiting if each.name in served]
        waiting = [each for each in waiting if each.name not in served]
    return None


def test_a_big_request_starves_without_the_rule_and_not_with_it(monkeypatch):
    assert smalls_and_a_big_one(60) == STEP // timedelta(minutes=1) + 2
    monkeypatch.setattr(allotment, "STEP", timedelta(days=365))
    assert smalls_and_a_big_one(600) is None


def test_times_of_a_host_whose_clock_is_ahead_hold_nothing_up(ledger):
    ahead = NOW + timedelta(hours=3)
    rooms = {"x": Room(Amount(4, 64 * GIB), Amount(4, 64 * GIB))}
    for name, cores in (("granted", 4), ("waits", 8)):
        entry = QueueEntry(name, Resources(cores=cores, memory="8g"), is_history=False, since=ahead)
        resource_queue.ask(ledger, entry, name, resource_queue.Rooms(frozenset("x"), lambda _: rooms), ahead)
    with ledger.write() as connection:
        listed = allocations.in_use(connection)
        assert [each.name for each in resource_queue.waiting(connection, ahead)] == ["waits"]
        assert resource_queue.waiting(connection, NOW) == []
        assert allocations.unused(connection, listed, lambda _: True, ahead) == set()
        assert allocations.unused(connection, listed, lambda _: None, NOW) == {"granted", "waits"}
    runs.start(ledger, replace(new_run("first"), dagster_run="granted"))
    for state, lost in ((runs.RUNNING, {"waits"}), (runs.FAILED, {"waits"})):  # Then its next partition follows.
        with ledger.change() as connection:
            assert allocations.unused(connection, listed, lambda _: None, NOW) == lost, state
            runs.end(connection, "first", runs.FAILED, NOW, None)
    with ledger.read() as connection:
        assert allocations.unused(connection, listed, lambda _: False, NOW) == {"granted", "waits"}


def test_what_was_given_to_a_run_that_never_began_is_taken_back_under_the_lock_of_the_queue(ledger):
    with ledger.write() as connection:
        values = {"id": "granted", "target": "x", "cores": 1, "memory": 1, "resources": "{}", "history": False}
        values |= {"output": "t/a/v1.0", "since": NOW, "at": NOW, "reason": "", "targets": "[]"}
        connection.execute(sa.insert(allocation).values(values))
    with statements(ledger) as executed:
        allocations.end_not_begun(ledger, NOW + LONGEST_WAIT)
    assert not any("DELETE" in statement for statement, _ in executed)
    with statements(ledger) as executed:
        allocations.end_not_begun(ledger, NOW + LONGEST_WAIT + STEP)
    touched = [statement for statement, _ in executed if "allocation.dagster_run IS NULL" in statement]
    locked = [statement for statement, _ in executed if "FROM cursor" in statement]
    order = [statement for statement, _ in executed if statement in (*touched, *locked)]
    assert order == [*locked, *touched]
    with ledger.read() as connection:
        assert allocations.in_use(connection) == []
