"""Increments by chance: writes, deletes, reloads, repeats, what is taken back, kills; in the end all is right."""

import pytest

from feed_assets.core.errors import NotRevalidated
from feed_assets_tests.orchestration.increment_chance import Chance, config, judge, play
from feed_assets_tests.orchestration.increment_world import NAME, every_update, nothing_before, whatever_was_last
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.fault_seeds import single_seeds

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize("seed", single_seeds(1, 30))
def test_whatever_happens_the_table_is_a_fold_of_what_the_shop_has(tmp_path, seed):
    play(tmp_path, seed)


@pytest.fixture
def chance(tmp_path):
    """A history whose acts a test chooses."""
    return Chance(tmp_path, 0)


def test_a_chain_is_broken_whatever_was_made_beside_it(chance):
    """Of the update before it the next one that is valid now was loaded whole, and so says nothing of the last one."""
    chance.shop.put("orders", "a")
    chance.tick()
    chance.shop.put("orders", "b")
    chance.spoil()
    chance.reload()
    _, second, beside = sorted(every_update())
    chance.take_back(beside)
    chance.shop.put("orders", "c")
    chance.tick()
    with pytest.raises(NotRevalidated, match="came later and was added to an earlier update"):
        chance.world.revalidate(NAME, "", beside)
    chance.take_back(second)
    judge(chance)


def test_a_reload_by_hand_reads_what_was_read_ahead_of_its_event(chance):
    """The ledger has no event of that table yet, and the lineage says that it was read."""
    chance.shop.put("orders", "a")
    chance.tick()
    chance.shop.put("prices", "p")
    chance.run(config(slices=[{"table": "shop/prices", "upto": str(chance.shop.last)}]))
    chance.reload()
    judge(chance)


def test_what_was_read_by_hand_and_consumed_so_is_due_again_when_it_is_taken_back(chance):
    chance.shop.put("orders", "a")
    chance.tick()
    after = str(chance.shop.last)
    chance.shop.put("orders", "b")
    chance.run(config(slices=[{"table": "shop/orders", "after": after, "upto": str(chance.shop.last)}]))
    chance.tick()
    chance.take_back(max(every_update()))
    judge(chance)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_kills_change_nothing_in_increments(tmp_path, forker, seed):
    chance = play(tmp_path, seed, ["kill", "write", "take_back", "late"], 8, forker=forker)
    assert chance.kills or seed > 1, chance.done


@pytest.mark.parametrize(("wrong", "first"), [(nothing_before, 14), (whatever_was_last, 50)])
def test_an_increment_that_is_added_to_the_wrong_thing_is_caught(fresh, wrong, first):
    """Begin with a seed that has caught it: to come to it takes time."""
    assert any(is_caught(fresh(seed), seed, wrong) for seed in range(first, first + 100))


def is_caught(folder, seed, wrong):
    try:
        play(folder, seed, base=wrong)
    except AssertionError:
        return True
    finally:
        sum_projects.opened.close()
    return False
