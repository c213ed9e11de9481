"""The launcher's side of parents: processes that have loaded a code location and fork themselves for its runs."""

import os
import socket
import subprocess
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any

import psutil

from feed_assets.core.errors import FeedAssetsError
from feed_assets.orchestration.launcher.dagster_private import DagsterGrpcClient
from feed_assets.orchestration.launcher.parent import GO, MESSAGE_BYTES, READY, Load

LAUNCH_SECONDS = 45
"""Seconds within which a run must get its fork. The launcher launches no other run meanwhile."""

AGAIN_SECONDS = 600
"""Seconds after which a failed load is tried again."""

FORK_SECONDS = 10
"""Seconds within which a fork must report its process.

If less time is left, the limit is shorter, but at least 1 second.
"""

_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104
"""Addresses of a server that listens on all addresses of its host."""


PROGRAM = "feed_assets.orchestration.launcher.parent"
"""The module that a parent runs.

Python runs it with `-P`, so that no file in the module's folder replaces a library.
"""


class NoParent(FeedAssetsError):
    """No parent (a process that has loaded the code location) is available to fork a run."""


@dataclass(frozen=True)
class Unloadable:
    """A failed load of a code location.

    The failure is cached, because each new attempt would take as long as the first.
    """

    load: str
    why: str
    since: float = field(default_factory=monotonic)

    @property
    def has_ended(self) -> bool:
        """Return whether the wait after the failed load is over, so that the load is tried again.

        The load may have failed only because the machine was busy.
        """
        return monotonic() > self.since + AGAIN_SECONDS

    def end(self) -> None:
        """Do nothing: no process has to be ended."""


@dataclass(frozen=True)
class Fork:
    """A forked process for one run. It waits for the message to start."""

    name: str
    """The process as recorded in the ledger."""
    channel: socket.socket

    def go(self) -> None:
        """Let the run start. Raise NoParent if the process has ended. In this case the run has not started."""
        try:
            with self.channel:
                self.channel.send(GO)
        except OSError as error:
            raise NoParent(f"the process for the run has ended ({error})") from error


@dataclass(frozen=True)
class Parent:
    """A process that has loaded a code location, and forks itself for each run of it."""

    load: str
    """The id of this load of the location."""
    process: "subprocess.Popen[bytes]"
    channel: socket.socket

    @classmethod
    def start(cls, load: str, server: psutil.Process, load_request: Load, until: float) -> "Parent":
        """Start a parent with the environment and folder of a code server.

        Raise NoParent if the parent does not load the code location in time.

        Args:
            load: The id of this load of the location.
            server: The code server's process, for environment and folder.
            load_request: The instance and code location to load.
            until: The deadline for loading, on the monotonic clock.
        """
        own_end, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = subprocess.Popen(  # noqa: S603
                [load_request.origin.executable_path, "-P", "-m", PROGRAM, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=server.environ(),
                cwd=server.cwd(),
                start_new_session=True,  # Ctrl-C is for the launcher, not for runs
            )
        parent = cls(load, process, own_end)
        try:
            parent._wait(load_request, until)
        except BaseException:
            parent.end()
            raise
        return parent

    def _wait(self, load_request: Load, until: float) -> None:
        try:
            self.channel.settimeout(_seconds_left(until))
            self.channel.send(load_request.packed())
            answer = self.channel.recv(MESSAGE_BYTES)
        except TimeoutError as error:
            raise NoParent(f"the code location was not loaded within {LAUNCH_SECONDS} s") from error
        except OSError:  # the process ended before it read the message
            answer = b""
        if not answer and self.process.wait() < 0:
            return  # If the process was killed, the next load may succeed, so do not cache this as a failed load.
        if answer != READY:
            raise NoParent(f"the code location cannot be loaded ({answer.decode() or 'its process ended'})")

    def fork(self, run_id: str, until: float) -> Fork:
        """Return a new process for a run. The process waits for `Fork.go`.

        If the parent cannot fork, end it and raise NoParent.
        """
        own_end, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                socket.send_fds(self.channel, [run_id.encode()], [its.fileno()])
            own_end.settimeout(min(FORK_SECONDS, _seconds_left(until)))
            if name := own_end.recv(MESSAGE_BYTES).decode():
                return Fork(name, own_end)
            why = "has ended"
        except OSError as error:
            why = f"does not fork ({error})"
        own_end.close()
        self.end()
        raise NoParent(f"the process that has loaded the code location {why}")

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self.process.poll() is not None

    def end(self) -> None:
        """Close the channel and kill the process. Its forks continue."""
        self.channel.close()
        self.process.kill()
        self.process.wait()


def _seconds_left(until: float) -> float:
    return max(1, until - monotonic())


def server_behind(client: DagsterGrpcClient, executable: str) -> psutil.Process:
    """Return the local process of a client's code server.

    Raise NoParent if the process is not on this host, belongs to another user, or is no code server.
    """
    at, kind = (f"{client.host}:{client.port}", "tcp") if client.port else (client.socket, "unix")
    hosts = _addresses(client.host) if client.port else set[str]()
    pids = {each.pid for each in psutil.net_connections(kind) if _is_at(each, client, hosts)} - {None}
    if len(pids) != 1:
        raise NoParent(f"the code server at {at} is not a process of this user on this host")
    server = psutil.Process(pids.pop())
    if why := _why_not(server, executable):
        raise NoParent(f"the process that listens at {at} {why}")
    return server


def _why_not(server: psutil.Process, executable: str) -> str | None:
    """Return why a parent could not load the same code as a server. Return None if it can.

    For example, the process that listens at the server's address may only be a tunnel to another machine.
    """
    command = server.cmdline()
    if server.uids().effective != os.geteuid():
        return f"is a process of another user ({server.username()})"
    if Path(f"/proc/{server.pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
        return "has other files: it is in a container"
    if not Path(server.exe()).samefile(executable) and not any("dagster" in each for each in command):
        return f"is no code server ({server.name()})"
    if any(each.startswith("--fixed-server-id") for each in command):
        return "has a fixed id (--fixed-server-id), so it does not report when it has loaded its code again"
    return None


def _addresses(host: str | None) -> set[str]:
    """Return the IP addresses of the host on which a code server listens.

    Raise NoParent if an address does not belong to this machine. Runs can be forked only from a process on the same
    machine.
    """
    addresses = {str(address[0]) for *_, address in socket.getaddrinfo(host, None)}
    own_addresses = {each.address for some in psutil.net_if_addrs().values() for each in some}
    if elsewhere := sorted(each for each in addresses - own_addresses if not ip_address(each).is_loopback):
        raise NoParent(f"the code server is on another host ({host} is {', '.join(elsewhere)})")
    return addresses


def _is_at(connection: Any, client: DagsterGrpcClient, hosts: set[str]) -> bool:
    if client.socket:
        return connection.laddr == client.socket
    return (
        connection.status == psutil.CONN_LISTEN
        and connection.laddr.port == client.port
        and connection.laddr.ip.removeprefix("::ffff:") in hosts | _EVERYWHERE
    )
