"""Random histories of batches with late rows, loads, roll-backs, compaction and kills: each row is there once."""

import pytest

from feed_assets.core.errors import NotIdle
from feed_assets_tests.orchestration.append_chance import play
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.fault_seeds import single_seeds

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize("seed", single_seeds(1, 60))
def test_random_histories_of_batches_keep_each_row_exactly_once(tmp_path, seed):
    play(tmp_path, seed)


@pytest.mark.parametrize("seed", single_seeds(1, 20))
def test_kills_lose_or_repeat_no_row_of_an_appendable_dataset(tmp_path, forker, seed):
    acts = ["kill", "kill", "write", "take_back", "late", "compact", "tick"]
    chance = play(tmp_path, seed, acts, 10, forker=forker)
    assert chance.kills or seed > 1, chance.done


WRONG = {
    "feed_assets.feeds.batch_set.replaced": lambda _: {},
    "feed_assets.runs.appending.overlap": lambda *_: False,
}
"""Wrong rules: a reader gets batches beside the range that replaced them; a slice read again becomes a new batch."""


@pytest.mark.parametrize("rule", WRONG)
def test_the_oracle_catches_a_wrong_rule_of_appendable_datasets(fresh, monkeypatch, rule):
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
