"""Compaction of an appendable dataset's batches: the rows stay, and nothing downstream runs."""

import signal
from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from feed_assets import Compact
from feed_assets.compaction.batches import compact, partitions_of
from feed_assets.compaction.due_partitions import due
from feed_assets.core.errors import AlreadyRunning, NotAsDeclared, NotRevalidated, UpdatePruned
from feed_assets.core.retention import Retention
from feed_assets.feeds import batch_set
from feed_assets.feeds.opened import open_board
from feed_assets.feeds.stores import local_root
from feed_assets.ledger import batch_sets
from feed_assets.runs.prune import prune_feed
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.services import Services, utc_now
from feed_assets.settings import settings
from feed_assets.testing import Given, PlainMaker
from feed_assets_tests.orchestration.kept import keep, restore
from feed_assets_tests.support.appended_world import (
    OUTPUT,
    SALES,
    beside,
    compacted_rows,
    held,
    known,
    ledger,
    reported,
    take_back,
    totals,
    world,
)
from feed_assets_tests.support.kill_points import call_and_die
from feed_assets_tests.support.versioned_shop import Shop


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Build four batches, all read by a consumer, in a folder of their own."""
    folder = tmp_path_factory.mktemp("kept")

    def build():
        shop = Shop(folder)
        world_ = world(shop, [])
        for key in "abcd":
            shop.write(key)
            world_.run_until_idle()

    return keep(folder, build)


@pytest.fixture
def batched(kept, shop, told, home):
    """Return the same world in the test's own home."""
    restore(kept, home)
    for key in "abcd":
        shop.write(key)  # Each of these events is already in the kept ledger.
    return world(shop, told)


def services(rows=None, ahead=timedelta()):
    def give(task):
        return compacted_rows(task) if rows is None else Given(rows)

    found = Services.of(settings(), lambda: PlainMaker(give))
    return replace(found, now=lambda: utc_now() + ahead)


def due_with(files):
    with ledger().read() as connection:
        return due(connection, SALES, Compact(files=files), lambda _: (), now=utc_now(), is_appendable=True)


def _board():
    return Services.of(settings()).board


def test_compaction_replaces_all_batches_by_one_and_starts_no_run(batched, told):
    (done,) = compact(services(), OUTPUT, 2, apply=True)
    assert (done.into, done.batches) == ("b00000001-00000004", tuple(f"b0000000{n}" for n in range(1, 5)))
    assert held() == {"b00000001-00000004": ["a", "b", "c", "d"]}
    assert known() == ["b00000001-00000004"]
    assert batched.run_until_idle() == []
    assert totals(batched) == "a,b,c,d"


def test_a_consumer_reads_only_new_batches_after_a_compaction(shop, told, batched):
    compact(services(), OUTPUT, 2, apply=True)
    batched.run_until_idle()
    shop.write("e")
    ran = batched.run_until_idle()
    assert [run.assets for run in ran] == [("sales/lines",), ("sales/totals",)]
    assert told[-1] == ("incremental", [(4, 5)])
    assert totals(batched) == "a,b,c,d,e"


def test_a_dry_compaction_reports_and_changes_nothing(batched):
    (would,) = compact(services(), OUTPUT, 2)
    assert not would.applied
    assert len(held()) == 4
    assert compact(services(), OUTPUT, 5) == []
    assert partitions_of(services(), SALES) == [OUTPUT]
    assert [due_with(files) for files in (1, 2, 4, 5)] == [[OUTPUT], [OUTPUT], [OUTPUT], []]


def test_a_compacted_range_is_compacted_again_with_newer_batches(shop, batched):
    compact(services(), OUTPUT, 2, apply=True)
    shop.write("e")
    batched.run_until_idle()
    assert due_with(1) == [], "the range is larger than the new batch"
    compact(services(), OUTPUT, 2, apply=True)
    assert due_with(1) == []
    assert held() == {"b00000001-00000005": [*"abcde"]}
    assert batched.run_until_idle() == []


def test_late_rows_of_a_compacted_range_have_the_whole_range_read_again(shop, told):
    world_ = world(shop, told)
    for key, version in (("a", 1), ("b", 10), ("c", 20)):
        shop.last = version - 1
        shop.write(key)
        world_.run_until_idle()
    compact(services(), OUTPUT, 2, apply=True)
    shop.write("d")
    world_.run_until_idle()
    shop.late("late", 5)
    world_.run_until_idle()
    assert told[-1] == ("incremental", [(None, 20)])
    assert held() == {"b00000001-00000003": ["a", "b", "c", "late"], "b00000004": ["d"]}
    assert totals(world_) == "a,b,c,d,late"


