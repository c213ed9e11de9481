"""A publisher killed at every step, on local disk and on S3: readers see the update before, or the complete new one."""

import signal

import pytest

from feed_assets.core.feeds import MANIFEST, Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import latest
from feed_assets.feeds.write import publish
from feed_assets_tests.faults.kills import POINTS, parts, publish_and_die
from feed_assets_tests.faults.ways import publish_counting_before_the_last_part
from feed_assets_tests.support.fault_seeds import assert_caught, seeds
from feed_assets_tests.support.feed_processes import MEN, NOW
from feed_assets_tests.support.forked_processes import Forks

KILLED = {-signal.SIGKILL, -signal.SIGXFSZ}
"""Exit codes of a process that killed itself, or that the kernel killed in the middle of a write."""


@pytest.fixture(params=["local", "s3"])
def shared(request: pytest.FixtureRequest) -> Blackboard:
    """Return a blackboard that other processes can open by its URL; S3 takes its keys from the environment."""
    return request.getfixturevalue(f"{request.param}_board")


def is_whole(board: Blackboard, update: Update, seed: int) -> bool:
    """Return True if the update holds every part of this seed, byte for byte."""
    return {file.key.rsplit("/", 1)[-1]: board.get(file.key) for file in update.files} == parts(seed)


def kill(forker: Forks, board: Blackboard, point: tuple[str, str], seed: int, way=publish) -> None:
    """Kill a publisher at the point while a reader reads, then read and publish again.

    Assert the promise of each step.
    """
    said = f"seed {seed}, killed at {point}"
    before = publish(board, MEN, parts(seed + 1_000), NOW)

    def look() -> Update | None:
        found = latest(board, MEN).update
        assert found == before or (found and found.id > before.id and is_whole(board, found, seed)), said
        return found

    assert forker.run(publish_and_die, way, board.url, point, seed, meanwhile=look) in KILLED, said
    assert (look() == before) == (point != (MANIFEST, "whole")), said
    after = publish(board, MEN, parts(seed + 2_000), NOW)
    assert latest(board, MEN).update == after, said
    assert is_whole(board, after, seed + 2_000), said


@pytest.mark.parametrize("some", seeds(4, 50))
@pytest.mark.parametrize("point", POINTS, ids=" ".join)
def test_killed_publisher_leaves_the_old_update_or_the_whole_new_one(forker, shared, point, some):
    for seed in some:
        kill(forker, shared, point, seed)


def test_publisher_is_killed_at_twelve_distinct_points():
    assert len(set(POINTS)) == 12


def test_a_publisher_that_puts_the_manifest_before_the_last_part_is_caught(forker, shared):
    assert_caught(
        lambda seed: kill(forker, shared, ("last", "half"), seed, publish_counting_before_the_last_part), "killed at"
    )
