"""Deeply nested folders, impossible times, and unreadable folders, on local disk."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from feed_assets.core.errors import BlackboardRefused
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.local_disk import DEPTH
from feed_assets_tests.support.each_case import each_case

FOLDERS = 3 * sys.getrecursionlimit() // 2


@pytest.fixture
def deep(local_board, tmp_path):
    """Provide `FOLDERS` nested folders, and a file in the last one."""
    folder = os.open(tmp_path / "black board", os.O_RDONLY)
    for name in ("deep", *["d"] * FOLDERS):
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.symlink(tmp_path, "link", dir_fd=folder)
    os.close(folder)
    yield local_board
    local_board.sweep("deep")


def test_too_deep_folders_are_named_and_not_listed(deep):
    deep.put("deep/file", b"")
    assert [file.key for file in deep.files("deep")] == ["deep/file"]
    assert deep.no_files("deep", below=True) == [("deep" + "/d" * DEPTH, f"a folder below {DEPTH} others")]
    assert deep.no_files("deep", below=False) == []


def test_a_sweep_removes_folders_however_deep_and_nothing_through_links(deep, tmp_path):
    (tmp_path / "kept").touch()
    for name in ("a/b/c", "a/b/d/e", "f/b/c"):
        deep.put(f"deep/{name}", b"")
    assert deep.sweep("deep") == 3
    assert {each.name for each in tmp_path.iterdir()} >= {"kept", "black board"}
    assert [*(tmp_path / "black board").iterdir()] == []


def test_leftovers_of_a_killed_sweep_are_removed_by_the_next_one(deep, tmp_path, monkeypatch):
    removed, rmdir = [], os.rmdir

    def killed(name, dir_fd=None):
        removed.append(name)
        if len(removed) == 100:
            raise KeyboardInterrupt
        rmdir(name, dir_fd=dir_fd)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", killed)
        with pytest.raises(KeyboardInterrupt):
            deep.sweep("deep")
    assert [each.name for each in (tmp_path / "black board").iterdir()] == ["deep"]
    deep.sweep("deep")
    assert [*(tmp_path / "black board").iterdir()] == []


@each_case("moment", [10**12, 2**40, -(10**12), 253_402_300_800])
def test_a_file_with_an_impossible_time_hides_no_others(moment):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:  # noqa: S108
        board = Blackboard.open(Path(folder).as_uri())
        board.put("f/1", b"")
        board.put("f/2", b"")
        os.utime(Path(folder, "f/2"), (moment, moment))
        assert [file.key for file in board.files("f")] == ["f/1", "f/2"]
        assert board.last_write("f").year in range(5, 9988)


@pytest.fixture
def for_all():
    """Provide a folder that other users can reach; pytest's own cannot be reached."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_may_not_be_read_is_refused_by_its_name(for_all):
    """Refuse such a folder, as it may hold data. Run as another user, since root may read everything."""
    board = Blackboard.open(for_all.as_uri())
    board.put("f/1", b"")
    closed = for_all / "f" / "g" / "closed"
    closed.mkdir(parents=True)
    closed.chmod(0)
    user = os.geteuid()
    if not user:
        os.seteuid(65534)
    try:
        with pytest.raises(BlackboardRefused, match=r"access refused .*'f/g/closed'"):
            board.files("f")
    finally:
        os.seteuid(user)
        closed.chmod(0o700)
