"""Detection of processes that are surely dead."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from feed_assets.runs.services import is_dead, this_process
from feed_assets_tests.support.servers import wait_until

HOST = socket.gethostname()
NAMED = "from feed_assets.runs.services import this_process; print(this_process(), flush=True); input()"


@pytest.fixture
def other():
    """Start another process; yield it with its name in the ledger."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", NAMED], stdin=pipe, stdout=pipe, text=True) as process:
        yield process, process.stdout.readline().strip()
        process.kill()


def test_this_process_counts_as_living():
    assert not is_dead(this_process())


def test_another_process_counts_as_living_until_killed(other):
    process, name = other
    before = is_dead(name)
    process.kill()
    process.wait()
    assert (before, is_dead(name)) == (False, True)


def test_a_killed_process_whose_parent_has_not_noticed_is_dead(other):
    process, name = other
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE, "the process to end")
    assert is_dead(name)


def test_a_pid_that_was_used_again_is_another_process():
    pid = os.getpid()
    assert is_dead(f"{HOST}:{pid}:1.00")


def test_a_process_on_another_host_never_surely_is():
    assert not is_dead("another-host:1:0.00")
    assert not is_dead("fe80::1:1:0.00")


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux says it there")
def test_a_process_lives_on_when_the_clock_is_set(tmp_path, monkeypatch):
    """Move the boot time of the kernel with the clock, and with it the start time of processes."""
    before = this_process()
    stat = Path("/proc/stat").read_text()
    boot = int(psutil.boot_time())
    (tmp_path / "stat").write_text(stat.replace(f"btime {boot}", f"btime {boot + 1}"))
    (tmp_path / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert psutil.boot_time() == boot + 1
    assert not is_dead(before)
