"""The parent of runs: a process that has loaded a code location, and forks itself for each run.

The process that started the parent holds the other end of the parent's only socket. When that end is closed, even by a
kill, the parent ends, and its runs continue. The parent opens no connection, session or thread before a fork. So a fork
shares none of these with the parent.
"""

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, cast

import dagster as dg

from feed_assets.core.message_words import excerpt
from feed_assets.orchestration.launcher.dagster_private import (
    InstanceRef,
    RepositoryPythonOrigin,
    capture_interrupts,
    execute,
    load,
    variables,
)
from feed_assets.orchestration.launcher.forkable import check_forkable, forget_finalizers
from feed_assets.orchestration.ticks.run_lock import hold
from feed_assets.runs.services import this_process

READY, GO = b"ready", b"go"
"""The message of a parent that has loaded its code location, and the message that a fork waits for."""

MESSAGE_BYTES = 200_000
"""Greatest length of a message, near the limit of Linux."""

NEEDED_BY_RUNS = (
    "feed_assets.orchestration.execute.asset_function",
    "feed_assets.runs.spark_maker",
    "feed_assets.spark.session",
)
NEEDED_BY_CONNECT = ("feed_assets.spark.connect",)
"""Modules that runs import lazily. The parent imports them, so that its forks need not.

The second list is for Spark Connect. An import of these modules opens no files or connections.
"""


@dataclass(frozen=True)
class Load:
    """The arguments of a parent: a process that loads a code location once and forks a process for each run."""

    instance: InstanceRef
    origin: RepositoryPythonOrigin
    location: str

    def packed(self) -> bytes:
        """Return the arguments as bytes, for the process that loads the code location."""
        return dg.serialize_value([self.instance, self.origin, self.location]).encode()

    @classmethod
    def unpack(cls, message: bytes) -> "Load":
        """Return the arguments from bytes that `packed` made."""
        values = cast("list[Any]", dg.deserialize_value(message.decode()))
        return cls(*values)


def main(launcher: socket.socket) -> int:
    """Load the code location, and fork for each requested run until the socket is closed. Return the exit code.

    In a fork, execute the run, and return its exit code.
    """
    load_request = Load.unpack(launcher.recv(MESSAGE_BYTES))
    try:
        _load(load_request)
        check_forkable({0, 1, 2, launcher.fileno()})
    except BaseException as error:
        launcher.send(f"{type(error).__name__}: {excerpt(str(error))}".encode())
        raise
    # Freeze loaded objects: a fork's garbage collector then does not touch them, so their memory stays shared.
    gc.freeze()
    launcher.send(READY)
    forked = _serve(launcher)
    return _run(*forked, load_request.instance) if forked else 0


def _load(load_request: Load) -> None:
    _reach_the_folder()
    os.environ.update(variables(load_request.instance, load_request.location))
    load(load_request.origin)
    from feed_assets.settings import settings

    for name in NEEDED_BY_RUNS + (NEEDED_BY_CONNECT if settings().spark_remote else ()):
        import_module(name)


def _reach_the_folder() -> None:
    """Make modules of the current folder importable, as in the code server, but after installed packages.

    Dagster ignores the first entry of `sys.path` when it loads code. So put a dummy entry first.
    """
    sys.path.insert(0, os.devnull)
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.append(str(Path.cwd()))


def _serve(launcher: socket.socket) -> tuple[str, socket.socket] | None:
    """Fork for each requested run. In a fork, return the run id and a socket to the requester.

    In the parent, return None once the socket is closed.
    """
    signal.signal(signal.SIGCHLD, _bury)
    while True:
        message, handles, *_ = socket.recv_fds(launcher, MESSAGE_BYTES, 1)
        if not message:
            return None
        requester = socket.socket(fileno=handles[0])
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            launcher.close()
            return message.decode(), requester
        requester.close()


def _bury(_number: int, _frame: FrameType | None) -> None:
    """Reap ended forks. Otherwise they would stay zombies, and their CPU time would not count for this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _run(run_id: str, requester: socket.socket, instance: InstanceRef) -> int:
    """Execute a run once the requester has recorded this process. Return the exit code.

    A signal that arrives while this function waits for the requester interrupts the run, too.
    """
    forget_finalizers()
    with capture_interrupts():
        hold(Path(instance.local_artifact_storage.storage_dir), run_id)
        if not _may_begin(requester):
            return 0
        return execute(run_id, instance)


def _may_begin(requester: socket.socket) -> bool:
    """Return whether the requester still wants the run.

    The requester may have ended, or it may have timed out and started the run elsewhere.
    """
    with requester, suppress(OSError):
        requester.send(this_process().encode())
        return requester.recv(len(GO)) == GO
    return False


if __name__ == "__main__":
    sys.exit(main(socket.socket(fileno=int(sys.argv[1]))))
