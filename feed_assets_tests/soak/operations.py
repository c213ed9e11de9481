"""Daemon, code server and their workers, as operations run them: killed and started again one by one."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil

from feed_assets.cli.loaded_location import prepare
from feed_assets.cli.processes import free_port, is_free
from feed_assets_tests.support.servers import stop, wait_until

SECONDS = 180
"""Limit for the start of a server on a shared machine."""

PARENT = "feed_assets.orchestration.launcher.parent"
"""Text in the command line of the process that forks warm runs, and of its forks."""

Process = subprocess.Popen[bytes]


@dataclass
class Operations:
    """The processes that run a project. Each leads its own process group; all of them end with `running`."""

    folder: Path
    module: str
    port: int = field(default_factory=free_port)
    servers: dict[str, Process] = field(default_factory=dict[str, Process])
    seen: set[psutil.Process] = field(default_factory=set[psutil.Process])
    """Workers that may outlive their code server."""

    def start(self) -> None:
        """Start every server that does not run."""
        here = ["--host", "127.0.0.1", "--port", str(self.port)]
        self._start("code server", [sys.executable, "-m", "dagster", "api", "grpc", *here, "-m", self.module])
        there = ["--grpc-host", "127.0.0.1", "--grpc-port", str(self.port)]
        self._start("daemon", [str(Path(sys.executable).with_name("dagster-daemon")), "run", *there])

    def _start(self, name: str, command: list[str]) -> None:
        if name in self.servers:
            return
        with (self.folder / f"{name}.log").open("ab") as log:
            self.servers[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        if name == "code server":
            wait_until(lambda: not is_free(self.port), f"the code server; see {self.folder}", SECONDS)

    def kill(self, victim: str, random: Random) -> None:
        """SIGKILL for `daemon`, `code server` (workers live on), `all`, or a `worker` or `parent` once there is one."""
        if victim in ("worker", "parent"):
            find = self.workers if victim == "worker" else self.parents
            wait_until(lambda: bool(find()), f"a {victim}", SECONDS)
            _kill(random.choice(find() or [None]))
            return
        workers = self.workers()
        for name in ("code server", "daemon") if victim == "all" else (victim,):
            process = self.servers.pop(name)
            process.kill()
            process.wait()
        for worker in workers if victim == "all" else ():
            _kill(worker)

    def workers(self) -> list[psutil.Process]:
        """Return the live processes of runs: warm ones, and those that the code server started."""
        found = [child for parent in self.parents() for child in _children(parent.pid, PARENT)]
        found += self._children("code server", "spawn_main")
        self.seen |= {*found}
        return found

    def parents(self) -> list[psutil.Process]:
        """Return the processes that fork warm runs."""
        return self._children("daemon", PARENT)

    def _children(self, server: str, words: str) -> list[psutil.Process]:
        return _children(self.servers[server].pid, words) if server in self.servers else []

    def stop(self) -> None:
        """End all processes."""
        self.workers()
        for process in self.servers.values():
            stop(process)
        for worker in self.seen:
            _kill(worker)


@contextmanager
def running(home: Path, module: str) -> Iterator[Operations]:
    """Run daemon and code server on a home with our own `dagster.yaml`."""
    operations = Operations(prepare(home), module)
    try:
        operations.start()
        yield operations
    finally:
        operations.stop()


def _children(pid: int, words: str) -> list[psutil.Process]:
    try:
        found = psutil.Process(pid).children()
        return [each for each in found if words in " ".join(_reported(each.cmdline) or [])]
    except psutil.NoSuchProcess:
        return []


def _reported(question: Callable[[], list[str]]) -> list[str] | None:
    try:
        return question()
    except psutil.NoSuchProcess:
        return None


def _kill(process: psutil.Process | None) -> None:
    """Kill the process if it is still the same one: psutil compares its start time, too."""
    if process is None or process.pid == os.getpid():
        return
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
