"""Compaction tick by tick: partitions get an update with the same rows, and nothing below runs because of it."""

import signal
from datetime import timedelta
from itertools import count

import pytest
import sqlalchemy as sa

from feed_assets import Compact, Late
from feed_assets.compaction.due_partitions import PAUSE, due
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.errors import NotAsDeclared, NotRevalidated, UpdateChanged
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.needs import Need
from feed_assets.core.retention import Retention
from feed_assets.feeds.stores import local_root
from feed_assets.ledger import compacted_partitions, inbox, run_costs, update_changes, updates
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.run_changes import run_changes
from feed_assets.ledger.tables import event, update
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.lineage_events import RunEvents
from feed_assets.runs.deep_verification import published_of
from feed_assets.runs.prune import prune_feed
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.services import Services
from feed_assets.runs.sync import sync_one
from feed_assets.settings import settings
from feed_assets.testing import Given, PlainMaker
from feed_assets_tests.support import sum_projects
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kill_points import call_and_die
from feed_assets_tests.support.main_call import exit_and_errors
from feed_assets_tests.support.sum_projects import (
    DAY,
    NEXT_DAY,
    PICKED,
    RAW,
    SUMS,
    chain,
    given,
    later,
    outcomes,
    rows,
)

SORTED = Compact(sort_by=("k",), files=1)
OUTPUT = Partition(Feed.parse(SUMS), DAY)


@pytest.fixture(autouse=True)
def world(home):
    yield home
    sum_projects.opened.close()


def built(**options):
    """Return a harness of raw -> sums -> picked with one built day, and the id of its update before the compaction."""
    started = chain(**options)
    started.drop(RAW, DAY, rows(1, 2))
    before = started.tick()
    assert outcomes(before) == [("sums", DAY, True)]
    return started, started.newest(SUMS, DAY)


def compactions(ran):
    return [each for each in ran if not each.assets]


def row_of(update_id, partition=OUTPUT):
    with open_ledger(settings().ledger).read() as connection:
        return updates.find(connection, partition, update_id)


def services(give=given):
    return Services.of(settings(), lambda: PlainMaker(give))


def test_a_published_partition_is_compacted_once_and_its_consumers_do_not_run_again():
    world, before = built(compact=SORTED)
    ran = world.run_until_idle()
    assert outcomes([one for one in ran if one.assets]) == [("picked", DAY, True)]
    assert len(compactions(ran)) == 1
    after = world.newest(SUMS, DAY)
    old, new = row_of(before), row_of(after)
    assert after > before
    assert (new.origin, new.version, new.records) == ("compacted", old.version, old.records)
    assert (new.size, new.files) == (old.size, old.files), "late data are weighed by them"
    assert world.run_until_idle() == []
    with open_ledger(settings().ledger).read() as connection:
        assert updates.consumed_by(connection, OUTPUT, after) == updates.consumed_by(connection, OUTPUT, before)
    assert published_of(open_ledger(settings().ledger), OUTPUT, after).version == old.version
    check_lineage(world, before, new)


def check_lineage(world, before, new):
    """Check that a compaction has read the replaced update, and that no size of that update is given as its own."""
    with open_ledger(settings().ledger).read() as connection:
        [change] = [each for each in run_changes(connection, 0, 100) if new in each.written]
    assert [(pin.partition, pin.update_id) for pin in change.read] == [(OUTPUT, before)]
    lineage = RunEvents(Graph(world.definitions.resolve_asset_graph()), settings().blackboard, {}).event(change)
    [statistics] = [each.outputFacets["outputStatistics"] for each in lineage.outputs]
    assert (statistics.rowCount, statistics.size, statistics.fileCount) == (new.records, None, None)


def test_a_consumer_of_a_compacted_update_carries_on_its_propagation():
    world, before = built()
    compact_partition(services(), OUTPUT, SORTED)
    assert outcomes(world.run_until_idle()) == [("picked", DAY, True)]
    picked = Partition(Feed.parse(PICKED), DAY)
    with open_ledger(settings().ledger).read() as connection:
        assert [pin.update_id for pin in updates.consumed_by(connection, picked, world.newest(PICKED, DAY))] > [before]
    assert row_of(world.newest(PICKED, DAY), picked).correlation == row_of(before).correlation


