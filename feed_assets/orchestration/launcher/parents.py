"""The parent of a code location's runs, as who launches them holds it."""

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
from feed_assets.orchestration.launcher.dagsters import DagsterGrpcClient
from feed_assets.orchestration.launcher.parent import GO, MESSAGE_BYTES, READY, Load

LAUNCH_SECONDS = 45
"""Seconds in which there must be a fork for a run, all told: who launches runs launches no other meanwhile."""

AGAIN_SECONDS = 600
"""Seconds after which a load that gave no parent is tried again."""

FORK_SECONDS = 10
"""Seconds in which a fork must say who it is; one, if no more are left."""

_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104
"""Where a server listens that does so at each address of its host."""


PROGRAM = "feed_assets.orchestration.launcher.parent"
"""What a parent runs: with `-P`, so that no file of its folder stands in for a library."""


class NoParent(FeedAssetsError):
    """No parent can be had for a run."""


@dataclass(frozen=True)
class Unloadable:
    """A load of a code location that has no parent; another try for each run would take as long each time."""

    load: str
    why: str
    since: float = field(default_factory=monotonic)

    @property
    def has_ended(self) -> bool:
        """Whether it is time for another try: the machine may have been busy."""
        return monotonic() > self.since + AGAIN_SECONDS

    def end(self) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Fork:
    """A process that is to make a run, and waits for the word."""

    name: str
    """As the ledger names it."""
    channel: socket.socket

    def go(self) -> None:
        """Have it begin. Raises NoParent if it has ended: it has begun nothing, and never will."""
        try:
            with self.channel:
                self.channel.send(GO)
        except OSError as error:
            raise NoParent(f"the process that was to make it has ended ({error})") from error


@dataclass(frozen=True)
class Parent:
    """A process that has loaded a code location as it was at one moment."""

    load: str
    """What tells this load from others of the location."""
    process: "subprocess.Popen[bytes]"
    channel: socket.socket

    @classmethod
    def start(cls, load: str, server: psutil.Process, wanted: Load, until: float) -> "Parent":
        """Start one with the environment and in the folder of a code server. Raises NoParent if it cannot load by then.

        Args:
            load: What tells this load of the location from others.
            server: The process whose environment and folder it has.
            wanted: What it loads.
            until: The moment of the monotonic clock by which it must have.
        """
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = subprocess.Popen(  # noqa: S603
                [wanted.origin.executable_path, "-P", "-m", PROGRAM, str(its.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=server.environ(),
                cwd=server.cwd(),
                start_new_session=True,  # A Ctrl-C is for who launches, not for runs.
            )
        parent = cls(load, process, ours)
        try:
            parent._wait(wanted, until)
        except BaseException:
            parent.end()
            raise
        return parent

    def _wait(self, wanted: Load, until: float) -> None:
        try:
            self.channel.settimeout(_left(until))
            self.channel.send(wanted.packed())
            answer = self.channel.recv(MESSAGE_BYTES)
        except TimeoutError as error:
            raise NoParent(f"the code location was not loaded within {LAUNCH_SECONDS} s") from error
        except OSError:  # It ended before it had read what it is to load.
            answer = b""
        if not answer and self.process.wait() < 0:
            return  # It was killed, which says nothing of what it loads: it is one that has ended, as any other may.
        if answer != READY:
            raise NoParent(f"the code location cannot be loaded ({answer.decode() or 'its process ended'})")

    def fork(self, run_id: str, until: float) -> Fork:
        """A process for a run, which begins nothing before `Fork.go`. Raises NoParent, and is one no more."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                socket.send_fds(self.channel, [run_id.encode()], [its.fileno()])
            ours.settimeout(min(FORK_SECONDS, _left(until)))
            if name := ours.recv(MESSAGE_BYTES).decode():
                return Fork(name, ours)
            why = "has ended"
        except OSError as error:
            why = f"does not fork ({error})"
        ours.close()
        self.end()
        raise NoParent(f"the process that has loaded the code location {why}")

    @property
    def has_ended(self) -> bool:
        """Whether it can fork no more."""
        return self.process.poll() is not None

    def end(self) -> None:
        """Let it end, which it does as soon as nobody holds its channel; what it has forked goes on."""
        self.channel.close()
        self.process.kill()
        self.process.wait()


def _left(until: float) -> float:
    return max(1, until - monotonic())


def server_behind(client: DagsterGrpcClient, executable: str) -> psutil.Process:
    """The process that listens where a client reaches its code server: one of ours, on this host. Raises NoParent."""
    at, kind = (f"{client.host}:{client.port}", "tcp") if client.port else (client.socket, "unix")
    hosts = _addresses(client.host) if client.port else set[str]()
    found = {each.pid for each in psutil.net_connections(kind) if _is_at(each, client, hosts)} - {None}
    if len(found) != 1:
        raise NoParent(f"the code server at {at} is not a process of this user on this host")
    server = psutil.Process(found.pop())
    if why := _why_not(server, executable):
        raise NoParent(f"what listens at {at} {why}")
    return server


def _why_not(server: psutil.Process, executable: str) -> str | None:
    """Why a process is not one whose code another can load as it has: a tunnel to elsewhere listens here, too."""
    command = server.cmdline()
    if server.uids().effective != os.geteuid():
        return f"is a process of another user ({server.username()})"
    if Path(f"/proc/{server.pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink():
        return "has other files: it is in a container"
    if not Path(server.exe()).samefile(executable) and not any("dagster" in each for each in command):
        return f"is no code server ({server.name()})"
    if any(each.startswith("--fixed-server-id") for each in command):
        return "has a fixed id (--fixed-server-id), and so does not say when it has loaded again"
    return None


def _addresses(host: str | None) -> set[str]:
    """The addresses that a name leads to. Raises NoParent unless each is one of this host: the port says nothing."""
    found = {str(address[0]) for *_, address in socket.getaddrinfo(host, None)}
    ours = {each.address for addresses in psutil.net_if_addrs().values() for each in addresses}
    if elsewhere := sorted(each for each in found - ours if not ip_address(each).is_loopback):
        raise NoParent(f"its code server is on another host ({host} is {', '.join(elsewhere)})")
    return found


def _is_at(connection: Any, client: DagsterGrpcClient, hosts: set[str]) -> bool:
    if client.socket:
        return connection.laddr == client.socket
    return (
        connection.status == psutil.CONN_LISTEN
        and connection.laddr.port == client.port
        and connection.laddr.ip.removeprefix("::ffff:") in hosts | _EVERYWHERE
    )
