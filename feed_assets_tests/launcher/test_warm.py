"""Runs started by the warm launcher: real code servers, parents and forks."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest

from feed_assets.cli.loaded_location import prepare
from feed_assets.orchestration.launcher import parents
from feed_assets.orchestration.launcher.dagster_private import LaunchRunContext
from feed_assets.orchestration.launcher.parents import Fork
from feed_assets.orchestration.launcher.warm import WarmRunLauncher
from feed_assets.orchestration.ticks.dead_runs import WORKER, fail_left_runs
from feed_assets_tests.launcher.locations import Location, begin, served
from feed_assets_tests.support.servers import lives, stop, wait_until

SUCCESS, CANCELED = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Location]:
    """Serve one location for all tests: each leaves a server, and a parent or none."""
    folder = tmp_path_factory.mktemp("warm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", str(folder / "home"))
        with served(folder / "project", folder / "home", {**os.environ, "MARKER": "the server's"}) as location:
            yield location


def is_warm(location: Location, run_id: str) -> bool:
    return location.instance.get_run_by_id(run_id).tags.get(WORKER, "").startswith(run_id)


def health(location: Location, run_id: str) -> str:
    run = location.instance.get_run_by_id(run_id)
    assert location.instance.run_launcher.supports_check_run_worker_health, "Dagster's monitoring would not ask"
    return location.instance.run_launcher.check_run_worker_health(run).status.value


def threads_and_files(pid: int) -> tuple[int, list[str]]:
    """Return the number of a process's threads, and its open files besides the given ones."""
    process = psutil.Process(pid)
    return process.num_threads(), [each.path for each in process.open_files() if each.path.endswith((".db", ".lock"))]


def test_runs_are_forks_of_one_loaded_process_without_open_connections(location: Location) -> None:
    first, second = location.run(), location.run()
    parent = first["loaded by"]
    assert parent == first["parent"] == second["loaded by"]
    assert len({first["pid"], second["pid"], parent, location.server.pid}) == 4
    assert (first["marker"], first["cwd"]) == ("the server's", str(location.folder))
    assert not first["buries"], "a run waits for its own children"
    assert psutil.Process(parent).net_connections("inet") == []
    assert threads_and_files(parent) == (1, [])
    wait_until(lambda: not psutil.Process(parent).children(), "a run that has ended to be buried")


def test_a_run_is_interrupted_by_the_ui_s_button(location: Location) -> None:
    run_id = location.launch("endless")
    pid = location.told(run_id)["pid"]
    assert location.instance.run_launcher.terminate(run_id)
    assert location.end(run_id) is CANCELED
    wait_until(lambda: not psutil.pid_exists(pid), "the end of the process")
    assert not location.instance.run_launcher.terminate(run_id), "it is over"


def test_a_run_is_interrupted_that_has_only_just_begun(location: Location) -> None:
    location.run()
    run_id = location.launch("endless")
    assert location.instance.run_launcher.terminate(run_id)
    assert location.end(run_id) is CANCELED, location.said(run_id)


def test_a_run_whose_process_was_killed_is_found_and_can_be_cancelled(location: Location) -> None:
    run_id = location.launch("endless")
    pid = location.told(run_id)["pid"]
    assert health(location, run_id) == "RUNNING"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: health(location, run_id) == "FAILED", "the end to be seen")
    assert location.instance.run_launcher.terminate(run_id)
    assert location.status(run_id) is CANCELED


def test_a_dead_run_of_a_renamed_host_is_found_by_its_released_lock(location: Location):
    run_id = location.launch("endless")
    pid = location.told(run_id)["pid"]
    location.instance.add_run_tags(run_id, {WORKER: f"{run_id} elsewhere:{pid}:0.00"})
    assert health(location, run_id) == "RUNNING"
    assert not location.instance.run_launcher.terminate(run_id), "it cannot be reached"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: health(location, run_id) == "FAILED", "the end to be seen")
    assert location.instance.run_launcher.terminate(run_id)
    assert location.status(run_id) is CANCELED


