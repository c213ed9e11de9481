"""Late data that land while runs are killed and ticks race: all of it is consumed exactly once.

A seed determines a history, and the judge looks at the blackboard. Each update has the rows that its snapshot gives,
none is made twice of one snapshot, and the newest updates equal those made from scratch.
"""

import shutil
import signal
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.feeds import read
from feed_assets.ledger import runs, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.testing import rows_of
from feed_assets_tests.faults.late_ways import by_the_edge, by_the_last_look, snapshot_at_the_end, without_a_claim
from feed_assets_tests.faults.late_world import (
    HOUR,
    KEYS,
    MADE,
    POINTS,
    POLICIES,
    RAW,
    RECIPES,
    TOP,
    LateWorld,
    made_of,
    run_and_die,
)
from feed_assets_tests.support.fault_seeds import assert_caught, seeds
from feed_assets_tests.support.forked_processes import Forks

KINDS = ("more", "more", "a little", "a little", "other", "fewer")
ROUNDS_TO_REST = 40


@pytest.fixture
def try_seed(tmp_path, empty_ledger, forker):
    """Return a function that runs the history of a seed. One engine serves all of them, so statements compile once."""
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}")
    sa.event.listen(ledger.engine, "connect", lambda made, _: made.execute("PRAGMA synchronous=OFF"))

    def go(seed: int, policy: str | None = None) -> None:
        name = policy or [*POLICIES][seed % len(POLICIES)]
        ledger.engine.dispose()
        for each in tmp_path.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.copyfile(empty_ledger, tmp_path / "ledger.db")
        try:
            history(LateWorld(tmp_path, name, Random(seed)), forker)  # noqa: S311
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {name}: {error}") from error

    yield go
    ledger.engine.dispose()


def history(world: LateWorld, forker: Forks) -> None:
    """Build, then land data before, during and after ticks and runs. Kill one run at each point."""
    for key in KEYS:
        world.land("first", key)
    world.tick()
    world.begin()
    *some, last = world.random.sample(POINTS, len(POINTS))
    for point in some:
        act(world)
        kill(world, forker, point, world.random.choice([*KINDS, "", "", ""]))
    act(world)
    kill(world, forker, last, "")  # No data land after it, which would reveal what it has left.
    rest(world)
    judge(world)


def act(world: LateWorld) -> None:
    """Land data and run two ticks at once. During a run, land more data, tick, or begin another run."""
    land(world)
    if world.random.random() < 0.5:
        world.two_ticks()
    world.begin(world.random.choice([lambda: land(world), lambda: (land(world), world.tick()), world.begin]))
    world.now += world.random.choice([timedelta(0), timedelta(minutes=6), HOUR])


def land(world: LateWorld) -> None:
    world.land(world.random.choice(KINDS), world.random.choice(KEYS))


def kill(world: LateWorld, forker: Forks, point: str, kind: str) -> None:
    """Kill a run; if `kind` is given, data land in the middle of it."""
    output = Partition(MADE, world.random.choice(KEYS))
    world.queue = [
        each for each in world.queue if each != output
    ]  # A request that is lost: by then there is more to read.
    while output not in world.queue:
        world.land("more", output.key)
        world.now += HOUR
        world.tick()
    world.queue.remove(output)
    seed = str(world.random.random())
    code = forker.run(run_and_die, world.folder, world.policy, seed, world.now, output, point, kind)
    assert code == -signal.SIGKILL
    world.now += timedelta(minutes=1)


def rest(world: LateWorld) -> None:
    """Tick and run until nothing is left to do for longer than data may wait."""
    idle = 0
    for _ in range(ROUNDS_TO_REST):
        world.tick()
        idle = 0 if world.queue else idle + 1
        while world.queue:
            world.begin()
        if idle == 2:
            return
        world.now += 3 * HOUR * idle
    raise AssertionError("it does not come to rest")


def judge(world: LateWorld) -> None:
    with world.ledger.read() as connection:
        assert not runs.running(connection), "a run is left"
        query = sa.select(update).where(update.c.feed.in_([str(MADE), str(TOP)]))
        rows = [*connection.execute(query)]
    assert {row.state for row in rows} <= {updates.PUBLISHED, updates.ABANDONED}, "a claim is left"
    published = [(Partition(feed_of(row), row.partition), row.id) for row in rows if row.state == updates.PUBLISHED]
    made = {at: snapshot(world, *at) for at in published}
    times = Counter(
        (output, frozenset((pin.partition, pin.version) for pin in pins)) for (output, _), pins in made.items()
    )
    again = [str(output) for (output, _), number in times.items() if number > 1]
    assert not again, f"{again} made twice of one snapshot"
    for (output, name), pins in made.items():
        found = rows_of(world.board, read.named(world.board, output, name))
        assert found == from_scratch(world, output, pins), f"{output} {name} is not what its snapshot gives"
    for output in {output for output, _ in published}:
        name = world.newest(output.feed, output.key).id
        assert name == max(each for at, each in published if at == output), f"{output}: the ledger knows of another one"
        is_current(world, output, made[output, name])
    is_the_same_again(world, Partition(MADE, KEYS[0]))


def feed_of(row):
    return MADE if row.feed == str(MADE) else TOP


def snapshot(world: LateWorld, output: Partition, name: str):
    with world.ledger.read() as connection:
        return updates.consumed_by(connection, output, name)


def from_scratch(world: LateWorld, output: Partition, pins):
    found = [rows_of(world.board, read.named(world.board, pin.partition, pin.update_id)) for pin in pins]
    return made_of([row for rows in found for row in rows], output.feed)


def is_current(world: LateWorld, output: Partition, pins) -> None:
    """Assert that everything that arrived is consumed. By growth alone, less than a fifth may be left."""
    for pin in pins:
        newest = world.newest(pin.partition.feed, pin.partition.key)
        may_be_left = world.policy == "growth" and pin.partition.feed == RAW
        is_little = may_be_left and pin.size < newest.size < 1.2 * pin.size
        read_then = rows_of(world.board, read.named(world.board, pin.partition, pin.update_id))
        assert is_little or rows_of(world.board, newest) == read_then, f"{output} lost {newest.path}"


def is_the_same_again(world: LateWorld, output: Partition) -> None:
    """Build again from the same snapshot with another code version, and assert that the bytes are equal."""
    before = world.newest(output.feed, output.key)
    named = {pin.partition: pin.update_id for pin in snapshot(world, output, before.id)}
    world.build(output, world.services(), named, replace(RECIPES[output.feed], code_version="2"))
    after = world.newest(output.feed, output.key)
    assert after.id > before.id, "it was not made again"
    assert [world.board.get(each.key) for each in after.files] == [world.board.get(each.key) for each in before.files]


@pytest.mark.parametrize("some", seeds(20, 300))
def test_late_data_are_consumed_exactly_once_despite_kills(try_seed, some):
    for seed in some:
        try_seed(seed)


@pytest.mark.parametrize(
    ("wrong", "policy", "said", "first"),
    [
        (snapshot_at_the_end, "every change", "is not what its snapshot gives", 0),
        (by_the_edge, "every change", "lost", 2),
        (without_a_claim, "every change", "made twice of one snapshot", 43),
        (by_the_last_look, "growth", "lost", 0),
    ],
)
def test_oracle_of_late_data_catches_a_wrong_rule(try_seed, wrong, policy, said, first):
    def case(seed: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            wrong(patch.setattr)
            try_seed(seed, policy)

    assert_caught(case, said, first)