def test_an_event_passed_on_after_a_compaction_is_one_of_a_full_load():
    world, _ = built()
    world.run_until_idle()
    picked = Partition(Feed.parse(PICKED), DAY)
    after = compact_partition(services(), picked, SORTED).after
    world.drop(RAW, DAY, rows(2, 1))
    assert outcomes(world.run_until_idle()) == [("sums", DAY, True)]
    query = sa.select(event.c.operation, event.c.context).where(event.c.feed == PICKED).order_by(event.c.sequence)
    with open_ledger(settings().ledger).read() as connection:
        [(first, _), (passed_on, context)] = connection.execute(query).all()
    assert (first, passed_on) == ("OVERWRITE", "OVERWRITE")
    assert after in context, "the event is about the compacted update"


def test_events_of_a_pruned_base_return_if_the_compacted_update_is_invalidated(monkeypatch):
    world, before = built()
    compact_partition(services(), OUTPUT, SORTED)
    after, returned, run_id = world.newest(SUMS, DAY), [], row_of(before).run
    monkeypatch.setattr(inbox, "give_back", lambda connection, output, run: returned.append(run))
    with open_ledger(settings().ledger).change() as connection:
        update_changes.change(connection, OUTPUT, after, "invalidated", world.now())
        assert run_id not in returned, "its base has the rows"
        update_changes.change(connection, OUTPUT, before, "pruned", world.now())
        update_changes.change(connection, OUTPUT, after, "invalidated", world.now())
    assert run_id in returned


def test_late_data_are_built_and_compacted_again():
    world, _ = built(compact=SORTED)
    world.run_until_idle()
    world.drop(RAW, DAY, rows(1, 2, 3))
    ran = world.run_until_idle()
    assert outcomes([one for one in ran if one.assets]) == [("sums", DAY, True), ("picked", DAY, True)]
    assert len(compactions(ran)) == 1
    assert row_of(world.newest(SUMS, DAY)).origin == "compacted"


def test_a_compacted_update_invalidated_together_with_its_base_is_built_again():
    world, before = built(compact=SORTED)
    world.run_until_idle()
    after = world.newest(SUMS, DAY)
    with open_ledger(settings().ledger).read() as connection:
        assert [*compacted_partitions.with_same_rows(connection, OUTPUT, before)] == [after, before]
        assert [*compacted_partitions.with_same_rows(connection, OUTPUT, after)] == [after, before]
    for each in (after, before):
        world.invalidate(SUMS, DAY, each)
    ran = world.run_until_idle()
    assert ("sums", DAY, True) in outcomes([one for one in ran if one.assets])
    assert world.newest(SUMS, DAY) > after


def test_an_invalid_base_of_a_compacted_update_makes_the_partition_stale():
    """This happens if the base is invalidated in the moment in which the compacted update is published."""
    world, before = built(compact=SORTED)
    world.run_until_idle()
    after = world.newest(SUMS, DAY)
    world.invalidate(SUMS, DAY, before)
    sync_one(services().board, open_ledger(settings().ledger), OUTPUT, before, world.now())
    ran = world.run_until_idle()
    assert ("sums", DAY, True) in outcomes([one for one in ran if one.assets])
    assert world.newest(SUMS, DAY) > after


def test_a_compaction_with_other_rows_publishes_nothing_and_is_tried_again_after_a_pause():
    world, before = built()
    wrong = services(lambda task: Given([{"k": "a", "n": 4}]))
    with pytest.raises(NotAsDeclared, match=r"the compaction has 1 rows with the digest .*: nothing is published"):
        compact_partition(wrong, OUTPUT, SORTED)
    assert world.newest(SUMS, DAY) == before
    with open_ledger(settings().ledger).read() as connection:
        arguments = connection, OUTPUT.feed, SORTED, lambda _: ()
        assert due(*arguments, now=world.now()) == []
        assert due(*arguments, now=world.now() + PAUSE) == [OUTPUT]
    later(world, timedelta())
    assert compact_partition(services(), OUTPUT, SORTED).before == before


def test_an_update_that_is_invalidated_meanwhile_is_not_compacted():
    world, before = built()

    def give(task):
        world.invalidate(SUMS, DAY, before)
        return given(task)

    with pytest.raises(UpdateChanged, match=f"has no valid update {before}.* Nothing is published"):
        compact_partition(services(give), OUTPUT, SORTED)
    assert world.newest(SUMS, DAY) is None


def compact_and_die(number):
    call_and_die(number, local_root(settings().blackboard), compact_partition, services(), OUTPUT, SORTED)


