"""A replicator that is killed before any change to the ledger or the place: readers there see only whole updates."""

import shutil
import signal
from datetime import datetime
from pathlib import Path

import pytest

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.replication.replicator import replicate
from feed_assets.replication.turn import LASTS
from feed_assets.runs.services import Services
from feed_assets_tests.replication.two_ends import Ends, events_of, history, place_on, visible
from feed_assets_tests.support.kill_points import call_and_die

FILES = {f"part-{number}.csv": f"id\n{number}\n".encode() for number in range(3)}


def replicate_once(source: Path, folder: Path, now: datetime) -> None:
    """Do what waits, in the order of the log: one thread, so that each number means the same moment."""
    ledger = open_ledger(f"sqlite:///{folder / 'ledger.db'}")
    source, board = (Blackboard.open(each.as_uri()) for each in (source, folder / "place"))
    replicate(Services(source, ledger, None, now=lambda: now), place_on(board, at_once=1, keep=2))


def replicate_and_die(number: int, source: Path, folder: Path, now: datetime) -> None:
    call_and_die(number, folder / "place", replicate_once, source, folder, now)


@pytest.fixture
def prepared(tmp_path, empty_ledger):
    """Return a folder with a source, a place that has two updates, and the transitions that follow."""
    folder = tmp_path / "prepared"
    folder.mkdir()
    shutil.copyfile(empty_ledger, folder / "ledger.db")
    source, board = (Blackboard.open(each.as_uri(), create=True) for each in (tmp_path / "source", folder / "place"))
    ends = Ends(source, place_on(board, at_once=1, keep=2), open_ledger(f"sqlite:///{folder / 'ledger.db'}"))
    for number in range(2):
        ends.publish(files={"n.csv": str(number).encode()})
    ends.replicate()
    before = visible(board)
    withdrawn = ends.publish(files=FILES)
    ends.replicate()
    ends.invalidate(withdrawn)
    last = ends.publish(files=FILES)
    ends.ledger.engine.dispose()
    whole = {str(each) for each in (before, (withdrawn.id, FILES), (last.id, FILES))}
    return folder, ends, whole, (last.id, FILES), withdrawn.id


def test_a_kill_before_any_change_leaves_whole_updates_and_the_next_run_ends_the_work(prepared, forker, tmp_path):
    folder, ends, whole, expected, withdrawn = prepared
    number, code = 0, -signal.SIGKILL
    while code == -signal.SIGKILL:
        number += 1
        copy = tmp_path / f"killed {number}"
        shutil.copytree(folder, copy)
        board = Blackboard.open((copy / "place").as_uri())

        def look(board=board) -> None:
            assert str(visible(board)) in whole

        code = forker.run(replicate_and_die, number, tmp_path / "source", copy, ends.clock(), meanwhile=look)
        assert code in (0, -signal.SIGKILL)
        look()
        replicate_once(tmp_path / "source", copy, ends.clock() + LASTS)
        assert visible(board) == expected
        assert len(history(board)) == 2
        ledger = open_ledger(f"sqlite:///{copy / 'ledger.db'}")
        assert events_of(ledger)[2:] == [(withdrawn, "OVERWRITE"), (withdrawn, "DELETE"), (expected[0], "OVERWRITE")]
        ledger.engine.dispose()
        shutil.rmtree(copy)
    assert number > 20, "so many changes were made, each of which was once the last"
