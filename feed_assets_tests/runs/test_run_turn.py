"""A second run of a partition waits for the first, and then finds it unchanged or builds it."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from socket import gethostname
from threading import Event, Thread

import psutil
import pytest

from feed_assets.core.errors import AlreadyRunning, PartitionClosed
from feed_assets.core.feeds import Partition
from feed_assets.ledger import closures, runs, updates
from feed_assets.ledger.runs import Launch, Run
from feed_assets.runs.phases import Published, Unchanged
from feed_assets.runs.run_turn import LOOK_SECONDS, Patience, begin
from feed_assets.runs.services import Services, _start, this_process
from feed_assets.runs.sync import pin
from feed_assets.testing import PlainMaker
from feed_assets_tests.runs.killed_run import left_behind
from feed_assets_tests.support.build_lake import CLEAN, DAY, NOW, RAW, Lake, stepping

OUTPUT = Partition(CLEAN, DAY)
ROW = "1,2019-11-24 08:00:00"
PATIENCE = 30
"""Maximum seconds for which a thread of a test waits for another; after it the test fails."""


@pytest.fixture
def lake(ledger, local_board) -> Lake:
    """Return a lake without Spark."""
    lake = Lake(Services(local_board, ledger, PlainMaker, lambda: NOW))
    lake.drop(ROW)
    return lake


def other_run(lake: Lake, process: str | None = None, **more) -> Run:
    """Start a run of another process that builds the partition."""
    run = Run("other", OUTPUT, runs.RUNNING, process or this_process(), NOW, **more)
    runs.start(lake.services.ledger, run)
    return run


def end(lake: Lake, state: str = updates.ABANDONED) -> None:
    with lake.services.ledger.change() as connection:
        runs.end(connection, "other", state, NOW, "by the test")


def after(looks: int, act: Callable[[], object]) -> Callable[[float], None]:
    """Return a pause that acts at the last of `looks` calls, and fails at one more."""
    left = looks

    def pause(seconds: float) -> None:
        nonlocal left
        left -= 1
        assert left >= 0, "it looks again after what it waits for is over"
        if not left:
            act()

    return pause


def test_the_second_run_finds_unchanged_what_the_first_has_published(lake):
    second = []
    waits, published = Event(), Event()

    def pause(_: float) -> None:
        waits.set()
        assert published.wait(PATIENCE)

    def begin_second(step: str) -> None:
        if step == "audited":
            thread.start()
            assert waits.wait(PATIENCE)

    thread = Thread(target=lambda: second.append(lake.clean(patience=Patience(PATIENCE, pause))))
    first = lake.clean(services=stepping(lake, begin_second))
    published.set()
    thread.join(PATIENCE)
    assert isinstance(first, Published)
    (unchanged,) = second
    assert (type(unchanged), unchanged.update_id) == (Unchanged, first.outputs[-1].id)
    assert (lake.states(), lake.running()) == ([updates.PUBLISHED], [])


@pytest.mark.parametrize("state", [runs.FAILED, updates.REFUSED, updates.ABANDONED])
def test_the_second_run_builds_outputs_that_the_first_has_not(lake, state):
    other_run(lake)
    assert isinstance(lake.clean(patience=Patience(9, after(3, lambda: end(lake, state)))), Published)
    assert lake.states() == [updates.PUBLISHED]


def test_the_reason_of_a_wait_is_printed_once_for_each_awaited_run(lake):
    told = []

    def next_one() -> None:
        end(lake)
        other = Run("third", OUTPUT, runs.RUNNING, this_process(), NOW, dagster_run="of-dagster")
        runs.start(lake.services.ledger, other)

    other_run(lake)
    patience = Patience(5, after(5, next_one), told.append)
    with pytest.raises(AlreadyRunning):
        lake.clean(patience=patience)
    assert told == [
        f"ads/clean/v1.0 {DAY} is being built by run other in process {this_process()} since 2019-11-25 06:00:00 UTC: "
        "this run waits for it, for up to 5 s."
    ]
    pauses = []
    with pytest.raises(AlreadyRunning):
        lake.clean(patience=Patience(2.5, pauses.append, told.append))
    assert "built by run of-dagster" in told[1]
    assert pauses == [LOOK_SECONDS, LOOK_SECONDS, 0.5]


def test_waiting_is_bounded_and_the_error_says_for_how_long(lake):
    other_run(lake)
    pauses = []
    patience = Patience(3, pauses.append)
    said = r"is being built by run other .* This run has waited 3 s\."
    with pytest.raises(AlreadyRunning, match=said):
        lake.clean(patience=patience)
    assert sum(pauses) == 3
    assert [run.id for run in lake.running()] == ["other"]


def test_the_time_is_for_all_partitions_of_a_run_together(lake):
    other_run(lake)
    patience = Patience(5, after(2, lambda: end(lake)))
    lake.clean(patience=patience)
    assert patience.seconds_left == 3
    runs.start(lake.services.ledger, Run("more", OUTPUT, runs.RUNNING, this_process(), NOW))
    pauses = []
    patience.pause = pauses.append
    with pytest.raises(AlreadyRunning, match="has waited 5 s"):
        lake.clean(patience=patience)
    assert sum(pauses) == 3


def test_without_patience_nothing_is_waited_for(lake):
    other_run(lake)
    with pytest.raises(AlreadyRunning, match="Wait for it, or end it"):
        lake.clean(patience=Patience(0, after(0, list)))


@pytest.mark.parametrize(("sealed", "expected"), [(0, Published), (2, Unchanged)])
def test_a_run_that_dies_meanwhile_is_finished_and_taken_over(lake, sealed, expected):
    """Publish what the dead run has sealed; build the rest."""
    _, read = pin(lake.services, Partition(RAW, DAY), None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        left_behind(lake, sealed, f"{gethostname()}:{process.pid}:{_start(psutil.Process(process.pid))}", read)

        def die() -> None:
            process.kill()
            process.wait()

        outcome = lake.clean(patience=Patience(9, after(2, die)))
    assert isinstance(outcome, expected)
    assert (lake.states()[-1], lake.running()) == (updates.PUBLISHED, [])


def test_a_run_of_another_host_is_over_when_the_caller_says_so(lake):
    """Imitate a process of another host, which cannot be seen: Dagster knows how its run ended."""
    over = []
    left_behind(lake, 0, "another-host:1:0.00")
    patience = Patience(9, after(2, lambda: over.append("run with 0")), has_ended=lambda run: run.id in over)
    assert isinstance(lake.clean(patience=patience), Published)
    assert (lake.states(), lake.running()) == ([updates.ABANDONED, updates.PUBLISHED], [])


def test_a_run_that_is_stopped_while_it_waits_leaves_nothing(lake):
    other_run(lake)
    before = lake.objects(), lake.last_change()

    def stop() -> None:
        raise KeyboardInterrupt("stopped")

    with pytest.raises(KeyboardInterrupt):
        lake.clean(patience=Patience(9, after(2, stop)))
    assert ([run.id for run in lake.running()], lake.objects(), lake.last_change()) == (["other"], *before)


def test_a_partition_closed_during_the_wait_is_not_built(lake):
    def close() -> None:
        end(lake)
        closures.close(lake.services.ledger, [OUTPUT], "it never comes", "a person", NOW)

    other_run(lake)
    with pytest.raises(PartitionClosed):
        lake.clean(patience=Patience(9, after(2, close)))
    assert lake.running() == []


def test_a_run_overtaken_between_check_and_start_keeps_waiting(lake):
    other_run(lake)
    told, acts = [], []

    def overtake() -> None:
        runs.start(lake.services.ledger, Run("faster", OUTPUT, runs.RUNNING, this_process(), NOW))

    def now() -> datetime:
        """Let another run begin between the check and the start: both read the clock."""
        if acts:
            acts.pop()()
        return NOW

    def pause(_: float) -> None:
        with lake.services.ledger.change() as connection:
            for run in runs.running(connection, OUTPUT):
                runs.end(connection, run.id, updates.ABANDONED, NOW, "by the test")
        if len(told) == 1:
            acts.extend([overtake, list])

    run = begin(replace(lake.services, now=now), OUTPUT, Launch(), Patience(9, pause, told.append))
    assert ([each.id for each in lake.running()], acts) == ([run.id], [])
    assert ["built by run other" in told[0], "built by run faster" in told[1], len(told)] == [True, True, 2]
