"""A project with a primary and data centers, whose runs note the blackboards that they read."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from feed_assets.core.data_centers import At
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import due, runs
from feed_assets.ledger.database import open_ledger
from feed_assets.replication import replica_tasks
from feed_assets.replication.places import open_place
from feed_assets.replication.replicator import replicate
from feed_assets.runs.maker import Task
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Given, Harness
from feed_assets_tests.support.sum_projects import DAYS, RAW, SUMS, given, harness, later, raw_feed, sums_of

LOCAL = {"kind": "local", "cores": 2, "memory": "2g"}


@dataclass
class World:
    """A lake with places, and the blackboards that its runs have read: (dataset's partition, folder's name)."""

    lake: Harness
    folder: Path
    reads: list[tuple[str, str]] = field(default_factory=list)

    def copy(self, place: str = "b") -> None:
        """Copy what waits for a place."""
        services = Services.of(settings())
        now = self.lake.now
        services = Services(services.board, services.ledger, services.maker, now=now)
        replicate(services, open_place(settings(), place, services.board))

    def copy_errors(self, place: str = "b") -> list[str]:
        """Return the errors of the copies that wait for a place."""
        with open_ledger(settings().ledger).read() as connection:
            return [each.error or "" for each in replica_tasks.waiting(connection, place)]

    def pass_(self, **time: float) -> None:
        later(self.lake, timedelta(**time))

    def requests(self) -> list[dg.RunRequest]:
        """Return what a tick requests now."""
        self.pass_(seconds=11)
        return [*self.lake.ask().requests]

    def asked(self) -> list[tuple[str | None, str]]:
        """Return the partitions that a tick requests now, each with its target."""
        return [(each.partition_key, each.tags["feed_assets/target"]) for each in self.requests()]

    def run(self) -> list[tuple[str | None, str]]:
        """Tick, and return the partitions of `sums` that ran, with their targets."""
        self.pass_(seconds=11)
        ran = [each for each in self.lake.tick() if "t/sums" in each.assets]
        return [(each.partition, each.tags.get("feed_assets/target", "")) for each in ran]

    def reasons(self, *states: str) -> dict[str, str]:
        """Return why each output of `sums` is listed, of those in these states."""
        with open_ledger(settings().ledger).read() as connection:
            items = due.listed(connection, Feed.parse(SUMS))
        return {each.partition.key: each.reason or "" for each in items if not states or each.state in states}

    def waits(self) -> dict[str, str]:
        """Return why each output of `sums` waits for a place."""
        return self.reasons("waits for input")

    def last_run(self, key: str) -> tuple[str, str]:
        """Return the state of a partition's last run, and the name of its error."""
        with open_ledger(settings().ledger).read() as connection:
            last = runs.last(connection, Partition(Feed.parse(SUMS), key))
        assert last
        return last.state, (last.reason or "").partition(":")[0]


def change(monkeypatch: pytest.MonkeyPatch, **values: object) -> None:
    """Change settings: those that are no text are JSON."""
    for name, value in values.items():
        monkeypatch.setenv(f"FEED_ASSETS_{name.upper()}", value if isinstance(value, str) else json.dumps(value))
    settings.cache_clear()


def check_bytes(task: Task) -> None:
    """Raise AssertionError unless each file that a run reads has the bytes of the source, wherever it is read."""
    source = open_board(settings())
    for name, updates in task.updates.items():
        for file in (file for each in updates for file in each.files):
            assert task.boards.get(name, source).get(file.key) == source.get(file.key) is not None


def world(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    centers: dict[str, dict],
    at: At = "b",
    partitions_def=DAYS,
    during: Callable[[Task], object] = lambda _: None,
) -> World:
    """Return a world of raw -> sums with these data centers, which get all of `t`, their targets, and `here`."""
    for name in centers:
        (folder / name).mkdir(exist_ok=True)
    urls = {name: {"url": (folder / name).as_uri(), "datasets": ["t/*"], **each} for name, each in centers.items()}
    targets = ["here", *(target for each in centers.values() for target in each.get("targets", ()))]
    monkeypatch.delenv("FEED_ASSETS_DATA_CENTERS", raising=False)
    opened: list[World] = []

    def give(task: Task) -> Given:
        folders = {board.title.rsplit("/", 1)[-1] for board in task.boards.values()}
        boards = ["primary" if each == "blackboard" else each for each in folders]
        opened[0].reads += [(f"{task.output.feed.name} {task.output.key}", each) for each in boards]
        during(task)
        check_bytes(task)
        return given(task)

    raw = raw_feed(partitions_def=partitions_def)
    opened.append(World(harness(raw, sums_of(raw, at=at, partitions_def=partitions_def), give=give), folder))
    # The definitions have no sensor that copies, because they have no data centers yet. The test copies itself.
    change(monkeypatch, targets=dict.fromkeys(targets, LOCAL), data_centers=urls, partitions_per_run=1, tick_seconds=20)
    return opened[0]


def board_of(place: str, folder: Path) -> Blackboard:
    return Blackboard.open((folder / place).as_uri())


__all__ = ["RAW", "SUMS", "World", "board_of", "change", "world"]
