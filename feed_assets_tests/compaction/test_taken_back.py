"""Rows that are invalidated while they are compacted: no reader gets them from the compacted update."""

import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Event, Thread

import pytest
from typer.testing import CliRunner

from feed_assets import Compact
from feed_assets.cli import app, main
from feed_assets.compaction.batches import compact
from feed_assets.compaction.whole_partitions import compact_partition
from feed_assets.core.errors import UpdateChanged
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import read, write
from feed_assets.ledger import compacted_partitions, update_changes
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.reconcile import reconcile
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets.testing import PlainMaker
from feed_assets_tests.support import appended_world, sum_projects
from feed_assets_tests.support.appended_world import compacted_rows, held
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.sum_projects import DAY, RAW, SUMS, chain, given, rows
from feed_assets_tests.support.versioned_shop import Shop

OUTPUT = Partition(Feed.parse(SUMS), DAY)
COMPACT = Compact(sort_by=("k",), files=1)
STEPS = ["claimed in the ledger", "statistics in the ledger", "manifest written", "published"]
CASES = [(step, dies) for step in STEPS for dies in (False, True)]


@pytest.fixture(autouse=True)
def closing(home):
    yield
    sum_projects.opened.close()


def services(give=given, step="", during=lambda: None, dies=False):
    """Return services that call `during` after a step, and then kill the process if `dies`."""

    def on_step(name):
        if name == step:
            during()
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)

    return replace(Services.of(settings(), lambda: PlainMaker(give)), on_step=on_step)


def invalidate(update_id):
    """Call `feed-assets feed invalidate` in this process."""
    sys.argv = ["feed-assets", "feed", "invalidate", SUMS, DAY, update_id]
    with suppress(SystemExit):
        main()


def compact_whole(step, dies, update_id):
    """Compact a partition whose update is invalidated after a step. Exit with 3 if that was noticed."""
    during = services(step=step, during=lambda: invalidate(update_id), dies=dies)
    try:
        compact_partition(during, OUTPUT, COMPACT)
    except UpdateChanged:
        os._exit(3)


def compact_batches(step, dies, batch, update_id):
    """Compact batches of which one is invalidated after a step. Exit with 3 if that was noticed."""
    board = services().board
    during = services(compacted_rows, step, lambda: write.invalidate(board, batch, update_id), dies)
    try:
        compact(during, appended_world.OUTPUT, 2, apply=True)
    except UpdateChanged:
        os._exit(3)


@each_case(("step", "dies"), CASES)
def test_an_update_taken_back_at_any_step_of_its_compaction_is_not_readable(step, dies, forker):
    world = chain()
    world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    before = world.newest(SUMS, DAY)
    noticed = 0 if step == "published" else 3
    assert forker.run(compact_whole, step, dies, before) == (-signal.SIGKILL if dies else noticed)
    reconcile(services(), lambda run: True)
    with open_ledger(settings().ledger).read() as connection:
        bad = compacted_partitions.with_same_rows(connection, OUTPUT, before)
    assert (newest := read.latest(services().board, OUTPUT).update) is None or newest.id not in bad
    world.drop(RAW, DAY, rows(5))
    world.run_until_idle()
    assert world.rows(SUMS, DAY) == world.rows("t/picked/v1.0", DAY) == [{"k": "a", "n": 5}]


@pytest.mark.parametrize(("step", "dies"), CASES[2:-2])
def test_a_batch_taken_back_at_any_step_of_its_compaction_is_not_in_the_range(step, dies, forker, tmp_path):
    shop = Shop(tmp_path)
    world = appended_world.world(shop, [])
    for key in "abc":
        shop.write(key)
        world.run_until_idle()
    batch = appended_world.OUTPUT.batch("b00000002")
    update_id = world.newest(str(batch.feed), batch.key)
    assert forker.run(compact_batches, step, dies, batch, update_id) == (-signal.SIGKILL if dies else 3)
    reconcile(services(compacted_rows), lambda run: True)
    assert held() == {"b00000001": ["a"], "b00000003": ["c"]}


def test_an_update_that_is_sealed_while_it_is_taken_back_is_taken_back_too(monkeypatch):
    """The command looks at the claim before the manifest is there, and removes the replaced update's manifest after."""
    world = chain()
    world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    before = world.newest(SUMS, DAY)
    invalidates, is_at_base, is_published = write.invalidate, Event(), Event()

    def slowly(board, partition, update_id, **how):
        if update_id == before and not is_published.is_set():
            is_at_base.set()
            assert is_published.wait(60)
        invalidates(board, partition, update_id, **how)

    monkeypatch.setattr(write, "invalidate", slowly)
    command = Thread(target=CliRunner().invoke, args=(app, ["feed", "invalidate", SUMS, DAY, before]))

    def during():
        command.start()
        assert is_at_base.wait(60)

    compact_partition(services(step="statistics in the ledger", during=during), OUTPUT, COMPACT)
    is_published.set()
    command.join(60)
    assert read.latest(services().board, OUTPUT).update is None


@pytest.mark.parametrize("state", ["pruned", None], ids=["pruned", "removed by the store"])
def test_a_compaction_stays_if_the_replaced_update_is_gone_before_reconcile(forker, state):
    world = chain()
    world.drop(RAW, DAY, rows(1, 2))
    world.run_until_idle()
    before = world.newest(SUMS, DAY)
    assert forker.run(compact_and_die) == -signal.SIGKILL
    if state:
        with open_ledger(settings().ledger).change() as connection:
            update_changes.change(connection, OUTPUT, before, state, datetime.now(UTC))
    services().board.sweep(f"{OUTPUT.path}/{before}")
    reconcile(services(), lambda run: True)
    assert world.newest(SUMS, DAY) > before
    assert world.rows(SUMS, DAY) == [{"k": "a", "n": 3}]


def compact_and_die():
    compact_partition(services(step="manifest written", dies=True), OUTPUT, COMPACT)
