"""A worker that wakes up after its run was given up, and another run has built its partition: it publishes nothing."""

import pytest

from feed_assets.core.errors import UpdateAbandoned
from feed_assets.core.feeds import Partition, Update
from feed_assets.feeds import read
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import updates
from feed_assets.ledger.database import open_ledger
from feed_assets.runs.reconcile import reconcile
from feed_assets.runs.services import Services
from feed_assets_tests.runs.killed import plain
from feed_assets_tests.support.build_lake import CLEAN, NOW, Lake, stepping

LINE = "1,2019-11-24 01:00:00"


def lake_in(folder) -> Lake:
    board = Blackboard.open((folder / "lake").as_uri(), create=True)
    return Lake(Services(board, open_ledger(f"sqlite:///{folder / 'ledger.db'}"), lambda: plain(board), lambda: NOW))


def valid_updates(lake, key):
    return [each.id for each in read.history(lake.services.board, Partition(CLEAN, key)) if isinstance(each, Update)]


def steps_of(lake):
    steps = []
    lake.drop(LINE, key="undisturbed")
    lake.clean("undisturbed", services=stepping(lake, steps.append))
    return steps


def overtaken_at(lake, step, key):
    """Build a partition. After `step` the run is given up, as that of another machine is, and another run builds it."""

    def overtake(reached):
        if reached == step:
            reconcile(lake.services, has_ended=lambda run: run.output.key == key)
            lake.clean(key)

    lake.drop(LINE, key=key)
    return lake.clean(key, services=stepping(lake, overtake))


def test_a_worker_that_wakes_up_late_publishes_nothing_whatever_it_was_doing(tmp_path, subtests):
    lake = lake_in(tmp_path)
    steps = steps_of(lake)
    manifest = steps.index(f"manifest of {CLEAN} written")
    assert manifest > 5
    for number, step in enumerate(steps):
        key = f"day-{number}"
        with subtests.test(msg=step):
            if 0 < number < manifest:
                with pytest.raises(UpdateAbandoned):
                    overtaken_at(lake, step, key)
            else:  # It has nothing to do any more, or its update was published in its place.
                overtaken_at(lake, step, key)
            assert lake.states(CLEAN, key).count(updates.PUBLISHED) == 1
            assert valid_updates(lake, key) == [lake.newest(CLEAN, key).id]