def test_an_invalid_batch_that_may_become_valid_stays_between_two_ranges(shop, told, batched):
    with ledger().read() as connection:
        (gone,) = [pin for pin in batch_sets.pins_of(connection, [OUTPUT])[OUTPUT] if pin.partition.name == "b00000003"]
    shop.write("e")
    batched.run_until_idle()
    take_back(batched, "b00000003")
    assert [due_with(files) for files in (2, 3)] == [[OUTPUT], []], "four are new, two in a row"
    done = compact(services(), OUTPUT, 2, apply=True)
    assert [each.into for each in done] == ["b00000001-00000002", "b00000004-00000005"]
    revalidate(services(), gone.partition, gone.update_id)
    batched.run_until_idle()
    assert totals(batched) == "a,b,c,d,e"


def test_an_invalid_batch_read_again_does_not_split_the_compaction(batched):
    take_back(batched, "b00000003")
    batched.run_until_idle()
    (done,) = compact(services(), OUTPUT, 2, apply=True)
    assert held() == {done.into: [*"abcd"]}
    assert done.into == "b00000001-00000005"
    assert batched.run_until_idle() == []


def test_a_batch_that_was_read_again_cannot_be_revalidated(batched):
    with ledger().read() as connection:
        (gone,) = [pin for pin in batch_sets.pins_of(connection, [OUTPUT])[OUTPUT] if pin.partition.name == "b00000003"]
    take_back(batched, "b00000003")
    batched.run_until_idle()
    with pytest.raises(NotRevalidated, match="has been read again, by b00000005"):
        revalidate(services(), gone.partition, gone.update_id)


def test_a_batch_being_read_again_cannot_be_revalidated_meanwhile(shop, told):
    def during():
        if gone:
            with pytest.raises(AlreadyRunning, match="is being built by run"):
                revalidate(services(), *gone.pop())

    gone, world_ = [], world(shop, told, during=during)
    shop.write("a")
    world_.run_until_idle()
    update_id = world_.newest(str(SALES), "b00000001")
    take_back(world_, "b00000001")
    gone.append((OUTPUT.batch("b00000001"), update_id))
    world_.run_until_idle()
    assert gone == []
    assert [key for keys in held().values() for key in keys] == ["a"]
    with pytest.raises(NotRevalidated, match="has been read again"):
        revalidate(services(), OUTPUT.batch("b00000001"), update_id)


def test_invalidating_a_compacted_range_brings_its_batches_back(batched):
    (done,) = compact(services(), OUTPUT, 2, apply=True)
    take_back(batched, done.into)
    assert len(held()) == 4
    assert batched.run_until_idle() == []
    (again,) = compact(services(), OUTPUT, 2, apply=True)
    assert again.into == done.into
    assert held() == {done.into: [*"abcd"]}


def test_a_compaction_that_changes_rows_is_not_published(batched):
    with pytest.raises(NotAsDeclared, match="1 rows were written, expected the 4 of its batches"):
        compact(services(rows=[{"key": "a", "version": 1, "by": "shop"}]), OUTPUT, 2, apply=True)
    assert len(held()) == 4
    assert compact(services(), OUTPUT, 2, apply=True)


def put_together():
    compact(services(), OUTPUT, 2, apply=True)


def compact_and_die(number):
    call_and_die(number, local_root(settings().blackboard), put_together)


def test_a_compaction_killed_at_any_change_leaves_each_row_once(batched, forker):
    for number in count(1):
        code = forker.run(compact_and_die, number)
        assert sorted(key for keys in held().values() for key in keys) == [*"abcd"]
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert number > 10
    assert held() == {"b00000001-00000004": [*"abcd"]}
    assert batched.run_until_idle() == []


def test_compacted_batches_are_pruned_by_age(batched):
    compact(services(), OUTPUT, 2, apply=True)
    later = services(ahead=timedelta(days=2))
    policy = Retention(older_than=timedelta(days=1))
    gone = [each.partition.name for each in prune_feed(later, SALES, policy, apply=True) if each.gone]
    assert gone == [f"b0000000{n}" for n in range(1, 5)]
    assert held() == {"b00000001-00000004": [*"abcd"]}
    assert batched.run_until_idle() == []
    assert totals(batched) == "a,b,c,d"
    assert [each for each in prune_feed(later, SALES, policy, apply=True) if each.gone] == []


