"""Processes that a command starts. They and their child processes end when the command ends."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING
from uuid import uuid4

from feed_assets.core.addresses import LOOPBACK
from feed_assets.core.errors import FeedAssetsError
from feed_assets.home import OWNED

if TYPE_CHECKING:
    import psutil

TOKEN = "UI_TOKEN"  # noqa: S105
"""The environment variable with the web UI's token.

Other users can read a process's command line, but not its environment.
"""

NOWHERE = f"{os.devnull}/nowhere"
"""A folder that cannot exist, for an option of Dagster. Dagster puts the option's folder first in `sys.path`."""

GROUP = "UI_GROUP"
"""The variable that marks every process that a group starts, also those whose parent has ended."""

SECONDS_TO_END = 15
"""Seconds that a group may take to end before it is killed."""

_ITS_NAMES = (LOOPBACK, f"::ffff:{LOOPBACK}")
"""The loopback address, and its name in a JVM with IPv6."""

_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProcessFailed(FeedAssetsError):
    """A process that a command needs did not start, or ended unexpectedly."""


@dataclass(frozen=True)
class Started:
    """A process and the name that messages use for it."""

    name: str
    process: "subprocess.Popen[bytes]"
    mark: str
    """The value of the variable GROUP in its environment and in that of its child processes."""

    def check(self) -> None:
        """Raise ProcessFailed if the process has ended."""
        if self.process.poll() is not None:
            raise ProcessFailed(f"{self.name} ended by itself with exit code {self.process.returncode}.")

    def wait(self) -> None:
        """Wait until the process ends. Raise ProcessFailed unless its exit code is 0."""
        if self.process.wait():
            self.check()


def stop_once() -> None:
    """Let the first Ctrl-C, SIGTERM or SIGHUP raise KeyboardInterrupt; later signals do not disturb the clean-up."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in _STOP:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _STOP:
        signal.signal(number, stop)


@contextmanager
def group(
    name: str,
    command: Sequence[str],
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    umask: int = -1,
    locks: Sequence[int] = (),
) -> Generator[Started]:
    """Run a command in its own process group, with our environment and `env`. The group ends with the block.

    The command inherits our umask, unless one is given. It holds the locks of the descriptors `locks` while it lives.
    """
    if log:
        log.touch(OWNED)
    mark = uuid4().hex
    with log.open("wb") if log else nullcontext() as output:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=umask,
            pass_fds=locks,
            env={**os.environ, **(env or {}), GROUP: mark},
        )
        started = Started(name, process, mark)
        try:
            yield started
        finally:
            end([started])


def end(groups: "Sequence[Started]") -> None:
    """End some groups at the same time, so that a finishing process can still use processes of other groups."""
    # The first round may miss a process that is just starting, because it does not have the variable GROUP yet.
    for _ in range(2):
        _end_families({each.process.pid: _all_of(each) for each in groups})
    for each in groups:
        each.process.wait()


def _end_families(families: "Mapping[int, list[psutil.Process]]") -> None:
    """Terminate all processes by signals to their groups. Kill the processes that still live after the time limit."""
    for leader, family in families.items():
        _signal(leader, family, signal.SIGTERM)
    alive = _wait([each for family in families.values() for each in family])
    for leader in families:
        _signal(leader, alive, signal.SIGKILL)
    _wait(alive)


def _wait(family: "Sequence[psutil.Process]") -> "list[psutil.Process]":
    """Wait for processes, and return those that still live after the time limit. A zombie counts as ended."""
    import psutil

    until, alive = time.monotonic() + SECONDS_TO_END, [*family]
    while (alive := [each for each in alive if _lives(each)]) and time.monotonic() < until:
        psutil.wait_procs(alive, timeout=0.1)
    return alive


def _lives(process: "psutil.Process") -> bool:
    import psutil

    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _all_of(started: Started) -> "list[psutil.Process]":
    """Return a process with its descendants, and other processes that carry the same mark in their environment.

    These other processes have lost their parents, such as a run of a killed daemon.
    """
    import psutil

    family = _family(started.process.pid)
    marked = [each for each in psutil.process_iter() if _has_mark(each, started.mark)]
    return [*family, *(each for each in marked if each not in family)]


def _has_mark(process: "psutil.Process", mark: str) -> bool:
    import psutil

    with suppress(psutil.Error, OSError):  # The process has ended, or belongs to another user.
        return process.environ().get(GROUP) == mark
    return False


def _family(pid: int) -> "list[psutil.Process]":
    import psutil

    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(pid)
        return [leader, *leader.children(recursive=True)]
    return []


def _signal(leader: int, family: "Sequence[psutil.Process]", number: int) -> None:
    """Send a signal to a leader's process group, and to those descendants that have left the group."""
    import psutil

    with suppress(ProcessLookupError):
        os.killpg(leader, number)
    for each in family:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            if os.getpgid(each.pid) != leader:
                each.send_signal(number)


def free_port() -> int:
    """Return a free port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def is_free(port: int) -> bool:
    """Return whether a port of the loopback interface is free."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) != 0


def wait_for_port(server: Started, port: int, seconds: float = 120) -> None:
    """Wait until the server, or a process that it started, listens on the port.

    Raise ProcessFailed if the server ends, if the time is over, or if another process has the port. Otherwise that
    process could receive a token that is meant for the server.
    """
    deadline = time.monotonic() + seconds
    while not _has(server, port):
        server.check()
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{server.name} does not answer on port {port} after {seconds:g} s.")
        time.sleep(0.1)


def _has(server: Started, port: int) -> bool:
    # Check the port first. If the server already listens, the family, which is read later, contains the listener.
    is_taken = not is_free(port)
    is_its_own = any(_listens(each, port) for each in _family(server.process.pid))
    if is_taken and not is_its_own:
        raise ProcessFailed(
            f"port {port} of {LOOPBACK} belongs to another process than {server.name}; it was free a moment ago. "
            "Start again; if it stays so, see which process listens there (`ss -ltnp`)."
        )
    return is_its_own


def _listens(process: "psutil.Process", port: int) -> bool:
    import psutil

    with suppress(psutil.NoSuchProcess):
        addresses = [each.laddr for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        return any(address.port == port and address.ip in _ITS_NAMES for address in addresses)
    return False
