"""Processes that a command starts, and that end with it whatever they have started themselves."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from feed_assets.core.errors import FeedAssetsError

_PATIENCE = 15
"""Seconds that a group may take to end before it is killed."""

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProcessFailed(FeedAssetsError):
    """A process that a command needs did not start, or ended by itself."""


def stop_once() -> None:
    """From here on the first Ctrl-C, SIGTERM or SIGHUP raises KeyboardInterrupt; later ones cannot stop the clean-up."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in _STOP:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _STOP:
        signal.signal(number, stop)


@contextmanager
def group(command: Sequence[str], log: Path | None = None) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a command in a process group of its own; the group ends with the block."""
    output = log.open("wb") if log else None
    process = subprocess.Popen(  # noqa: S603
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
    )
    try:
        yield process
    finally:
        _end(process)
        if output:
            output.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the group, and those descendants that have left it."""
    family = _family(process.pid)
    _signal_group(process.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=_PATIENCE)
    _signal_group(process.pid, signal.SIGKILL)
    for survivor in alive:
        with suppress(psutil.NoSuchProcess):
            survivor.kill()
    process.wait()


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    return []


def _signal_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def free_port() -> int:
    """A port on the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    """Whether nobody listens on this port of the loopback interface."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_for_port(process: "subprocess.Popen[bytes]", port: int, log: Path, seconds: float = 120) -> None:
    """Return as soon as the port answers; raise if the process ends or the time is over before."""
    deadline = time.monotonic() + seconds
    while is_free(port):
        if process.poll() is not None:
            raise ProcessFailed(f"{process.args[0]} ended with exit code {process.returncode}: see {log}.")
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{process.args[0]} does not answer on port {port} after {seconds:g} s: see {log}.")
        time.sleep(0.1)