class Late(WarmRunLauncher):
    """Launcher whose forks are killed before they get the word to start."""

    def _fork(self, context: LaunchRunContext) -> Fork:
        fork = super()._fork(context)
        process = psutil.Process(int(fork.name.split(":")[1]))
        process.kill()
        wait_until(lambda: not lives(process), "the end of the fork")
        return fork


def test_a_run_whose_fork_was_killed_early_starts_once_by_dagster(location: Location) -> None:
    launcher, run = Late(), location.create()
    launcher.register_instance(location.instance)
    launcher.launch_run(LaunchRunContext(run, location.workspace()))
    launcher.dispose()
    assert location.end(run.run_id) is SUCCESS
    said = location.said(run.run_id)
    assert any("is not warm: the process for the run has ended" in each for each in said)
    assert sum("Started process for run" in each for each in said) == 1
    assert not is_warm(location, run.run_id)


def test_after_a_reload_no_run_has_the_old_code(location: Location) -> None:
    before = location.run()
    location.write(version=before["version"] + 1)
    location.reload()
    after = location.run()
    assert after["version"] == before["version"] + 1
    assert after["loaded by"] == after["parent"] != before["parent"]
    assert not psutil.pid_exists(before["parent"])


def test_a_run_outlives_a_reload_and_its_parent(location: Location) -> None:
    run_id = location.launch("endless")
    told = location.told(run_id)
    location.reload()
    location.run()
    assert not psutil.pid_exists(told["parent"])
    assert psutil.pid_exists(told["pid"])
    assert location.instance.run_launcher.terminate(run_id)
    assert location.end(run_id) is CANCELED


def test_a_parent_that_was_killed_is_followed_by_another(location: Location) -> None:
    before = location.run()
    os.kill(before["parent"], signal.SIGKILL)
    after = location.run()
    assert after["parent"] == after["loaded by"] != before["parent"]


def test_a_hanging_parent_is_replaced_and_its_runs_start_once(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parents, "FORK_SECONDS", 2)
    before = location.run()
    os.kill(before["parent"], signal.SIGSTOP)
    run_id = location.launch()
    assert location.end(run_id) is SUCCESS
    assert sum("Started process for run" in each for each in location.said(run_id)) == 1
    assert not psutil.pid_exists(before["parent"])
    assert location.told(run_id)["parent"] == location.told(run_id)["loaded by"]


def test_after_the_code_server_s_end_its_successor_s_environment_counts(location: Location) -> None:
    location.run()
    stop(location.server)
    location.server = begin(location.folder, location.port, {**location.env, "MARKER": "another"})
    wait_until(location.is_reached, "the workspace to see it", pause=0.5)
    assert location.run()["marker"] == "another"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            "import threading\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
            "loading the code location starts threads",
        ),
        ("if 'launcher' in ' '.join(sys.orig_argv):\n    raise ValueError('not here')", "ValueError: not here"),
    ],
)
def test_a_run_that_cannot_be_forked_starts_like_in_dagster_with_the_reason(
    tmp_path: Path, home: Path, more, why
) -> None:
    with served(tmp_path / "project", home, {**os.environ}, more) as location:
        run_ids = location.launch("endless"), location.launch("endless")
        pids = [location.told(run_id)["pid"] for run_id in run_ids]
        for run_id in run_ids:
            assert any("is not warm" in each and why in each for each in location.said(run_id))
            assert not is_warm(location, run_id)
            assert health(location, run_id) == "RUNNING"
        assert location.instance.run_launcher.terminate(run_ids[0])
        assert location.end(run_ids[0]) is CANCELED
        os.kill(pids[1], signal.SIGKILL)
        wait_until(lambda: health(location, run_ids[1]) == "FAILED", "the end to be seen")


IS_KILLED_ONCE = """
import os, signal, sys
from pathlib import Path
if "launcher" in " ".join(sys.orig_argv):
    try:
        Path(os.environ["TOLD"], "was killed").touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
"""


