"""Three publishers, three readers, an invalidator and a pruner, in eight processes on one partition."""

from collections import Counter

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets_tests.faults.crowd import together
from feed_assets_tests.faults.histories import History
from feed_assets_tests.faults.ways import RIGHT, Unconditional, Ways, latest_without_count
from feed_assets_tests.support.fault_seeds import assert_caught, seeds
from feed_assets_tests.support.feed_processes import MEN


def judge(ways: Ways, board: Blackboard, publishes: int, seed: int) -> History:
    """Run one round, and assert everything that must hold of it."""
    records, codes = together(ways, board.url, publishes, seed)
    found, said = History.of(records), f"seed {seed}"
    assert codes == [0] * 8, said
    assert found.wrongs()[:5] == [], said
    assert found.steps_back()[:5] == [], said
    assert len(found.published) >= publishes, said
    overwritten = [name for name, of in contents(board).items() if of - {found.published[name].writer}]
    assert overwritten == [], said
    return found


def contents(board: Blackboard) -> dict[str, set[str]]:
    """Return the writers of the parts that each remaining update holds."""
    parts = Counter[tuple[str, str]]()
    for file in board.files(MEN.path):
        if "/part-" in file.key:
            parts[file.key.split("/")[-2], (board.get(file.key) or b"").decode()] += 1
    return {name: {of for other, of in parts if other == name} for name, _ in parts}


def fresh(board: Blackboard, name: str) -> Blackboard:
    """Open a blackboard beside this one, for one round."""
    return Blackboard.open(f"{board.url}/{name}", create=True)


@pytest.mark.parametrize("some", seeds(1, 16))
def test_on_disk_every_reading_was_valid_at_some_moment_of_the_call(local_board, some):
    for seed in some:
        found = judge(RIGHT, fresh(local_board, str(seed)), 400 if len(some) == 1 else 500, seed)
        assert found.removed
        assert len({read.id for read in found.reads}) > 10


@pytest.mark.parametrize("some", seeds(1, 8))
def test_on_s3_every_reading_was_valid_at_some_moment_of_the_call(s3_board, some):
    for seed in some:
        found = judge(RIGHT, fresh(s3_board, str(seed)), 100 if len(some) == 1 else 250, seed)
        assert found.removed
        assert len({read.id for read in found.reads}) > 10


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        (Ways(client=Unconditional), "was given to two writers|seed"),
        (Ways(latest=latest_without_count), "which was valid at no moment of the call|: expected"),
    ],
    ids=["a claim that overwrites", "a reader that does not count"],
)
def test_oracle_of_concurrent_runs_catches_a_wrong_rule(local_board, ways, said):
    assert_caught(lambda seed: judge(ways, fresh(local_board, str(seed)), 60, seed), said)
