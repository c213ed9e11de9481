"""Histories by chance: arrivals, late copies, places down and up, lost requests and lost targets, against an oracle."""

from dataclasses import dataclass, field
from random import Random

import pytest

from feed_assets.core.errors import TargetLost
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read
from feed_assets.feeds.opened import open_board
from feed_assets.ledger import places_down
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.replication.flows import RAW, SUMS, World, world
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, rows

pytestmark = pytest.mark.usefixtures("home")
CENTERS = {"b": {"targets": ["in-b"], "deadline": 100}, "c": {"targets": ["in-c"], "deadline": 100}}
TARGETS = {"here": "primary", "in-b": "b", "in-c": "c"}
CHOICES = ("b", ("b", "primary"), ("c", "b"), "any")


@dataclass
class Oracle:
    """What is right: the newest rows of each day, and the places that are up."""

    allowed: tuple[str, ...]
    sums: dict[str, int] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)

    def check_run(self, day: str | None, target: str, folder: str) -> None:
        """Raise AssertionError unless a run was in a place that is allowed and up, and read its inputs there."""
        place = TARGETS[target]
        assert place in self.allowed, (day, place)
        assert place not in self.down, (day, place)
        assert folder == place, (day, place, folder)


@pytest.mark.parametrize("seed", range(len(CHOICES)))
def test_runs_are_where_their_data_are_and_nothing_is_lost_or_built_twice(monkeypatch, tmp_path, seed):
    chance, at = Random(seed), CHOICES[seed]  # noqa: S311
    losing = [True]

    def lose(task) -> None:
        if losing[0] and chance.random() < 0.2:
            raise TargetLost("the target was lost")

    w = world(monkeypatch, tmp_path, CENTERS, at, during=lose)
    allowed = ("primary", "b", "c") if at == "any" else (at,) if isinstance(at, str) else at
    oracle = Oracle(allowed)
    for _ in range(16):
        act(chance, w, oracle)
    losing[0] = False
    for name in ("primary", "b", "c"):
        mark(w, oracle, name, None)
    for _ in range(6):
        w.copy("b")
        w.copy("c")
        w.pass_(minutes=6)  # What lost requests got is taken back.
        run(w, oracle)
    assert {day: w.lake.rows(SUMS, day) for day in oracle.sums} == {
        day: [{"k": "a", "n": total}] for day, total in oracle.sums.items()
    }
    assert run(w, oracle) == 0
    for day, arrived in oracle.arrivals.items():
        updates = [*read.history(open_board(settings()), Partition(Feed.parse(SUMS), day))]
        assert len(updates) <= arrived, day
    sum_projects.opened.close()


def act(chance: Random, w: World, oracle: Oracle) -> None:
    kind = chance.choice(("arrive", "arrive", "copy", "copy", "run", "run", "run", "down", "up", "lose"))
    if kind == "arrive":
        day, number = chance.choice((DAY, NEXT_DAY)), chance.randrange(20, 90)
        if oracle.sums.get(day) != number:
            w.lake.drop(RAW, day, rows(number))
            oracle.sums[day] = number
            oracle.arrivals[day] = oracle.arrivals.get(day, 0) + 1
    elif kind == "copy":
        w.copy(chance.choice(("b", "c")))
    elif kind == "run":
        run(w, oracle)
    elif kind == "lose":
        w.requests()  # Their process is killed before the runs exist.
    else:
        mark(w, oracle, chance.choice(("primary", "b", "c")), "chance" if kind == "down" else None)


def mark(w: World, oracle: Oracle, place: str, why: str | None) -> None:
    places_down.mark(open_ledger(settings().ledger), place, why, "ann", w.lake.now())
    (oracle.down.add if why else oracle.down.discard)(place)


def run(w: World, oracle: Oracle) -> int:
    """Tick, check where its runs were, and return how many there were."""
    before = len(w.reads)
    ran = w.run()
    for (day, target), (_, folder) in zip([each for each in ran if each[1]], w.reads[before:], strict=False):
        oracle.check_run(day, target, folder)
    return len(ran)


def test_the_oracle_refuses_a_run_in_the_wrong_place():
    oracle = Oracle(("b",), down={"c"})
    oracle.check_run(DAY, "in-b", "b")
    for target, folder in (("here", "primary"), ("in-b", "primary"), ("in-c", "c")):
        with pytest.raises(AssertionError):
            oracle.check_run(DAY, target, folder)