@pytest.mark.parametrize("customized", ["", IS_KILLED_ONCE], ids=["loading the location", "before it knows of one"])
def test_a_parent_that_was_killed_while_it_started_is_followed_by_another(tmp_path: Path, home: Path, customized: str):
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(customized)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "first")}
    with served(tmp_path / "project", home, env, "" if customized else IS_KILLED_ONCE) as location:
        run_id = location.launch()
        assert location.end(run_id) is SUCCESS
        assert is_warm(location, run_id), location.said(run_id)
        assert (location.folder / "told" / "was killed").exists()


STANDS_IN = """
import os, sys
if "launcher" in " ".join(sys.orig_argv):
    open(os.path.join(os.environ["TOLD"], "stood in"), "w").close()
"""
LATER = """
@dg.op
def later(context, before):
    from a_neighbour import NAME

@dg.job(executor_def=dg.in_process_executor)
def quick():
    later(tell())

defs = dg.Definitions(jobs=[quick])
"""


@pytest.mark.parametrize("path", [None, "library"])
def test_a_file_of_the_project_stands_in_for_no_library_and_is_found_by_the_project(
    tmp_path: Path, home: Path, path: str | None
) -> None:
    project, library = tmp_path / "project", tmp_path / "library"
    for each, text in {"project/psutil": STANDS_IN, "project/a_neighbour": "NAME = 1", "library/a_tool": ""}.items():
        (tmp_path / each).parent.mkdir(exist_ok=True)
        (tmp_path / f"{each}.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": str(library)} if path else {**os.environ}
    with served(project, home, env, "import a_tool" if path else "", LATER) as location:
        run_id = location.launch()
        assert location.end(run_id) is SUCCESS, location.said(run_id)
        assert is_warm(location, run_id), location.said(run_id)
        assert not (project / "told" / "stood in").exists()


TWO = """
@dg.repository
def first():
    return [quick]

@dg.repository
def second():
    return [quick]
"""


def test_each_repository_of_a_location_keeps_a_parent(tmp_path: Path, home: Path) -> None:
    with served(tmp_path / "project", home, {**os.environ}, defs=TWO) as location:
        first, second = location.run(repository=0), location.run(repository=1)
        assert (location.run(repository=0)["parent"], location.run(repository=1)["parent"]) == (
            first["parent"],
            second["parent"],
        )
        location.reload()
        location.run(repository=0)
        assert not any(psutil.pid_exists(each["parent"]) for each in (first, second))


DEAF = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})"


def test_a_run_that_does_not_hear_is_killed_when_dagster_calls_it_canceled(tmp_path: Path, home: Path) -> None:
    config = prepare(home) / "dagster.yaml"
    config.write_text(config.read_text().replace("cancel_timeout_seconds: 120", "cancel_timeout_seconds: 1"))
    with served(tmp_path / "project", home, {**os.environ}, DEAF) as location:
        run_id = location.launch("endless")
        process = psutil.Process(location.told(run_id)["pid"])
        assert location.instance.run_launcher.terminate(run_id)
        wait_until(lambda: not lives(process), "the end of the process")
        fail_left_runs(location.instance)
        assert location.status(run_id) is CANCELED


LAUNCH = """
import sys, time
from pathlib import Path
from feed_assets_tests.launcher.locations import reached

with reached(Path(sys.argv[1]), int(sys.argv[2])) as location:
    print(location.launch("endless"), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_parent_ends_with_whoever_launched_and_the_run_goes_on(location: Location, number: int) -> None:
    command = [sys.executable, "-c", LAUNCH, str(location.folder), str(location.port)]
    with subprocess.Popen(command, env=location.env, stdout=subprocess.PIPE, text=True) as launching:
        run_id = launching.stdout.readline().strip()
        told = location.told(run_id)
        parent, run = psutil.Process(told["parent"]), psutil.Process(told["pid"])
        launching.send_signal(number)
    wait_until(lambda: not lives(parent), "the end of the parent")
    assert lives(run)
    assert location.instance.run_launcher.terminate(run_id)
    assert location.end(run_id) is CANCELED
    wait_until(lambda: not lives(run), "the end of the run's process")
