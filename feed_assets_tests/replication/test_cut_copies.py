"""Copies and withdrawals that are cut, overtaken or not wanted any more end with what the source has, and say so."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Partition
from feed_assets.ledger import place_copies
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update as update_table
from feed_assets.replication import transitions_read
from feed_assets.runs.revalidate import revalidate
from feed_assets.runs.sync import sync
from feed_assets_tests.replication.two_ends import DAY, OTHER, SALES, Ends, Killed, events_of, place_on, visible
from feed_assets_tests.support.own_updates import publish_own

MANY = {f"part-{number}.csv": b"%d" % number for number in range(70)}


def miss(ends: Ends, update, partition: Partition = DAY) -> None:
    with ends.ledger.write() as connection:
        place_copies.mark_gone(connection, "b", partition, update.id)


@pytest.mark.parametrize("step", ["manifest removed", "withdrawn"])
@pytest.mark.parametrize("error", [Killed(), OSError("the store is away")])
def test_an_update_that_is_valid_again_after_a_withdrawal_that_was_cut_is_copied_again(ends, step, error):
    update = ends.publish()
    ends.replicate()
    ends.invalidate(update)
    ends.stopped_at(step, error)
    revalidate(ends.services, DAY, update.id)
    ends.settle()
    assert visible(ends.place.board) == visible(ends.source) is not None


@pytest.mark.parametrize("step", ["manifest removed", "withdrawn"])
def test_a_frozen_process_that_withdraws_what_is_valid_again_loses_no_copy(ends, step):
    update = ends.publish()
    ends.replicate()
    ends.invalidate(update)

    def meanwhile() -> None:
        ends.replicate()
        revalidate(ends.services, DAY, update.id)
        ends.replicate()

    ends.stalled(step, meanwhile)
    ends.settle()
    assert visible(ends.place.board) == visible(ends.source) is not None
    assert events_of(ends.ledger)[-1] == (update.id, "OVERWRITE")


@pytest.mark.parametrize("state", ["missed", "valid again", "partly copied"])
def test_an_older_update_that_was_written_again_does_not_hold_its_lane_with_what_was_copied(ends, state):
    update = ends.publish(files=MANY) if state == "partly copied" else ends.publish()
    if state == "partly copied":
        ends.stopped_at("files recorded")
    else:
        ends.replicate()
    if state == "missed":
        miss(ends, update)
    if state == "valid again":
        ends.invalidate(update)
        ends.replicate()
        revalidate(ends.services, DAY, update.id)
    ends.rewrite(update, dict.fromkeys(MANY, b"other") if state == "partly copied" else OTHER)
    ends.publish(files={"new.csv": b"new"})
    ends.settle()
    assert visible(ends.place.board) == visible(ends.source) is not None


@pytest.mark.parametrize("state", ["missed", "half-written"])
def test_a_copy_that_was_announced_and_is_withdrawn_is_announced_so_whatever_came_between(ends, state):
    update = publish_own(ends.services, DAY, ends.clock()) if state == "missed" else ends.publish()
    ends.replicate()
    if state == "missed":
        miss(ends, update)
    else:
        ends.rewrite(update, OTHER)
        sync(ends.source, ends.ledger, DAY, ends.clock())
        ends.stopped_at("before the manifest", OSError("the store is away"))
    ends.invalidate(update)
    ends.settle()
    assert events_of(ends.ledger)[-1] == (update.id, "DELETE")


@pytest.mark.parametrize("case", ["overtaken", "its pattern is removed"])
def test_a_missed_copy_that_is_not_wanted_any_more_makes_one_task(ends, case):
    ends = ends.with_place(keep=1)
    update = ends.publish()
    ends.replicate()
    ends.place.board.sweep(update.path)
    miss(ends, update)
    ends.publish()
    ends = ends if case == "overtaken" else ends.with_place(datasets=("web/*",))
    steps: list[str] = []

    def on_step(name: str) -> None:
        steps.append(name)
        assert len(steps) < 100

    ends.on_step = on_step
    ends.replicate()
    assert ends.waiting() == []
    if case == "overtaken":
        assert visible(ends.place.board) == visible(ends.source) is not None


def test_an_update_that_lost_a_file_at_the_source_is_not_taken_for_a_restored_one(ends):
    update = ends.publish(files={"a.csv": b"1", "b.csv": b"2", "c.csv": b"3"})
    ends.replicate()
    miss(ends, update)
    ends.source.delete([f"{update.path}/c.csv"])
    ends.source.put(f"{update.path}/_SUCCESS", b"2")
    assert ends.replicate().failed == 1
    with ends.ledger.read() as connection:
        assert place_copies.published(connection, "b", {(DAY, update.id)}) == set()


def test_a_copy_of_a_compacted_update_has_no_event_when_it_is_withdrawn_either(ends):
    update = publish_own(ends.services, DAY, ends.clock())
    with ends.ledger.write() as connection:
        is_it = update_table.c.id == update.id
        connection.execute(sa.update(update_table).where(is_it).values(origin="compacted"))
    ends.replicate()
    ends.invalidate(update)
    ends.replicate()
    assert events_of(ends.ledger) == []


@pytest.fixture
def on_postgresql(local_board, local_place, postgresql) -> Iterator[Ends]:
    ledger = open_ledger(postgresql.database())
    yield Ends(local_board, place_on(local_place), ledger)
    ledger.engine.dispose()


def test_a_copy_that_is_missed_while_tasks_of_others_are_made_gets_one_too(on_postgresql, monkeypatch):
    ends, other = on_postgresql, Partition(SALES, "2026-02-01")
    first, second = ends.publish(), ends.publish(partition=other)
    ends.replicate()
    miss(ends, first)
    make_task, waits = transitions_read._task, [second]

    def make_meanwhile(*arguments):
        if waits:
            miss(ends, waits.pop(), other)
        return make_task(*arguments)

    ends.place.board.delete([f"{second.path}/_SUCCESS"])
    monkeypatch.setattr(transitions_read, "_task", make_meanwhile)
    ends.settle()
    ends.settle()
    assert visible(ends.place.board, other) is not None
