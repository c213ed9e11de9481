"""The S3 fault grid: five requests, eight faults, many seeds. No data are lost or torn, and no refusal is swallowed."""

import itertools
from dataclasses import replace

import pytest

from feed_assets.core.errors import BlackboardRefused, BlackboardUnavailable
from feed_assets.core.feeds import File, next_update_id
from feed_assets.feeds import write
from feed_assets_tests.faults.grid import BIG, NOW, Cell, Grid, read_latest
from feed_assets_tests.faults.many_objects import put_many
from feed_assets_tests.support.s3_proxy import KINDS, TARGETS

CELLS = list(itertools.product(TARGETS, KINDS))


@pytest.fixture
def grid(s3_proxy, through, hasty, direct, big):
    return Grid(s3_proxy, through, hasty, direct)


@pytest.fixture(scope="module")
def big(direct):
    """Publish an update of 1,100 files after an older one."""
    write.publish(direct, BIG, {"part-0.csv": b"old"}, NOW)
    update_id = write.claim(direct, BIG, b"big", NOW)
    keys = [f"{BIG.path}/{update_id}/part-{number}.csv" for number in range(1_100)]
    put_many(direct, keys, b"new")
    write.seal(direct, BIG, update_id, [File(key, 3) for key in keys])


@pytest.mark.parametrize(("target", "kind"), CELLS)
def test_s3_fault_loses_no_update_and_tears_none(grid, target, kind):
    for seed in (0, 1) if kind != "timeout" else (0,):
        grid.run(Cell(target, kind, seed))


@pytest.mark.soak
@pytest.mark.parametrize(("target", "kind"), CELLS)
def test_s3_fault_loses_no_update_and_tears_none_in_25_seeds(grid, target, kind):
    run_25(grid, target, kind)


def claim_by(board, partition, now, is_ours):
    """Claim in a wrong way: `is_ours` is what a create without a reply is taken for."""
    taken = board.children(partition.path)
    while True:
        candidate = next_update_id(now, taken)
        taken = [candidate]
        try:
            if board.create(f"{write.CLAIMS}/{partition.path}/{candidate}", b"wrong"):
                return candidate
        except BlackboardUnavailable:
            if is_ours:
                return candidate


def publish_wrongly(is_ours):
    def publish(board, partition, parts, now):
        update_id = claim_by(board, partition, now, is_ours)
        path = f"{partition.path}/{update_id}"
        for name, data in parts.items():
            board.put(f"{path}/{name}", data)
        return write.seal(board, partition, update_id, [File(f"{path}/{n}", len(d)) for n, d in parts.items()])

    return publish


def read_wrongly(board, partition):
    try:
        return read_latest(board, partition)
    except BlackboardRefused:
        return None


@pytest.mark.parametrize(
    ("target", "kind", "wrong", "said"),
    [
        ("create", "reset after", {"write": publish_wrongly(is_ours=False)}, "an id was given up for nothing"),
        ("create", "timeout", {"write": publish_wrongly(is_ours=True)}, "published without a claim"),
        ("get manifest", "access denied", {"read": read_wrongly}, "refused access came out as None|was there before"),
    ],
    ids=["a lost reply is somebody else's claim", "a lost reply is success", "refused access is no data"],
)
def test_a_wrong_writer_or_reader_is_caught_within_25_seeds(grid, target, kind, wrong, said):
    with pytest.raises(AssertionError, match=said):
        run_25(replace(grid, **wrong), target, kind)


def run_25(grid, target, kind):
    for seed in range(25):
        grid.run(Cell(target, kind, seed))
