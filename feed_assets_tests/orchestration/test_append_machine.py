"""Batches by chance: rows, late ones, loads, repeats, roll-backs, compaction, prunes, kills; each row is there once."""

import pytest

from feed_assets.core.errors import NotIdle
from feed_assets_tests.orchestration.append_chance import play
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.fault_seeds import single_seeds

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize("seed", single_seeds(1, 60))
def test_whatever_happens_each_row_of_the_shop_is_there_once(tmp_path, seed):
    play(tmp_path, seed)


@pytest.mark.parametrize("seed", single_seeds(1, 20))
def test_kills_change_nothing_in_appendable_datasets(tmp_path, forker, seed):
    acts = ["kill", "kill", "write", "take_back", "late", "compact", "tick"]
    chance = play(tmp_path, seed, acts, 10, forker=forker)
    assert chance.kills or seed > 1, chance.done


WRONG = {
    "feed_assets.feeds.batch_set.replaced": lambda _: {},
    "feed_assets.runs.appending.overlap": lambda *_: False,
}
"""A reader that gets batches beside the range that holds them; a run that reads a slice again as a new batch."""


@pytest.mark.parametrize("rule", WRONG)
def test_oracle_of_appendable_datasets_catches_a_wrong_rule(fresh, monkeypatch, rule):
    monkeypatch.setattr(rule, WRONG[rule])
    assert any(is_caught(fresh(seed), seed) for seed in range(14, 64))


def is_caught(folder, seed):
    try:
        play(folder, seed)
    except (AssertionError, NotIdle):
        return True
    finally:
        sum_projects.opened.close()
    return False