def test_a_consumer_of_batches_pruned_since_reads_the_next_batch(shop, batched):
    compact(services(), OUTPUT, 2, apply=True)
    shop.write("e")
    batched.tick()
    later = services(ahead=timedelta(days=2))
    assert [*prune_feed(later, SALES, Retention(older_than=timedelta(days=1)), apply=True)]
    batched.run_until_idle()
    assert totals(batched) == "a,b,c,d,e"


def test_batches_compacted_just_now_are_not_pruned(batched):
    compact(services(), OUTPUT, 2, apply=True)
    policy = Retention(older_than=timedelta(days=1))
    assert [each for each in prune_feed(services(), SALES, policy, apply=True) if each.gone] == []


def test_rows_of_an_invalid_range_with_pruned_batches_load_with_the_next_event(shop, batched):
    (done,) = compact(services(), OUTPUT, 2, apply=True)
    shop.write("e")
    batched.run_until_idle()
    assert [*prune_feed(services(ahead=timedelta(days=2)), SALES, Retention(older_than=timedelta(days=1)), apply=True)]
    take_back(batched, done.into)
    shop.write("f")
    batched.run_until_idle()
    assert held() == {"b00000001-00000006": [*"abcdef"]}
    assert totals(batched) == "a,b,c,d,e,f"


def test_rows_of_an_invalid_range_with_pruned_batches_load_at_once(shop, batched):
    (done,) = compact(services(), OUTPUT, 2, apply=True)
    shop.write("e")
    batched.run_until_idle()
    assert [*prune_feed(services(ahead=timedelta(days=2)), SALES, Retention(older_than=timedelta(days=1)), apply=True)]
    take_back(batched, done.into)
    batched.run_until_idle()
    assert sorted(key for keys in held().values() for key in keys) == [*"abcde"]
    assert totals(batched) == "a,b,c,d,e"


def test_rows_of_a_rebuilt_batch_with_pruned_updates_are_loaded_again(shop, told):
    world_ = world(shop, told)
    for key, version in (("a", 1), ("b", 10)):
        shop.last = version - 1
        shop.write(key)
        world_.run_until_idle()
    shop.late("late", 5)
    world_.run_until_idle()
    assert [*prune_feed(services(ahead=timedelta(days=2)), SALES, Retention(keep=1), apply=True)]
    take_back(world_, "b00000002")
    world_.run_until_idle()
    assert sorted(key for keys in held().values() for key in keys) == ["a", "b", "late"]
    assert totals(world_) == "a,b,late"


def test_a_read_as_of_a_time_after_the_compaction_needs_no_pruned_batch(batched):
    compact(services(), OUTPUT, 2, apply=True)
    then = utc_now() + timedelta(minutes=1)
    assert [*prune_feed(services(ahead=timedelta(days=2)), SALES, Retention(older_than=timedelta(days=1)), apply=True)]
    found = batch_set.latest(open_board(settings()), OUTPUT, then).updates
    assert [each.partition.name for each in found] == ["b00000001-00000004"]
    with pytest.raises(UpdatePruned):
        batch_set.latest(open_board(settings()), OUTPUT, then - timedelta(hours=1))


def test_an_invalid_range_with_pruned_batches_can_be_revalidated(batched):
    (done,) = compact(services(), OUTPUT, 2, apply=True)
    update_id = batched.newest(str(SALES), done.into)
    assert [*prune_feed(services(ahead=timedelta(days=2)), SALES, Retention(older_than=timedelta(days=1)), apply=True)]
    take_back(batched, done.into)
    revalidate(services(), OUTPUT.batch(done.into), update_id)
    assert held() == {done.into: [*"abcd"]}


def test_a_consumer_by_events_reads_all_rows_after_a_compaction(shop):
    world_ = beside(shop)
    for key in "abc":
        shop.write(key)
        world_.run_until_idle()
    shop.write("d")
    built = {"sales/lines": 0, "sales/sums": 0}
    while not all(built.values()):
        for run in world_.tick():
            built[run.assets[0]] = 1
    compact(services(), OUTPUT, 2, apply=True)
    world_.run_until_idle()
    assert reported() == [*"abcd"]
    assert world_.run_until_idle() == []
