"""Runs that a kill left in progress before or after their build: the ledger does not count them as running."""

import json
import os
import socket
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster._core.events import EngineEventData

from feed_assets.orchestration.execute.makers import DRIVER
from feed_assets.orchestration.ticks.dead_runs import LAUNCHED, WORKER
from feed_assets.orchestration.ticks.run_lock import hold
from feed_assets_tests.support.sum_projects import BOTH, DAY, RAW, requested, rows, short

pytestmark = pytest.mark.usefixtures("home")
LOCAL = {LAUNCHED: json.dumps({"host": "localhost", "socket": "s"})}
GONE = 2**22 + 1
"""A process id above Linux's maximum."""

NOBODY = f"{socket.gethostname()}:{GONE}:0.00"
HERE = {LAUNCHED: json.dumps({"host": socket.gethostname(), "port": 4000})}
ELSEWHERE = {LAUNCHED: json.dumps({"host": "code-server.internal", "port": 4000})}


def create_run(world, tags, pid, status=dg.DagsterRunStatus.STARTED, **made_of):
    """Create a run as Dagster's worker starts it, with the process id in its log, and return its id."""
    run = world.instance.create_run_for_job(
        world.definitions.resolve_implicit_global_asset_job_def(),
        tags={"dagster/partition": DAY, **tags},
        status=status,
        asset_selection=frozenset(map(dg.AssetKey.from_user_string, BOTH)),
        **made_of,
    )
    if pid:
        world.instance.report_engine_event("Started process", run, EngineEventData.in_process(pid))
    return run.run_id


def status(world, run_id):
    return world.instance.get_run_by_id(run_id).status.value


@pytest.fixture
def short_world(home):
    made = short()
    made.drop(RAW, DAY, rows(1))
    return made


@pytest.mark.parametrize(
    ("tags", "state"), [(LOCAL, dg.DagsterRunStatus.STARTING), (HERE, dg.DagsterRunStatus.STARTED)]
)
def test_a_run_killed_before_its_build_is_failed_and_its_partition_requested(short_world, tags, state):
    """Its code server was reached by a socket, or by the name of this host, as in a container with a stable name."""
    run = create_run(short_world, tags, GONE, state)
    assert requested(short_world) == [DAY]
    assert status(short_world, run) == "FAILURE"


def test_a_run_whose_driver_is_gone_is_failed_and_its_partition_requested(short_world):
    run = create_run(short_world, {DRIVER: NOBODY}, None)
    assert requested(short_world) == [DAY]
    assert status(short_world, run) == "FAILURE"


def test_a_run_whose_worker_is_gone_is_failed_and_its_partition_requested(short_world):
    run = create_run(short_world, LOCAL, None)
    short_world.instance.add_run_tags(run, {WORKER: f"{run} {NOBODY}"})
    assert requested(short_world) == [DAY]
    assert status(short_world, run) == "FAILURE"


@pytest.mark.parametrize(("held", "found"), [("until now", "FAILURE"), ("still", "STARTED"), ("never", "STARTED")])
def test_a_run_of_another_host_is_failed_only_if_its_lock_file_is_released(short_world, tmp_path, held, found):
    """A container restarts under another host name; another machine with the same instance may still run it."""
    run = create_run(short_world, LOCAL, GONE)
    short_world.instance.add_run_tags(run, {WORKER: f"{run} elsewhere:{os.getpid()}:0.00"})
    storage = Path(short_world.instance.storage_directory())
    if held == "still":
        hold(storage, run)
    elif held == "until now" and not (child := os.fork()):
        hold(storage, run)
        os._exit(0)
    elif held == "until now":
        os.waitpid(child, 0)
    assert requested(short_world) == ([DAY] if found == "FAILURE" else [])
    assert status(short_world, run) == found


def test_a_canceling_run_whose_process_is_gone_is_canceled(short_world):
    run = create_run(short_world, {DRIVER: NOBODY}, None, dg.DagsterRunStatus.CANCELING)
    requested(short_world)
    assert status(short_world, run) == "CANCELED"


@pytest.mark.parametrize("tags", [{WORKER: f"{uuid4()} {NOBODY}"}, {DRIVER: NOBODY}], ids=["worker", "driver"])
def test_a_rerun_with_the_tags_of_a_dead_run_is_left_alone(short_world, tags):
    run = create_run(
        short_world, {**LOCAL, **tags}, os.getpid(), root_run_id=(before := str(uuid4())), parent_run_id=before
    )
    assert requested(short_world) == []
    assert status(short_world, run) == "STARTED"


@pytest.mark.parametrize(
    ("tags", "pid"),
    [
        pytest.param(LOCAL, os.getpid(), id="its process lives"),
        pytest.param(LOCAL, None, id="it has not begun"),
        pytest.param(ELSEWHERE, GONE, id="its process is on another host"),
        pytest.param({}, GONE, id="somebody else drives it"),
    ],
)
def test_a_run_that_may_live_is_left_alone(short_world, tags, pid):
    run = create_run(short_world, tags, pid)
    assert requested(short_world) == []
    assert status(short_world, run) == "STARTED"
