"""An update with a manifest written by a shell's `echo` is valid for reading, building, sealing and repair."""

import subprocess
from datetime import UTC, datetime

import pytest

import feed_assets
from feed_assets.core.errors import NoValidUpdate, UpdateAbandoned
from feed_assets.core.feeds import MANIFEST, Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.feeds.opened import open_board
from feed_assets.settings import settings
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, outcomes, rows, short

RAW_OF_DAY = Partition(Feed.parse(RAW), DAY)
NOW, ID = datetime(2020, 1, 2, tzinfo=UTC), "20200102.000000"


def by_shell(text: str, *, options: str = "") -> bytes:
    return subprocess.run(["bash", "-c", f"echo {options} '{text}'"], capture_output=True, check=True).stdout


def put(board, manifest: bytes, update_id: str = ID) -> None:
    board.put(f"{RAW_OF_DAY.path}/{update_id}/part-1.csv", rows(7).encode())
    board.put(f"{RAW_OF_DAY.path}/{update_id}/{MANIFEST}", manifest)


@pytest.mark.parametrize("manifest", [by_shell("1"), by_shell("1", options="-n"), b"1"])
def test_an_update_with_an_echoed_manifest_is_built_from_and_read(home, manifest):
    world = short()
    put(world.board, manifest)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    assert world.rows(SUMS, DAY) == [{"k": "a", "n": 7}]
    (path,) = feed_assets.read(RAW, DAY, blackboard=settings().blackboard).paths
    assert path.endswith(f"{ID}/part-1.csv")


@pytest.mark.parametrize("manifest", [by_shell("1\n"), by_shell("1\r"), by_shell(" 1"), by_shell("1 "), by_shell("01")])
def test_other_shell_manifests_are_refused_by_all_readers(home, manifest):
    world = short()
    put(world.board, manifest)
    assert world.run_until_idle() == []
    with pytest.raises(NoValidUpdate, match="expected a decimal number"):
        feed_assets.read(RAW, DAY, blackboard=settings().blackboard)


def test_removing_the_manifest_s_newline_is_no_change_for_a_dataset(home):
    world = short()
    put(world.board, by_shell("1"))
    world.run_until_idle()
    world.board.put(f"{RAW_OF_DAY.path}/{ID}/{MANIFEST}", b"1")
    assert world.run_until_idle() == []


def test_a_manifest_with_a_newline_seals_only_with_the_right_count(home):
    board = open_board(settings())
    put(board, by_shell("1"))
    files = write.listed(board, RAW_OF_DAY, ID)
    assert write.seal(board, RAW_OF_DAY, ID, files).files == files
    assert board.get(f"{RAW_OF_DAY.path}/{ID}/{MANIFEST}") == b"1\n"
    board.put(f"{RAW_OF_DAY.path}/{ID}/{MANIFEST}", by_shell("2"))
    with pytest.raises(UpdateAbandoned, match=r"already has a manifest that says b'2\\n'"):
        write.seal(board, RAW_OF_DAY, ID, files)


@pytest.mark.parametrize("how", ["manifest", "file"])
def test_an_echoed_manifest_can_be_invalidated_and_restored_in_strict_form(home, how):
    board = open_board(settings())
    put(board, by_shell("1"))
    recorded = read.require(read.latest(board, RAW_OF_DAY))
    write.invalidate(board, RAW_OF_DAY, ID, how=how)
    assert read.latest(board, RAW_OF_DAY).update is None
    write.revalidate(board, recorded)
    assert read.require(read.latest(board, RAW_OF_DAY)) == recorded
    assert board.get(f"{RAW_OF_DAY.path}/{ID}/{MANIFEST}") == b"1"


def test_our_own_manifests_have_no_newline(home):
    board = open_board(settings())
    update = write.publish(board, RAW_OF_DAY, {"part-1.csv": rows(7).encode()}, NOW)
    assert board.get(f"{update.path}/{MANIFEST}") == b"1"
    world = short()
    world.run_until_idle()
    made = read.require(read.latest(board, Partition(Feed.parse(SUMS), DAY)))
    assert board.get(f"{made.path}/{MANIFEST}") == b"1"