def test_a_compaction_killed_at_any_change_leaves_the_same_rows(forker):
    world, _ = built()
    world.run_until_idle()
    for number in count(1):
        code = forker.run(compact_and_die, number)
        assert world.rows(SUMS, DAY) == [{"k": "a", "n": 3}]
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert number > 10
    assert world.run_until_idle() == []
    assert row_of(world.newest(SUMS, DAY)).origin == "compacted"


def test_only_fitting_partitions_are_due():
    world, before = built()
    world.drop(RAW, NEXT_DAY, rows(101))
    world.run_until_idle()
    ledger = open_ledger(settings().ledger)

    def found(policy=SORTED, **values):
        with ledger.change() as connection:
            connection.execute(sa.update(update).where(updates.is_(OUTPUT, before)).values(values or {"files": 1}))
        with ledger.read() as connection:
            return [each.key for each in due(connection, OUTPUT.feed, policy, lambda _: (), now=world.now())]

    assert found() == [DAY], "the other day was refused"
    assert found(Compact(files=2)) == []
    assert found(Compact(files=2), files=2, size=100) == [DAY]
    assert found(Compact(files=2, target="1m"), files=7, size=4 << 20) == [], "its files have about the target's size"
    assert found(Compact(files=2, target="1m"), files=8, size=4 << 20) == [DAY]
    assert found(files=1, records=None) == [], "its version is no digest of rows"
    assert found(files=1, records=1, origin="compacted") == []
    assert found(origin="run", state="invalidated") == []


@each_case("named", ["newest", "replaced"])
def test_revalidation_includes_the_updates_with_the_same_rows(named):
    world, before = built(compact=SORTED)
    world.run_until_idle()
    after = world.newest(SUMS, DAY)
    for each in (after, before):
        world.invalidate(SUMS, DAY, each)
        sync_one(services().board, open_ledger(settings().ledger), OUTPUT, each, world.now())
    revalidate(services(), OUTPUT, {"newest": after, "replaced": before}[named])
    assert {row_of(each).state for each in (before, after)} == {"published"}
    assert world.newest(SUMS, DAY) == after
    assert world.run_until_idle() == []


def test_an_update_before_a_compaction_of_older_rows_is_not_revalidated():
    world, _ = built()
    world.drop(RAW, DAY, rows(5))
    world.run_until_idle()
    wrong = world.newest(SUMS, DAY)
    world.invalidate(SUMS, DAY, wrong)
    sync_one(services().board, open_ledger(settings().ledger), OUTPUT, wrong, world.now())
    after = compact_partition(services(), OUTPUT, SORTED).after
    with pytest.raises(NotRevalidated, match=f"readers would still get {after}, which is newer: it has the rows of"):
        revalidate(services(), OUTPUT, wrong)


def test_retention_counts_an_update_and_its_compaction_as_one():
    world, first = built(compact=SORTED)
    ids = [first]
    for number in (5, 7):
        world.run_until_idle()
        ids.append(world.newest(SUMS, DAY))
        world.drop(RAW, DAY, rows(number))
        world.tick()
        ids.append(world.newest(SUMS, DAY))
    world.run_until_idle()
    ids.append(world.newest(SUMS, DAY))
    assert len({*ids}) == 6
    [pruned] = prune_feed(services(), OUTPUT.feed, Retention(keep=2), apply=True)
    assert [each.id for each in pruned.judged if not each.goes] == ids[:2:-1], "two of the last rows, and one before"
    assert world.run_until_idle() == []


def test_a_compaction_is_no_build_from_which_costs_are_learned():
    needs = [Need(OUTPUT, (), late=Late(value_per_gb=1))]

    def costs():
        with open_ledger(settings().ledger).read() as connection:
            return run_costs.per_byte(connection, needs, 1)

    world, _ = built()
    learned = costs()
    later(world, timedelta(days=9))
    compact_partition(services(), OUTPUT, SORTED)
    assert costs() == learned != {}


@each_case("named", ["newest", "replaced"])
def test_feed_invalidate_also_invalidates_the_updates_with_the_same_rows(named, monkeypatch, capsys):
    world, before = built(compact=SORTED)
    world.run_until_idle()
    after = world.newest(SUMS, DAY)
    update_id = {"newest": after, "replaced": before}[named]
    for _ in range(2):
        code, errors = exit_and_errors(monkeypatch, capsys, "feed", "invalidate", SUMS, DAY, update_id)
        assert (code, world.newest(SUMS, DAY)) == (0, None)
        assert f"invalidated {OUTPUT} {update_id}" in errors
        assert {row_of(each).state for each in (before, after)} == {"invalidated"}
