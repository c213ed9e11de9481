"""No report by events is published from a mix of propagations: random histories on a real ledger, and wrong rules."""

import shutil
from itertools import count

import pytest
import sqlalchemy as sa

from feed_assets.core import update_choice
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import propagation_choice
from feed_assets.ledger.database import open_ledger
from feed_assets_tests.orchestration.real_lake import RealLake
from feed_assets_tests.support.lake_histories import by_sets_of_tables, play_seeds
from feed_assets_tests.support.lake_shapes import SHAPES


@pytest.fixture
def try_seeds(tmp_path, empty_ledger):
    """Return a function that plays histories of a shape, each on an empty ledger and a blackboard in memory."""
    numbers = count()

    def play(name, seeds):
        play_seeds(name, seeds, lambda: fresh(name, next(numbers)))

    def fresh(name, number):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(empty_ledger, path)
        ledger = open_ledger(f"sqlite:///{path}")
        ledger.engine.dispose()
        sa.event.listen(ledger.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        return RealLake.of(name, Blackboard.open("memory://"), ledger)

    return play


@pytest.mark.parametrize("name", SHAPES)
def test_runs_never_mix_propagations_and_end_with_the_newest_one(try_seeds, name):
    try_seeds(name, range(3))


@pytest.mark.soak
@pytest.mark.parametrize("name", SHAPES)
def test_no_report_is_ever_mixed_in_many_histories(try_seeds, name):
    try_seeds(name, range(300))


def today(monkeypatch):
    """Wrong rule: past events of an id count, and lineage is ignored."""
    monkeypatch.setattr(propagation_choice, "choose", by_sets_of_tables)


def without_lineage(monkeypatch):
    """Wrong rule: events alone choose the updates to read, whatever these were made of."""
    monkeypatch.setattr(update_choice, "_mixed", lambda *_: {})


@pytest.mark.parametrize(
    ("wrong", "name", "seed"),
    [
        (today, "chain", 0),
        (today, "the source itself", 0),
        (without_lineage, "chain", 0),
        (without_lineage, "the source itself", 0),
    ],
)
def test_the_oracle_catches_a_wrong_rule_of_propagations(try_seeds, monkeypatch, wrong, name, seed):
    wrong(monkeypatch)
    with pytest.raises(AssertionError, match="mixed"):
        try_seeds(name, [seed])
