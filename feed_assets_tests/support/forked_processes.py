"""Thousands of processes to be killed: a process that has imported everything forks each of them in milliseconds."""

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection

from feed_assets_tests.support.feed_processes import processes, start

LATER = (
    "alembic.command",
    "sqlite3",
    "_strptime",
    "feed_assets.orchestration.storage",
    "feed_assets.orchestration.ticks.lineage_events",
    "dagster._daemon.controller",
)
"""Modules that are imported only when a ledger or Dagster's instance is opened: each fork would need a second for them.
"""


class Forks:
    """A runner of functions in forked processes, one after the other or side by side."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def run(
        self, target: Callable[..., None], *arguments: object, meanwhile: Callable[[], object] | None = None
    ) -> int:
        """Run `target` in a fork, and call `meanwhile` repeatedly until it ends. Return its exit code (-9: killed)."""
        return self.wait(self.start(target, *arguments), meanwhile)

    def start(self, target: Callable[..., None], *arguments: object) -> int:
        """Start `target` in a fork, and return the id of its process. The caller must wait for it."""
        self._connection.send((dict(os.environ), target, arguments))
        return self._connection.recv()

    def wait(self, child: int, meanwhile: Callable[[], object] | None = None) -> int:
        """Call `meanwhile` repeatedly until a process ends. Return its exit code."""
        self._connection.send(child)
        try:
            while meanwhile and not self._connection.poll():
                meanwhile()
        finally:
            code = self._connection.recv()  # even if `meanwhile` raises: the next process has its own exit code
        return code


@contextmanager
def forks(*modules: str) -> Iterator[Forks]:
    """Start a process that has imported these modules, and forks until the block ends."""
    here, there = processes.Pipe()
    parent = start(_serve, there, modules)
    there.close()
    yield Forks(here)
    here.close()
    parent.join()


def _serve(connection: Connection, modules: tuple[str, ...]) -> None:
    """Fork for each job. This process never has a thread or a client of a store, which a fork would break."""
    for each in modules:
        import_module(each)
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        if isinstance(asked, int):
            connection.send(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]))
        else:
            if not (child := os.fork()):
                _work(*asked)
            connection.send(child)


def _work(environment: dict[str, str], target: Callable[..., None], arguments: tuple[object, ...]) -> None:
    code = 1
    try:
        os.environ.clear()
        os.environ.update(environment)
        target(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()  # Otherwise the reason of its death would be lost.
        raise
    finally:
        os._exit(code)
