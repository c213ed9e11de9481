"""Two code locations share their discovery: what each decides on is never too old, and both end with the store's truth.

Arrivals, invalidations, disorder on the store, ticks, and kills before any statement or operation alternate by chance.
"""

import shutil
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import MANIFEST, Feed, Partition, update_id
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate
from feed_assets.ledger import discoveries, updates
from feed_assets.ledger.database import Ledger, get_cursor, open_ledger
from feed_assets.runs.discover import discover
from feed_assets.runs.services import Services
from feed_assets.runs.shared_discovery import SharedDiscovery
from feed_assets_tests.support.build_lake import NOW, RAW
from feed_assets_tests.support.counted_blackboards import with_operations
from feed_assets_tests.support.fault_seeds import assert_caught, seeds

KEYS = ("2026-01-01", "2026-01-02", "2026-01-03/men", "2026-01-03/women", "2026-01-04/men")
LOCATIONS = ("ads/made", "shop/made")
STEPS = 60
ALLOWED = discoveries.FRESH_FOR
Newest = dict[str, str | None]


class KilledError(BaseException):
    """A process ends here."""


class History:
    """A store, the ledger of two code locations, and what was valid on the store since when."""

    def __init__(self, seed: int, board: Blackboard, ledger: Ledger) -> None:
        self.random, self.board, self.ledger, self.now = Random(seed), board, ledger, NOW  # noqa: S311
        self.truths: list[tuple[datetime, Newest]] = []
        self.numbers = count(1)

    def run(self) -> None:
        """Take random steps. Then each code location ticks on its own until it has ended a round that was begun."""
        for _ in range(STEPS):
            acts = [self.arrive, self.arrive, self.remove, self.spoil, self.tick, self.tick, self.kill, self.hurry]
            self.random.choice(acts)()
            self.now += timedelta(seconds=self.random.choice([0, 0.5, 2, 4.9, 5, 12]))
            self._note()
        for location in LOCATIONS:
            for _ in range(2):
                self.now += ALLOWED
                self.discover(location)
            assert self.known() == self.truth(), "the ledger does not end with the store's truth"

    def arrive(self) -> None:
        """Write an update as another team does. Its id is new, but may be older than the newest one."""
        self._write(self._new_update(), {"a": b"1", "b/c": b"2"}, b"2")

    def spoil(self) -> None:
        """Leave something on the store that is no valid update, or a partition in another one."""
        wrong = self.random.choice(["manifest", "count", "file", "nested", "name"])
        path = self._new_update()
        if wrong == "nested":
            self._write(f"{RAW}/{KEYS[0]}/nested/{path.rpartition('/')[2]}", {"a": b"1"}, b"1")
        elif wrong == "name":
            self.board.put(f"{RAW}/{self.random.choice(KEYS)}/_bad/x", b"")
        else:
            self._write(path, {"a": b"1"}, {"manifest": None, "count": b"3", "file": b"1"}[wrong])
            self.board.put(f"{path}/late", b"1")

    def remove(self) -> None:
        """Invalidate the newest update of a partition, or replace one of its files."""
        partition = Partition(RAW, self.random.choice(KEYS))
        newest = read.latest(self.board, partition).update
        if newest and self.random.random() < 0.7:
            invalidate(self.board, partition, newest.id)
        elif newest:
            self.board.put(f"{newest.path}/a", f"{next(self.numbers)}".encode() * 9)

    def tick(self) -> None:
        """Let a code location discover, and compare what it would decide on."""
        with self.ledger.read() as connection:
            is_rest = bool(get_cursor(connection, f"looked through {RAW}"))
        self.discover(self.random.choice(LOCATIONS))
        self._note()
        if is_rest:  # It ends the round that one without time began, and visits nothing else that is new.
            return
        oldest = self.now - ALLOWED
        ages = [number for number, (since, _) in enumerate(self.truths) if since <= oldest]
        allowed = [truth for _, truth in self.truths[max(ages, default=0) :]]
        for key, version in self.known().items():
            assert version in {truth[key] for truth in allowed}, f"{key} is older than allowed"

    def kill(self) -> None:
        """Kill a code location's process within its discovery."""
        with killed_before(self.random.randint(1, 40)):
            self.discover(self.random.choice(LOCATIONS))

    def hurry(self) -> None:
        """Let a code location discover without time: it visits little."""
        self.discover(self.random.choice(LOCATIONS), is_out_of_time=True)

    def discover(self, location: str, *, is_out_of_time: bool = False) -> None:
        """Discover as a tick of a code location does."""
        board, _ = with_operations(self.board, pass_by)
        services = Services(board, self.ledger, lambda: None, lambda: self.now)
        discover(services, [RAW], lambda: is_out_of_time, location=location)

    def truth(self) -> Newest:
        """Return the newest valid version of each partition on the store."""
        newest = {key: read.latest(self.board, Partition(RAW, key)).update for key in KEYS}
        return {key: update and f"{update.id} {update.files_digest}" for key, update in newest.items()}

    def known(self) -> Newest:
        """Return the newest version of each partition in the ledger."""
        with self.ledger.read() as connection:
            rows = updates.newest(connection, [Partition(RAW, key) for key in KEYS])
        newest = {key: rows.get(Partition(RAW, key)) for key in KEYS}
        return {key: row and f"{row.id} {row.version}" for key, row in newest.items()}

    def _new_update(self) -> str:
        moment = NOW + timedelta(seconds=next(self.numbers) + self.random.choice([-1000, 0]))
        return f"{RAW}/{self.random.choice(KEYS)}/{update_id(moment)}"

    def _write(self, path: str, files: dict[str, bytes], manifest: bytes | None) -> None:
        for name, content in files.items():
            self.board.put(f"{path}/{name}", content)
        if manifest:
            self.board.put(f"{path}/{MANIFEST}", manifest)

    def _note(self) -> None:
        """Note what has been valid since now, or since the last note: a step changes one thing."""
        truth = self.truth()
        if not self.truths or self.truths[-1][1] != truth:
            self.truths.append((self.now, truth))


