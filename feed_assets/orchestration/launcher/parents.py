"""The parent of a code location's runs, as who launches them holds it."""

import socket
import subprocess
from dataclasses import dataclass
from typing import Any

import psutil

from feed_assets.core.errors import FeedAssetsError
from feed_assets.orchestration.launcher.dagsters import DagsterGrpcClient
from feed_assets.orchestration.launcher.parent import GO, MESSAGE_BYTES, READY, Load

LOAD_SECONDS = 90
"""Seconds in which a code location must be loaded: Dagster's monitoring gives a run two minutes to begin."""

FORK_SECONDS = 10
"""Seconds in which a fork must say who it is."""

_LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"}  # noqa: S104


class NoParent(FeedAssetsError):
    """No parent can be had for a run."""


@dataclass(frozen=True)
class Unloadable:
    """A load of a code location that has no parent; another try would take as long, for each run."""

    load: str
    why: str
    has_ended = False

    def end(self) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Fork:
    """A process that is to make a run, and waits for the word."""

    name: str
    """As the ledger names it."""
    channel: socket.socket

    def go(self) -> None:
        """Have it begin. Raises OSError if it has ended."""
        with self.channel:
            self.channel.send(GO)


@dataclass(frozen=True)
class Parent:
    """A process that has loaded a code location as it was at one moment."""

    load: str
    """What tells this load from others of the location."""
    process: "subprocess.Popen[bytes]"
    channel: socket.socket

    @classmethod
    def start(cls, load: str, server: psutil.Process, wanted: Load) -> "Parent":
        """Start one with the environment and in the folder of a code server. Raises NoParent if it cannot load."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            process = subprocess.Popen(  # noqa: S603
                [wanted.origin.executable_path, "-m", "feed_assets.orchestration.launcher.parent", str(its.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[its.fileno()],
                env=server.environ(),
                cwd=server.cwd(),
                start_new_session=True,  # A Ctrl-C is for who launches, not for runs.
            )
        parent = cls(load, process, ours)
        try:
            parent._wait(wanted)
        except BaseException:
            parent.end()
            raise
        return parent

    def _wait(self, wanted: Load) -> None:
        try:
            self.channel.settimeout(LOAD_SECONDS)
            self.channel.send(wanted.packed())
            answer = self.channel.recv(MESSAGE_BYTES)
        except TimeoutError as error:
            raise NoParent(f"the code location was not loaded within {LOAD_SECONDS} s") from error
        except OSError:  # It ended before it had read what it is to load.
            answer = b""
        if not answer and self.process.wait() < 0:
            return  # It was killed, which says nothing of what it loads: it is one that has ended, as any other may.
        if answer != READY:
            raise NoParent(f"the code location cannot be loaded ({answer.decode() or 'its process ended'})")

    def fork(self, run_id: str) -> Fork:
        """A process for a run, which begins nothing before `Fork.go`. Raises NoParent, and is one no more."""
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                socket.send_fds(self.channel, [run_id.encode()], [its.fileno()])
            ours.settimeout(FORK_SECONDS)
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


def server_behind(client: DagsterGrpcClient) -> psutil.Process:
    """The process that listens where a client reaches its code server: one of ours, on this host. Raises NoParent."""
    found = {each.pid for each in psutil.net_connections("tcp" if client.port else "unix") if _is_at(each, client)}
    if len(found) != 1 or None in found:
        raise NoParent(f"the code server at {client.port or client.socket} is not a process of this user on this host")
    return psutil.Process(found.pop())


def _is_at(connection: Any, client: DagsterGrpcClient) -> bool:
    if client.socket:
        return connection.laddr == client.socket
    return (
        connection.status == psutil.CONN_LISTEN
        and connection.laddr.port == client.port
        and connection.laddr.ip in _LOOPBACK
    )
