"""What is old goes, and nobody sees a difference: a world that is pruned beside one that is not."""

import os
import shutil
from random import Random

import pytest
import sqlalchemy as sa

from feed_assets.ledger import durations
from feed_assets.ledger.database import open_ledger
from feed_assets_tests.ledger.retention_world import World, acts


@pytest.fixture
def worlds(tmp_path, empty_ledger, monkeypatch):
    """Two ledgers on disk, without a sync for each of their many transactions."""
    monkeypatch.setattr(durations, "SHOWN", 2)
    opened = []
    for name in ("pruned", "whole"):
        shutil.copyfile(empty_ledger, tmp_path / f"{name}.db")
        ledger = open_ledger(f"sqlite:///{tmp_path / name}.db")
        ledger.engine.dispose()
        sa.event.listen(ledger.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF"))
        opened.append(ledger)
    yield tuple(World(each) for each in opened)
    for each in opened:
        each.engine.dispose()


SAID_EVERY = 10
"""Acts after which all that a ledger says is compared, besides after each prune; what an act says always is."""


def live(pruned, whole, seed, number):
    random, removed = Random(seed), 0  # noqa: S311
    for at, act in enumerate(acts(random, number)):
        assert pruned.do(act) == whole.do(act), (seed, at, act)
        if random.random() < (0.5 if act[0] == "wait" and act[1] > 400 else 0.02):
            would = pruned.prune(apply=False)
            went = pruned.prune(apply=True)
            assert (would.total, would.events, would.changes) == (went.total, went.events, went.changes)
            assert pruned.prune(apply=True).total == 0, "a second one finds nothing"
            removed += went.events
        elif at % SAID_EVERY:
            continue
        for said, expected in zip(pruned.say(), whole.say(), strict=True):
            assert said == expected, (seed, at, act)
    assert pruned.events() + removed == whole.events()
    return removed


SEEDS = [int(os.environ["FAULT_SEED"])] if "FAULT_SEED" in os.environ else [*range(3)]


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_sees_that_old_rows_are_gone(worlds, seed):
    assert live(*worlds, seed, 70) > 15
