"""Copies that cannot be made, or are late, or vanish while their task ends, keep no run waiting for ever."""

import shutil
from datetime import timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds import removal
from feed_assets.feeds.opened import open_board
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.replication import replicator
from feed_assets.replication.places import open_place
from feed_assets.replication.transitions_read import fill
from feed_assets.runs.services import Services
from feed_assets.settings import settings
from feed_assets_tests.replication.flows import RAW, board_of, world
from feed_assets_tests.support.sum_projects import DAY, opened, rows

pytestmark = pytest.mark.usefixtures("home")
B = {"b": {"targets": ["emr-b"]}}
AT = Partition(Feed.parse(RAW), DAY)


@pytest.fixture(autouse=True)
def closed():
    yield
    opened.close()


def _remove(board, first: str, second: str) -> None:
    board.delete([each.key for each in board.files(f"{RAW}/{DAY}/{first}")])


def _rewrite(board, first: str, second: str) -> None:
    board.put(f"{RAW}/{DAY}/{first}/part-1", rows(9).encode())


def _prune(board, first: str, second: str) -> None:
    removal.promise(board, AT, second)
    removal.remove(board, AT, first, None)


@pytest.mark.parametrize("change_first", [_remove, _rewrite, _prune])
def test_an_update_that_its_owner_replaced_before_it_was_copied_does_not_hold_its_lane(
    monkeypatch, tmp_path, change_first
):
    w = world(monkeypatch, tmp_path, B)
    first = w.lake.drop(RAW, DAY, rows(1, 2))
    assert w.asked() == []  # The ledger has the first one, whose copy waits.
    second = w.lake.drop(RAW, DAY, rows(4, 5))
    change_first(open_board(settings()), first, second)
    assert w.asked() == []
    w.copy()
    assert w.run() == [(DAY, "emr-b")]
    assert set(board_of("b", tmp_path).children(f"{RAW}/{DAY}")) == {second}


@pytest.mark.parametrize(("first_ago", "ran"), [(10, [(DAY, "here")]), (4, [])])
def test_a_preferred_place_that_gets_no_copies_is_late_however_often_an_input_changes(
    monkeypatch, tmp_path, first_ago, ran
):
    w = world(monkeypatch, tmp_path, B, at=("b", "primary"))
    for ago, number in ((first_ago, 1), (1, 2)):
        published = w.lake.drop(RAW, DAY, rows(number))
        w.requests()
        with open_ledger(settings().ledger).write() as connection:
            its_row = sa.update(update).where(update.c.id == published, update.c.feed == RAW)
            connection.execute(its_row.values(at=w.lake.now() - timedelta(minutes=ago)))
    assert w.asked() == ran


def test_a_copy_that_vanishes_while_its_task_ends_is_made_again(monkeypatch, tmp_path):
    w = world(monkeypatch, tmp_path, B)
    w.lake.drop(RAW, DAY, rows(1))
    assert w.asked() == []
    remove_old = replicator.remove_old

    def vanish(ends, partition) -> None:
        monkeypatch.setattr(replicator, "remove_old", remove_old)
        (request,) = w.requests()
        shutil.rmtree(tmp_path / "b" / RAW / DAY)
        assert not w.lake.runner.execute(request).success
        services = Services.of(settings())
        fill(services.ledger, open_place(settings(), "b", services.board), w.lake.now(), ())
        remove_old(ends, partition)

    monkeypatch.setattr(replicator, "remove_old", vanish)
    w.copy()
    w.copy()
    assert w.run() == [(DAY, "emr-b")]
