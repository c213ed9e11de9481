"""Processes that a command starts, and that end with it whatever they have started themselves."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from feed_assets.core.errors import FeedAssetsError

if TYPE_CHECKING:
    import psutil

_SECONDS_TO_END = 15
"""Seconds that a group may take to end before it is killed."""

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProcessFailed(FeedAssetsError):
    """A process that a command needs did not start, or ended by itself."""


@dataclass(frozen=True)
class Started:
    """A process under the name that messages use."""

    name: str
    process: "subprocess.Popen[bytes]"

    def check(self) -> None:
        """Raise ProcessFailed if it has ended."""
        if self.process.poll() is not None:
            raise ProcessFailed(f"{self.name} ended by itself with exit code {self.process.returncode}.")


def stop_once() -> None:
    """Have the first Ctrl-C, SIGTERM or SIGHUP raise KeyboardInterrupt, and later ones do nothing to the clean-up."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in _STOP:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _STOP:
        signal.signal(number, stop)


@contextmanager
def group(name: str, command: Sequence[str], log: Path | None = None) -> Generator[Started]:
    """Run a command in a process group of its own; the group ends with the block."""
    with log.open("wb") if log else nullcontext() as output:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield Started(name, process)
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    import psutil

    family = _family(process.pid)
    _signal(process.pid, family, signal.SIGTERM)
    _, alive = psutil.wait_procs(family, timeout=_SECONDS_TO_END)
    _signal(process.pid, alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=_SECONDS_TO_END)
    process.wait()


def _family(pid: int) -> "list[psutil.Process]":
    import psutil

    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    return []


def _signal(leader: int, family: "Sequence[psutil.Process]", number: int) -> None:
    """Send a signal to the group, and to those descendants that have left it."""
    import psutil

    with suppress(ProcessLookupError):
        os.killpg(leader, number)
    for each in family:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(each.pid) != leader:
                each.send_signal(number)


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    """Whether a port of the loopback interface is free."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_for_port(server: Started, port: int, seconds: float = 120) -> None:
    """Return as soon as the port answers; raise if the process ends or the time is over before."""
    deadline = time.monotonic() + seconds
    while is_free(port):
        server.check()
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{server.name} does not answer on port {port} after {seconds:g} s.")
        time.sleep(0.1)
