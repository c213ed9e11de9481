"""Histories by chance of arrivals, compactions, kills, roll-backs and prunes: readers get the rows of an oracle."""

import signal
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from feed_assets import Compact
from feed_assets.cli import feed as feed_commands
from feed_assets.compaction import whole_partitions
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.errors import AlreadyRunning, NoValidUpdate, UpdateChanged
from feed_assets.core.feeds import Feed, Partition, Update
from feed_assets.core.retention import Retention
from feed_assets.feeds import read
from feed_assets.feeds.stores import local_root
from feed_assets.ledger import claims, compacted_partitions
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.prune import prune_feed
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Given, PlainMaker, rows_of
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kill_points import call_and_die
from feed_assets_tests.support.main_call import exit_and_errors
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, chain, given, rows

SORTED = Compact(sort_by=("k",), files=1)
OUTPUT = Partition(Feed.parse(SUMS), DAY)
STEPS = 25


@pytest.fixture(autouse=True)
def world(home):
    yield home
    sum_projects.opened.close()


def services() -> Services:
    return Services.of(settings(), lambda: PlainMaker(given))


def compact_once() -> None:
    compact_partition(services(), OUTPUT, SORTED)


def compact_and_die(number: int) -> None:
    call_and_die(number, local_root(settings().blackboard), compact_once)


class History:
    """A dataset, what its readers must get, and the readers in progress."""

    def __init__(self, seed: int, forker, invalidate: Callable[[str], None]) -> None:
        self.random, self.forker, self.take_back = Random(seed), forker, invalidate  # noqa: S311
        self.world = chain()
        self.arrive()
        self.build()
        self.readers: list[tuple[Update, list]] = []

    def step(self) -> None:
        """Do one thing, and compare what readers get before and after it."""
        self.random.choice(
            [self.arrive, self.build, self.compact, self.compact, self.compact_killed, self.invalidate, self.prune]
        )()
        if self.random.random() < 0.3 and (update := self.newest()):
            self.readers.append((update, rows_of(services().board, update)))

    def newest(self) -> Update | None:
        return read.latest(services().board, OUTPUT).update

    def visible(self) -> list | None:
        update = self.newest()
        return rows_of(services().board, update) if update else None

    def arrive(self) -> None:
        self.numbers = [self.random.randrange(1, 9) for _ in range(self.random.randrange(1, 4))]
        while sum(self.numbers) == sum_projects.UNLUCKY:
            self.numbers.append(1)
        self.world.drop(RAW, DAY, rows(*self.numbers))

    def build(self) -> None:
        """Build until idle: then the rows are the sums of what has arrived last."""
        ran = self.world.run_until_idle()
        assert all(run.succeeded for run in ran), [run.error for run in ran]
        assert self.visible() == [{"k": "a", "n": sum(self.numbers)}]
        assert self.world.rows("t/picked/v1.0", DAY) == self.visible()
        assert self.world.run_until_idle() == []

    def compact(self) -> None:
        before = self.visible()
        with suppress(AlreadyRunning, NoValidUpdate, UpdateChanged):
            compact_once()
        assert self.visible() == before

    def compact_killed(self) -> None:
        before = self.visible()
        assert self.forker.run(compact_and_die, self.random.randrange(1, 60)) in (0, 1, -signal.SIGKILL)
        assert self.visible() == before

    def invalidate(self) -> None:
        """Take the newest rows back: readers get other rows, or none, or those that an older build made as well."""
        if update := self.newest():
            with open_ledger(settings().ledger).read() as connection:
                bad = compacted_partitions.with_same_rows(connection, OUTPUT, update.id)
            self.take_back(update.id)
            assert (newest := self.newest()) is None or newest.id not in bad

    def prune(self) -> None:
        """Prune all but two updates. A reader in progress keeps the files of the newest update that it has."""
        before, newest = self.visible(), self.newest()
        assert [*prune_feed(services(), OUTPUT.feed, Retention(keep=2), apply=True)]
        assert self.visible() == before
        self.readers = [each for each in self.readers if newest and each[0].id == newest.id]

    def end(self) -> None:
        for update, expected in self.readers:
            assert rows_of(services().board, update) == expected
        self.build()


def run(seed: int, forker, invalidate: Callable[[str], None]) -> None:
    history = History(seed, forker, invalidate)
    for _ in range(STEPS):
        history.step()
    history.end()


@pytest.fixture
def by_command(monkeypatch, capsys) -> Callable[[str], None]:
    def invalidate(update_id: str) -> None:
        assert exit_and_errors(monkeypatch, capsys, "feed", "invalidate", SUMS, DAY, update_id)[0] == 0

    return invalidate


def run_all(forker, invalidate: Callable[[str], None]) -> None:
    for seed in range(6):
        run(seed, forker, invalidate)


@each_case("seed", range(4))
def test_readers_get_the_right_rows_through_compactions_kills_and_roll_backs(seed, forker, by_command):
    run(seed, forker, by_command)


@each_case("wrong", ["one update is invalidated", "the rows are not compared"])
def test_wrong_compactions_are_caught(wrong, forker, by_command, monkeypatch):
    if wrong == "one update is invalidated":
        monkeypatch.setattr(feed_commands, "_with_same_rows", lambda board, partition, update_id: [update_id])
    else:
        monkeypatch.setattr(whole_partitions._Replacement, "_stage", staged_without_check)
        lossy = Given([{"k": "a", "n": 0}])
        monkeypatch.setattr(
            f"{__name__}.services", lambda: Services.of(settings(), lambda: PlainMaker(lambda task: lossy))
        )
    with pytest.raises(AssertionError):
        run_all(forker, by_command)


def staged_without_check(replacement, output) -> None:
    with replacement.services.ledger.write() as connection:
        claims.stage(connection, output.update, replacement.row.version)
