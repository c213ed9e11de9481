"""Reconcile after killed runs, itself interrupted between any two steps; without Spark."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
import sqlalchemy as sa
from obstore import exceptions

from feed_assets.core.feeds import Partition
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import claims, log, runs, updates
from feed_assets.ledger.database import Ledger
from feed_assets.runs.reconcile import finish, reconcile
from feed_assets.runs.services import Services, this_process
from feed_assets.runs.sync import sync
from feed_assets_tests.runs.killed_run import OUTPUT, PIN, left_behind, no_spark
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, REJECTS, Lake
from feed_assets_tests.support.counted_blackboards import Counting


class Interrupted(BaseException):
    """Stands for a kill within this process."""


@pytest.fixture
def quiet(ledger) -> Lake:
    """Return a lake in memory, where every change is a request; without Spark."""
    return Lake(Services(Blackboard.open("memory://"), ledger, no_spark, lambda: NOW))


def outcome(lake: Lake) -> tuple[list[str], list[str], list[str], list[str], int]:
    """Return the state that reconcile changes: states of both feeds, objects, attempts, runs in progress."""
    attempts = [state for state, _ in lake.bad_ends()]
    return lake.states(), lake.states(REJECTS), lake.objects(), attempts, len(lake.running())


def paths(*feeds) -> list[str]:
    return [f"{feed}/{DAY}/20191125.060000/{name}" for feed in feeds for name in ("_SUCCESS", "part-0")]


EXPECTED = {
    0: ([updates.ABANDONED], [updates.ABANDONED], [], [updates.ABANDONED], 0),
    1: ([updates.ABANDONED], [updates.PUBLISHED], paths(REJECTS), [updates.ABANDONED], 0),
    2: ([updates.PUBLISHED], [updates.PUBLISHED], paths(CLEAN, REJECTS), [], 0),
}


@pytest.mark.parametrize("sealed", [0, 1, 2])
def test_reconcile_publishes_updates_with_manifests_and_sweeps_others(quiet, sealed):
    left_behind(quiet, sealed)
    (finished,) = reconcile(quiet.services)
    assert outcome(quiet) == EXPECTED[sealed]
    assert (len(finished.published), len(finished.swept), finished.is_published) == (sealed, 2 - sealed, sealed == 2)


def test_an_update_published_by_reconcile_keeps_pins_and_statistics(quiet):
    left_behind(quiet, sealed=2)
    reconcile(quiet.services)
    row = quiet.newest()
    assert (row.version, row.records, row.size, row.files, row.code_version) == ("version", 1, 4, 1, "1")
    with quiet.services.ledger.read() as connection:
        assert updates.consumed_by(connection, OUTPUT, row.id) == (PIN,)


@pytest.mark.parametrize("sealed", [0, 1, 2])
def test_reconciling_again_changes_nothing(quiet, sealed):
    left_behind(quiet, sealed)
    reconcile(quiet.services)
    with quiet.services.ledger.read() as connection:
        number = log.last(connection)
    assert reconcile(quiet.services) == ()
    with quiet.services.ledger.read() as connection:
        assert (log.last(connection), outcome(quiet)) == (number, EXPECTED[sealed])


def test_a_run_whose_process_lives_is_left_alone(quiet):
    left_behind(quiet, 0, this_process())
    assert reconcile(quiet.services) == ()
    assert quiet.states() == [updates.CLAIMED]


def test_a_caller_may_know_better_which_runs_have_ended(quiet):
    left_behind(quiet, 0, "another-host:1:0.00")
    reconcile(quiet.services)
    before = quiet.states()
    reconcile(quiet.services, has_ended=lambda run: run.id == "run with 0")
    assert (before, quiet.states()) == ([updates.CLAIMED], [updates.ABANDONED])


def test_only_dead_runs_of_the_output_are_released(quiet):
    left_behind(quiet, 0)
    reconcile(quiet.services, output=Partition(CLEAN, "2019-11-25"))
    before = quiet.states()
    reconcile(quiet.services, output=OUTPUT)
    assert (before, quiet.states()) == ([updates.CLAIMED], [updates.ABANDONED])


def test_a_refused_run_that_ended_while_others_were_settled_stays_refused(quiet):
    run = left_behind(quiet, 0)
    with quiet.services.ledger.change() as connection:
        runs.end(connection, run.id, updates.REFUSED, NOW, "not_empty")
    finish(quiet.services, run, "abandoned", "its process is gone, or Dagster has ended its run")
    assert quiet.bad_ends() == [(updates.REFUSED, "not_empty")]


@dataclass
class Steps:
    """Counts the steps of a reconcile, and interrupts it at one of them."""

    last: int
    done: int = 0

    def step(self) -> None:
        self.done += 1
        if self.done == self.last:
            raise Interrupted


class Stepping(Ledger):
    """A ledger whose transactions are steps: interrupted just before or just after a commit."""

    def __init__(self, ledger: Ledger, step: Callable[[], None]) -> None:
        super().__init__(ledger.engine)
        self._step = step

    @contextmanager
    def write(self) -> Generator[sa.Connection]:
        with super().write() as connection:
            yield connection
            self._step()
        self._step()


def interrupted_at(lake: Lake, last: int) -> int:
    """Reconcile until step number `last`; return how many steps were done."""
    steps = Steps(last)
    names = ("list", "children", "get", "put", "create", "delete")
    board = Counting.around(lake.services.board, dict.fromkeys(names, steps.step)).board
    try:
        reconcile(replace(lake.services, board=board, ledger=Stepping(lake.services.ledger, steps.step)))
    except Interrupted:
        return steps.done
    return steps.done


@pytest.mark.parametrize("sealed", [0, 1, 2])
@pytest.mark.parametrize("last", range(1, 11))
def test_a_reconcile_that_is_interrupted_anywhere_is_finished_by_the_next(quiet, sealed, last):
    left_behind(quiet, sealed)
    interrupted_at(quiet, last)
    reconcile(quiet.services)
    assert outcome(quiet) == EXPECTED[sealed]


@pytest.mark.parametrize(("sealed", "steps"), [(0, 10), (1, 8), (2, 6)])
def test_the_listed_steps_are_all_steps_of_a_reconcile(quiet, sealed, steps):
    left_behind(quiet, sealed)
    assert interrupted_at(quiet, last=0) == steps


def out_of_reach() -> None:
    raise exceptions.GenericError("connection refused")


def away(lake: Lake) -> Lake:
    """Return the same lake on a store that does not answer."""
    names = ("list", "children", "get", "put", "create", "delete")
    board = Counting.around(lake.services.board, dict.fromkeys(names, out_of_reach)).board
    return Lake(replace(lake.services, board=board))


@pytest.mark.parametrize("sealed", [0, 1, 2])
def test_claims_stay_open_while_the_blackboard_is_out_of_reach(quiet, sealed):
    run = left_behind(quiet, sealed)
    finish(away(quiet).services, run, runs.FAILED, "Mistake: no such column")
    assert (quiet.states(), quiet.running()) == ([updates.CLAIMED], [])
    assert quiet.bad_ends() == [(runs.FAILED, "Mistake: no such column")]
    reconcile(away(quiet).services)
    assert quiet.states() == [updates.CLAIMED]
    reconcile(quiet.services)
    states, rejects, objects, _, running = EXPECTED[sealed]
    assert outcome(quiet) == (states, rejects, objects, [] if sealed == 2 else [runs.FAILED], running)


def test_a_blackboard_whose_folder_is_gone_is_out_of_reach(ledger, tmp_path):
    board = Blackboard.open((tmp_path / "lake").as_uri(), create=True)
    lake = Lake(Services(board, ledger, no_spark, lambda: NOW))
    left_behind(lake, sealed=2)
    (tmp_path / "lake").rename(tmp_path / "unmounted")
    reconcile(lake.services)
    before = lake.states()
    (tmp_path / "unmounted").rename(tmp_path / "lake")
    reconcile(lake.services)
    assert (before, lake.states()) == ([updates.CLAIMED], [updates.PUBLISHED])


def test_a_consumer_that_listed_before_a_publication_does_not_undo_it(quiet):
    """Let the input's own run publish between the consumer's listing and its second read of the ledger."""
    left_behind(quiet, sealed=2)
    reconcile(quiet.services)
    older = quiet.newest().id
    left_behind(quiet, sealed=0)
    reads = []

    class Interleaved(Ledger):
        @contextmanager
        def read(self) -> Generator[sa.Connection]:
            reads.append(True)
            if len(reads) == 2:
                publish_claimed(quiet)
            with super().read() as connection:
                yield connection

    _, pin = sync(quiet.services.board, Interleaved(quiet.services.ledger.engine), OUTPUT, NOW)
    assert pin.update_id == older < quiet.newest().id == quiet.valid().id


def publish_claimed(lake: Lake) -> None:
    """Publish like the end of a run: write manifests, then the ledger."""
    board = lake.services.board
    with lake.services.ledger.read() as connection:
        claimed = claims.claimed_by(connection, "run with 0")
    for row in claimed:
        write.seal(board, row.partition, row.id, write.listed(board, row.partition, row.id))
    reconcile(lake.services)
