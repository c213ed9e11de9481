"""Compaction of partitions with rejects, with increments, with a failed check, and of closed ones."""

import pytest

from feed_assets import Compact
from feed_assets.compaction.due_partitions import due
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.errors import AlreadyRunning, PartitionClosed
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.retention import Retention
from feed_assets.feeds import read
from feed_assets.ledger import closures, compacted_partitions, quality, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.prune import prune_feed
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync_one
from feed_assets.settings import settings
from feed_assets.testing import PlainMaker, rows_of
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.appended_world import beside, compacted_rows
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, chain, rows
from feed_assets_tests.support.versioned_shop import Shop

SORTED = Compact(sort_by=("k",), files=1)
OUTPUT = Partition(Feed.parse(SUMS), DAY)
ADDED = Partition(Feed.parse("sales/sums/v1.0"), "")


@pytest.fixture(autouse=True)
def closing(home):
    yield
    sum_projects.opened.close()


def services():
    return Services.of(settings(), lambda: PlainMaker(compacted_rows))


def ledger():
    return open_ledger(settings().ledger)


def built(raw=""):
    world = chain()
    world.drop(RAW, DAY, raw or rows(1, 2))
    world.run_until_idle()
    return world


def test_during_a_compaction_a_second_one_is_refused_its_base_stays_and_late_data_wait():
    world, refused = built(), []

    def give(task):
        with pytest.raises(AlreadyRunning):
            compact_partition(services(), OUTPUT, SORTED)
        refused.append(task)
        [pruned] = prune_feed(services(), OUTPUT.feed, Retention(keep=1), apply=True)
        assert not any(each.goes for each in pruned.judged)
        world.drop(RAW, DAY, rows(1, 2, 3))
        return compacted_rows(task)

    before = world.newest(SUMS, DAY)
    done = compact_partition(Services.of(settings(), lambda: PlainMaker(give)), OUTPUT, SORTED)
    assert (len(refused), done.before, world.rows(SUMS, DAY)) == (1, before, [{"k": "a", "n": 3}])
    world.run_until_idle()
    assert world.rows(SUMS, DAY) == [{"k": "a", "n": 6}]
    assert world.run_until_idle() == []


def due_now(world):
    with ledger().read() as connection:
        return due(connection, OUTPUT.feed, SORTED, lambda _: (), now=world.now())


def test_rejects_stay_those_of_the_compacted_rows():
    world = built("k,n\na,1\na,many\n")
    of_rejects = "t/sums_rejects/v1.0"
    before, rejects = world.newest(SUMS, DAY), world.newest(of_rejects, DAY)
    assert len(world.rows(of_rejects, DAY)) == 1
    after = compact_partition(services(), OUTPUT, SORTED).after
    assert world.run_until_idle() == []
    assert world.newest(of_rejects, DAY) == rejects
    with ledger().read() as connection:
        lineage = [
            {(str(pin.partition.feed), pin.update_id) for pin in updates.consumed_by(connection, OUTPUT, each)}
            for each in (before, after)
        ]
    assert lineage[0] == lineage[1]


def test_a_closed_partition_is_not_compacted_until_it_is_opened():
    world = built()
    closures.close(ledger(), [OUTPUT], by="eve", why="the month is booked", now=world.now())
    assert due_now(world) == []
    with pytest.raises(PartitionClosed):
        compact_partition(services(), OUTPUT, SORTED)
    closures.reopen(ledger(), [OUTPUT], by="eve", why="a mistake", now=world.now())
    assert due_now(world) == [OUTPUT]


def test_a_partition_whose_check_blocks_readers_is_not_due():
    world = built()
    for state, expected in (("failed", []), ("passed", [OUTPUT])):
        with ledger().change() as connection:
            quality.report(connection, OUTPUT, "seen", state, None, "eve", world.now())
        assert due_now(world) == expected


def keys_of_sums():
    board = Services.of(settings()).board
    return [row["key"] for row in rows_of(board, read.latest(board, ADDED).update)]


@pytest.mark.parametrize("pruned", [False, True])
def test_increments_go_on_after_a_compaction_and_after_it_is_taken_back(tmp_path, pruned):
    shop = Shop(tmp_path)
    world = beside(shop)
    for key in "abc":
        shop.write(key)
        world.run_until_idle()
    after = compact_partition(services(), ADDED, Compact(sort_by=("key",), files=1)).after
    assert world.run_until_idle() == []
    shop.write("d")
    world.run_until_idle()
    assert keys_of_sums() == [*"abcd"]
    newest = world.newest(str(ADDED.feed))
    with ledger().read() as connection:
        assert compacted_partitions.with_same_rows(connection, ADDED, newest) == [newest], "an increment has more rows"
        replaced = compacted_partitions.with_same_rows(connection, ADDED, after)
    if pruned:
        [*prune_feed(services(), ADDED.feed, Retention(keep=2), apply=True)]
    for each in replaced:
        if not pruned or each == after:
            world.invalidate(str(ADDED.feed), "", each)
        sync_one(services().board, ledger(), ADDED, each, world.now())
    shop.write("e")
    world.run_until_idle()
    assert keys_of_sums() == [*"abcde"]
