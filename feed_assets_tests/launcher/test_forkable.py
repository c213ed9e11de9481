"""Conditions under which a process may be forked, and exit handlers that its forks must not run."""

import subprocess
import sys
from pathlib import Path

import pytest

from feed_assets_tests.support.each_case import each_case

CHECKED = """
import os, sys
{done}
from feed_assets.orchestration.launcher.forkable import NotForkable, check_forkable
try:
    check_forkable({{0, 1, 2}})
except NotForkable as why:
    print(why)
"""
NATIVE_THREAD = """
import ctypes
libc = ctypes.CDLL(None)
libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, libc.pause, None)
"""
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, name="a thread", daemon=True).start()
"""
DATABASE = """
import sqlite3
kept = sqlite3.connect("kept.db")
kept.execute("CREATE TABLE a (b)")
"""
LEFT = """
class Left:
    pass
left = Left()
left.itself, left.file = left, open("left.txt", "w")
del left
"""


def said(folder: Path, done: str) -> str:
    """Return the reason why a process in this state may not be forked; empty if it may."""
    command = [sys.executable, "-c", CHECKED.format(done=done)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


@each_case(
    ("done", "why"),
    [
        pytest.param(THREAD, "loading the code location starts threads: a thread", id="thread"),
        pytest.param(NATIVE_THREAD, "loading the code location starts threads: python", id="native thread"),
        pytest.param("import socket; kept = socket.socketpair()", "would share: socket:[", id="connection"),
        pytest.param(DATABASE, "/kept.db", id="database"),
        pytest.param("kept = open('kept.txt', 'w')", "/kept.txt", id="file"),
        pytest.param("import asyncio; kept = asyncio.new_event_loop()", "eventpoll", id="event loop"),
    ],
)
def test_state_that_forks_would_lack_or_share_is_named(tmp_path: Path, done: str, why: str) -> None:
    assert why in said(tmp_path, done)


@each_case(
    "done",
    [
        pytest.param("", id="nothing"),
        pytest.param("kept = open('kept.log', 'a')", id="log"),
        pytest.param("kept = open(sys.executable, 'rb'), open(os.devnull, 'r+b', 0)", id="read"),
        pytest.param(LEFT, id="nobody has it any more"),
        pytest.param("import numpy; numpy.ones((99, 99)) @ numpy.ones((99, 99))", id="its threads know of forks"),
        pytest.param("import pandas, pyarrow; kept = pyarrow.array([1])", id="so do these"),
    ],
)
def test_state_that_forks_own_is_not_reported(tmp_path: Path, done: str) -> None:
    assert said(tmp_path, done) == ""


FINALIZED = """
import os, tempfile
from feed_assets.orchestration.launcher.forkable import forget_finalizers
before = tempfile.TemporaryDirectory(dir=".", prefix="before")
if child := os.fork():
    os._exit(os.waitpid(child, 0)[1])
forget_finalizers()
after = tempfile.TemporaryDirectory(dir=".", prefix="after")
"""


def test_the_end_of_a_fork_finalizes_what_it_has_made_and_nothing_of_before(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FINALIZED], cwd=tmp_path, check=True, timeout=60)
    assert [each.name[:6] for each in tmp_path.iterdir()] == ["before"]