_left: list[int] = []


def pass_by(*_: object) -> None:
    """Raise KilledError before the statement or operation at which the process is killed."""
    if _left:
        _left[0] -= 1
        if _left[0] <= 0:
            raise KilledError


@contextmanager
def killed_before(number: int) -> Iterator[None]:
    """Kill the block before this statement or operation."""
    _left[:] = [number]
    sa.event.listen(sa.Engine, "before_cursor_execute", pass_by)
    try:
        yield
    except KilledError:
        pass
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", pass_by)
        _left.clear()


@pytest.fixture
def history(tmp_path: Path, empty_ledger: Path) -> Callable[[int], None]:
    """Return a function that runs the history of a seed, on a new store and ledger."""
    numbers = count()

    def run(seed: int) -> None:
        folder = tmp_path / f"{next(numbers)}"
        board = Blackboard.open((folder / "board").as_uri(), create=True)
        shutil.copyfile(empty_ledger, folder / "ledger.db")
        ledger = open_ledger(f"sqlite:///{folder / 'ledger.db'}")
        try:
            History(seed, board, ledger).run()
        finally:
            ledger.engine.dispose()

    return run


@pytest.mark.parametrize("seeds", seeds(12, 500))
def test_no_code_location_decides_on_something_too_old_and_both_end_with_the_truth(seeds, history):
    for seed in seeds:
        history(seed)


def test_a_discovery_that_counts_too_long_is_caught(history, monkeypatch):
    monkeypatch.setattr(discoveries, "FRESH_FOR", 3 * ALLOWED)
    assert_caught(history, "older than allowed")


def test_a_discovery_that_is_shared_before_it_is_done_is_caught(history, monkeypatch):
    begin = SharedDiscovery.begin

    def too_soon(services: Services, location: str, appendable: Set[Feed]) -> SharedDiscovery:
        shared = begin(services, location, appendable)
        shared.add(RAW)
        shared.record([])
        return shared

    monkeypatch.setattr(SharedDiscovery, "begin", too_soon)
    assert_caught(history, "older than allowed")
