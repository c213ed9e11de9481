"""Roll-backs, revalidation and pruning, tick by tick."""

from feed_assets import Late, Retention
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import runs
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.prune import prune
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.support.harness_queries import verdict_of
from feed_assets_tests.support.ledger_records import EFFECT, claim, new_run
from feed_assets_tests.support.sum_projects import DAY, PICKED, RAW, SUMS, chain, inputs_of, outcomes, rows, short

ONCE = [("sums", DAY, True), ("picked", DAY, True)]


def shown(world: Harness, asset: str = "t/picked") -> str:
    return world.reported(asset, DAY)[0].metadata["preview"].splitlines()[-1]


def read(world: Harness) -> str:
    return inputs_of(world.reported("t/sums", DAY)[0])[f"{RAW}/{DAY}"]


def pruned(world: Harness, keep: int) -> None:
    prune(Services.of(settings()), Partition(Feed.parse(RAW), DAY), Retention(keep=keep), apply=True)


def ids(world: Harness, feed: str) -> list[str]:
    return world.board.children(Partition(Feed.parse(feed), DAY).path)


def test_a_roll_back_and_its_revalidation_rebuild_the_whole_chain():
    world = chain()
    older = world.drop(RAW, DAY, rows(1))
    assert outcomes(world.run_until_idle()) == ONCE
    newer = world.drop(RAW, DAY, rows(1, 2))
    assert outcomes(world.run_until_idle()) == ONCE
    world.invalidate(RAW, DAY, newer)
    assert outcomes(world.run_until_idle()) == ONCE
    assert (read(world), shown(world)) == (older, "| a | 1 |")
    world.revalidate(RAW, DAY, newer)
    assert outcomes(world.run_until_idle()) == ONCE
    assert (read(world), shown(world)) == (newer, "| a | 3 |")
    assert world.run_until_idle() == []


def test_an_update_that_is_valid_again_before_a_tick_saw_it_invalid_builds_nothing():
    world = short()
    newest = world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    world.invalidate(RAW, DAY, newest)
    world.revalidate(RAW, DAY, newest)
    assert world.run_until_idle() == []


def test_a_roll_back_to_a_slightly_larger_update_does_not_wait_as_late_data_would():
    world = short(late=Late(growth=1.0))
    world.drop(RAW, DAY, rows(1, 2, 3))
    world.run_until_idle()
    truncated = world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    world.invalidate(RAW, DAY, truncated)
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_a_roll_back_of_the_only_update_builds_nothing_and_is_reported(capfd):
    world = chain()
    only = world.drop(RAW, DAY, rows(1))
    world.run_until_idle()
    served = world.newest(SUMS, DAY)
    world.invalidate(RAW, DAY, only)
    capfd.readouterr()
    assert world.run_until_idle() == []
    reported = f"no valid update of {RAW} {DAY}; {served}, which was built before, is still served"
    assert verdict_of(world) == ("waits for input", reported)
    assert capfd.readouterr().err.count(f"{SUMS} {DAY} waits for input: {reported}") == 1
    assert (world.newest(SUMS, DAY), verdict_of(world, PICKED)[0]) == (served, "current")
    world.revalidate(RAW, DAY, only)
    assert world.run_until_idle() == []
    assert verdict_of(world)[0] == "current"


def test_a_roll_back_below_a_pruned_update_waits_for_a_person_or_new_data():
    """A pin of a run in progress is the only reason that an older update outlives a pruned newer one."""
    world, partition = short(), Partition(Feed.parse(RAW), DAY)
    survivor, gone, newest = (world.drop(RAW, DAY, rows(*numbers)) for numbers in ((1,), (1, 2), (1, 2, 3)))
    world.run_until_idle()
    ledger = open_ledger(settings().ledger)
    runs.start(ledger, new_run("elsewhere"))
    claim(ledger, "elsewhere", (EFFECT, newest), pins=(Pin(partition, survivor, "v"),))
    pruned(world, keep=1)
    assert ids(world, RAW) == [survivor, newest]
    world.invalidate(RAW, DAY, newest)
    assert world.run_until_idle() == []
    assert verdict_of(world) == (
        "waits for a person",
        f"the newest updates of {RAW} {DAY} are no longer valid, {gone} before them was pruned, and only the older "
        f"{survivor} is left",
    )
    world.drop(RAW, DAY, rows(5))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]


def test_pruning_builds_nothing():
    world = short()
    for numbers in ((1,), (1, 2)):
        world.drop(RAW, DAY, rows(*numbers))
        world.run_until_idle()
    pruned(world, keep=1)
    assert world.run_until_idle() == []
    assert verdict_of(world)[0] == "current"
