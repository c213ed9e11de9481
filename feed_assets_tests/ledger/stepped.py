"""A build that stops after a step, continues, or is killed there: others act in between, in this process."""

import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event, Thread

import sqlalchemy as sa

from feed_assets.core.errors import AlreadyRunning, UpdateChanged
from feed_assets.core.feeds import Partition
from feed_assets.ledger.database import Ledger
from feed_assets.ledger.tables import run
from feed_assets.runs.services import Services

GONE = f"{socket.gethostname()}:1:-1.00"
"""A process that has ended."""


class Killed(BaseException):
    """A stand-in for a kill: nothing of the process continues."""


class Mortal(Ledger):
    """A ledger that a killed process can no longer reach."""

    is_dead = False

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        self._alive()
        with super().read() as connection:
            yield connection

    @contextmanager
    def write(self) -> Generator[sa.Connection]:
        self._alive()
        with super().write() as connection:
            yield connection

    @contextmanager
    def change(self) -> Generator[sa.Connection]:
        self._alive()
        with super().change() as connection:
            yield connection

    def _alive(self) -> None:
        if self.is_dead:
            raise Killed


class SteppedBuild:
    """One build of an output in its own thread, which runs only while the test waits for it."""

    def __init__(self, services: Services, output: Partition, build: Callable[[Services], object]) -> None:
        self.ledger, self.output = Mortal(services.ledger.engine), output
        self.until: str | None = None
        self.error: Exception | None = None
        self.out_of_time = False
        self.may_go, self.has_stopped = Event(), Event()
        own = replace(services, ledger=self.ledger, on_step=self._step)
        # A test that fails midway leaves builds that never end: the process must not wait for them.
        self.thread = Thread(target=self._run, args=(build, own), daemon=True)
        self.thread.start()

    def go(self, until: str | None) -> bool:
        """Continue to the end of a step, or of the build. Return True if it stands there, and False if it is over."""
        self.until = until
        self.has_stopped.clear()
        self.may_go.set()
        self.has_stopped.wait()
        if self.error:
            raise self.error
        return not self.out_of_time

    def die(self) -> None:
        """Kill the build where it stands."""
        self.ledger.is_dead = True
        self.may_go.set()
        self.thread.join()
        with Ledger(self.ledger.engine).write() as connection:
            mine = (run.c.feed == str(self.output.feed)) & (run.c.partition == self.output.key)
            connection.execute(sa.update(run).where(mine, run.c.state == "running").values(process=GONE))

    def _run(self, build: Callable[[Services], object], services: Services) -> None:
        try:
            with suppress(Killed, UpdateChanged):
                self._wait()
                build(services)
        except (AlreadyRunning, sa.exc.SQLAlchemyError) as error:
            self.error = error
        finally:
            self.out_of_time = True
            self.has_stopped.set()

    def _step(self, step: str) -> None:
        if step == self.until:
            self.has_stopped.set()
            self._wait()

    def _wait(self) -> None:
        self.may_go.wait()
        self.may_go.clear()
        if self.ledger.is_dead:
            raise Killed
