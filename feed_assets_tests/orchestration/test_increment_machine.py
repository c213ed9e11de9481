"""Random histories of increments: writes, deletes, reloads, invalidations and kills end with the right table."""

import pytest

from feed_assets.core.errors import NotRevalidated
from feed_assets_tests.orchestration.increment_chance import Chance, config, judge, play
from feed_assets_tests.orchestration.increment_world import NAME, every_update, nothing_before, whatever_was_last
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.fault_seeds import single_seeds

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize("seed", single_seeds(1, 30))
def test_random_histories_of_increments_end_with_a_fold_of_the_shops_rows(tmp_path, seed):
    play(tmp_path, seed)


@pytest.fixture
def chance(tmp_path):
    """Return a history whose acts a test chooses."""
    return Chance(tmp_path, 0)


def test_an_invalid_increment_breaks_its_chain_despite_a_reload_beside_it(chance):
    """The next valid update before it was loaded whole, which proves nothing about the last one."""
    chance.shop.put("orders", "a")
    chance.tick()
    chance.shop.put("orders", "b")
    chance.spoil()
    chance.reload()
    _, second, beside = sorted(every_update())
    chance.take_back(beside)
    chance.shop.put("orders", "c")
    chance.tick()
    with pytest.raises(NotRevalidated, match="is a later increment of an earlier update"):
        chance.world.revalidate(NAME, "", beside)
    chance.take_back(second)
    judge(chance)


def test_a_reload_by_hand_reads_slices_that_were_read_before_their_events(chance):
    """The ledger has no event of that table yet, but the lineage has its slice."""
    chance.shop.put("orders", "a")
    chance.tick()
    chance.shop.put("prices", "p")
    chance.run(config(slices=[{"table": "shop/prices", "upto": str(chance.shop.last)}]))
    chance.reload()
    judge(chance)


def test_a_slice_consumed_by_hand_is_due_again_when_its_update_is_invalidated(chance):
    chance.shop.put("orders", "a")
    chance.tick()
    after = str(chance.shop.last)
    chance.shop.put("orders", "b")
    chance.run(config(slices=[{"table": "shop/orders", "after": after, "upto": str(chance.shop.last)}]))
    chance.tick()
    chance.take_back(max(every_update()))
    judge(chance)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_kills_lose_or_repeat_no_row_of_increments(tmp_path, forker, seed):
    chance = play(tmp_path, seed, ["kill", "write", "take_back", "late"], 8, forker=forker)
    assert chance.kills or seed > 1, chance.done


@pytest.mark.parametrize(("wrong", "first"), [(nothing_before, 14), (whatever_was_last, 50)])
def test_the_oracle_catches_increments_added_to_a_wrong_base(fresh, wrong, first):
    """Begin with a seed that is known to catch it: a search takes time."""
    assert any(is_caught(fresh(seed), seed, wrong) for seed in range(first, first + 100))


def is_caught(folder, seed, wrong):
    try:
        play(folder, seed, base=wrong)
    except AssertionError:
        return True
    finally:
        sum_projects.opened.close()
    return False
