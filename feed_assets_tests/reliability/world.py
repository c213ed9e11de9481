"""The world of one seed: its stores, its clock, its processes, and the facts that outsiders know."""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from feed_assets_tests.reliability import schedule
from feed_assets_tests.reliability.processes import Life, live
from feed_assets_tests.reliability.store import Store, opened
from feed_assets_tests.support.forked_processes import Forks

BEGIN = datetime(2026, 3, 2, 6, 30, tzinfo=UTC)
"""The time at which the world begins: six hours of the first day are over."""

STEP = timedelta(minutes=5)
"""Time that passes while a process works."""

QUIET = timedelta(hours=3)
"""Time that passes between two rounds at the end: longer than any pause."""

ROUNDS = 30
"""Rounds at the end after which a world that still changes has failed."""


class WorldFailed(AssertionError):
    """A process ended by itself with an error, or the world never comes to rest."""


@dataclass(frozen=True)
class Places:
    """The stores of a world, which the checker reads, too."""

    blackboard: str
    ledger: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass
class World:
    """The state of a world between two acts."""

    folder: Path
    forks: Forks
    places: Places
    now: datetime = BEGIN
    variant: str = ""
    code: str = "1"
    counts: Counter[str] = field(default_factory=Counter[str])
    """Acts, and processes that were killed."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """What parts keep between two acts."""
    variables: dict[str, str] = field(default_factory=dict[str, str])
    """Environment variables that parts add for all processes."""
    step: int = 0

    @property
    def home(self) -> Path:
        """Return the folder of Dagster's instance."""
        return self.folder / "home"

    @property
    def store(self) -> Store:
        """Return the blackboard as outsiders see it."""
        return opened(self.places.blackboard)

    def note(self, what: str, **fact: Any) -> None:
        """Write down a fact that an outsider knows, for the checker."""
        line = {"what": what, "step": self.step, "at": self.now.isoformat(), **fact}
        with (self.folder / "facts.jsonl").open("a") as facts:
            facts.write(f"{json.dumps(line)}\n")

    @contextmanager
    def environment(self):
        """Set the environment of the world's processes."""
        before = dict(os.environ)
        os.environ.update(
            {
                "DAGSTER_HOME": str(self.home),
                "FEED_ASSETS_BLACKBOARD": self.places.blackboard,
                "FEED_ASSETS_LEDGER": self.places.ledger,
                "FEED_ASSETS_MAX_ATTEMPTS": "50",
                "FEED_ASSETS_HISTORY_DAYS": "3650",
                "FEED_ASSETS_EVENTS_TO": f"sqlite:///{self.folder / 'ours.db'}#events",
                "WHOLE_TEAM": f"sqlite:///{self.folder / 'team.db'}",
                "WHOLE_CODE": self.code,
                "WHOLE_WRONG": self.variant,
                "WHOLE_LOG": str(self.folder / "log.txt"),
                **self.places.environment,
                **self.variables,
            }
        )
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def run(
        self,
        work: Callable[..., object],
        *arguments: object,
        dies_at: int | None = None,
        skew: int = 0,
        may_fail: bool = False,
    ) -> Any:
        """Run a process to its end. Return its result; None if it was killed, or failed where it may.

        Raise WorldFailed if it failed otherwise.
        """
        (words := self.folder / "words.json").unlink(missing_ok=True)
        life = Life(self.now + timedelta(seconds=skew), dies_at, words)
        with self.environment():
            code = self.forks.run(live, life, work, *arguments)
        self.now += STEP
        if code == -signal.SIGKILL and dies_at:
            self.counts[f"killed {work.__name__}"] += 1
            return None
        if code and may_fail:
            self.counts[f"failed {work.__name__}"] += 1
            return None
        if code:
            raise WorldFailed(f"{work.__name__}{arguments} ended with {code}: {self.log()[-3000:]}")
        return json.loads(words.read_text())

    def log(self) -> str:
        """Return what the processes have printed."""
        path = self.folder / "log.txt"
        return path.read_text() if path.exists() else ""

    def play(self, step: schedule.Step) -> None:
        """Do one act of the schedule."""
        found = schedule.loaded().acts[step.act]
        self.step, self.now = step.number, self.now + timedelta(seconds=step.pause)
        with (self.folder / "schedule.txt").open("a") as file:
            file.write(f"{self.now:%m-%d %H:%M:%S} {step}\n")
        self.counts[step.act] += 1
        found.do(self, **step.arguments)

    def settle(self) -> None:
        """Let everything that is due be done, without faults."""
        self.note("settles")
        parts = schedule.loaded()
        for _ in range(ROUNDS):
            self.now += QUIET
            effects = [settles(self) for settles in parts.settles]
            if not any(effects):
                return
        raise WorldFailed(f"the world does not come to rest in {ROUNDS} rounds")


def copied_home(template: Path, folder: Path) -> None:
    """Make the home of a world: a new one would need seconds for Dagster's tables."""
    shutil.copytree(template, folder / "home")
    (folder / "home" / "blackboard").mkdir(exist_ok=True)
