"""Dagster's SQLite storage with kept connections: same files and results as Dagster's own storage."""

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import dagster as dg
import pytest
import sqlalchemy as sa
from dagster._core.storage.dagster_run import DagsterRunStatus
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage

from feed_assets.cli.loaded_location import prepare
from feed_assets.orchestration import storage
from feed_assets_tests.orchestration.engine_events import write_events

STOCK = "telemetry: {enabled: false}\n"
WRITER = """
import sys
import dagster as dg
from feed_assets_tests.orchestration.engine_events import write_events
with dg.DagsterInstance.get() as instance:
    print(flush=True)
    sys.stdin.readline()
    write_events(instance, sys.argv[1], sys.argv[2], 20)
"""
FORK = """
import os, sys
import dagster as dg
from feed_assets_tests.orchestration.engine_events import write_events
with dg.DagsterInstance.get() as instance:
    write_events(instance, sys.argv[1], "before", 5)
    if child := os.fork():
        write_events(instance, sys.argv[1], "parent", 20)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    write_events(instance, sys.argv[1], "child", 20)
    instance.dispose()
    os._exit(0)
"""


@dg.job
def nothing() -> None:
    """Run without steps."""


@dg.asset
def made() -> int:
    """Return a number."""
    return 1


@contextmanager
def opened(folder: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.get() as instance:
        assert isinstance(instance.event_log_storage, storage.KeptEventLogStorage)
        assert instance.root_directory == str(folder)
        yield instance


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """Return an instance on a new home, with our `dagster.yaml`."""
    with opened(prepare(home)) as instance:
        yield instance


def messages(instance: dg.DagsterInstance, run_id: str) -> list[str]:
    return [each.user_message or each.message for each in instance.all_logs(run_id)]


def partitions(instance: dg.DagsterInstance, asset: str) -> set[str]:
    return instance.get_materialized_partitions(dg.AssetKey(asset))


@contextmanager
def connections() -> Iterator[list[object]]:
    """Record the connections that this process opens to any database."""
    found: list[object] = []

    def note(connection: object, _record: object) -> None:
        found.append(connection)

    sa.event.listen(sa.Pool, "connect", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Pool, "connect", note)


def test_a_run_opens_only_its_own_file_and_once(instance):
    dg.materialize([made], instance=instance)
    with connections() as found:
        dg.materialize([made], instance=instance)
    assert len(found) == 1, (
        f"a run opens {len(found)} files: this Dagster goes past what feed_assets/orchestration/storage.py overrides. "
        "Compare its SQLite storages with that module, or take `storage:` out of feed_assets/cli/dagster.yaml."
    )


@pytest.mark.parametrize(
    ("theirs", "names"),
    [
        (SqliteEventLogStorage, {"_connect", "_initdb", "path_for_shard", "has_table", "wipe", "dispose"}),
        (SqliteRunStorage, {"connect", "dispose", "from_local"}),
        (SqliteScheduleStorage, {"connect", "dispose", "from_local"}),
        (DagsterSqliteStorage, {"from_config_value", "from_local", "dispose"}),
    ],
)
def test_dagsters_storages_have_the_methods_that_ours_override(theirs, names):
    assert names <= {*dir(theirs)}, f"{theirs.__name__} has moved: see feed_assets/orchestration/storage.py."


def test_storage_connections_are_synchronous_and_use_wal(instance):
    run_id = nothing.execute_in_process(instance=instance).run_id
    logs, runs, ticks = instance.event_log_storage, instance.run_storage, instance.schedule_storage
    for connect in (lambda: logs.run_connection(run_id), logs.index_connection, runs.connect, ticks.connect):
        with connect() as connection:
            asked = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "journal_mode")]
        assert asked == [2, "wal"]


def test_processes_with_ours_and_dagsters_storage_write_one_run_at_once(instance, home, tmp_path):
    run_id = nothing.execute_in_process(instance=instance).run_id
    stock = tmp_path / "stock"
    stock.mkdir()
    (stock / "dagster.yaml").write_text(f"{STOCK}storage:\n  sqlite: {{base_dir: {home}}}\n")
    with ThreadPoolExecutor() as threads:
        writers = [_writer(run_id, name, folder) for name, folder in (("a", home), ("b", home), ("c", stock))]
        for each in writers:
            each.stdout.readline()
        done = list(threads.map(lambda each: each.communicate("go\n", timeout=120), writers))
    assert [each.returncode for each in writers] == [0, 0, 0], done
    said = messages(instance, run_id)
    for name in "abc":
        assert [each for each in said if each.startswith(f"{name} ")] == [f"{name} {number}" for number in range(20)]
        assert len(partitions(instance, name)) == 20


def _writer(run_id: str, name: str, folder: Path) -> subprocess.Popen[str]:
    command, env = [sys.executable, "-c", WRITER, run_id, name], {**os.environ, "DAGSTER_HOME": str(folder)}
    return subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_fork_opens_new_connections_and_leaves_inherited_ones_open(tmp_path, monkeypatch):
    files, path = storage.KeptFiles(), str(tmp_path / "a.db")
    (tmp_path / "a.db").touch()
    with files.connect(path):
        inherited = files.engine(path)
    monkeypatch.setattr(storage.os, "getpid", lambda: -1)
    assert not files.has(path)
    assert files.engine(path) is not inherited
    assert files.has(path)
    assert inherited.pool.checkedin() == 1, "it was closed"
    files.close()


def test_parent_and_child_of_a_fork_both_write_all_events(instance):
    run_id = nothing.execute_in_process(instance=instance).run_id
    done = subprocess.run([sys.executable, "-c", FORK, run_id], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = {each for each in messages(instance, run_id) if each.split()[0] in ("before", "parent", "child")}
    assert len(said) == 45
    assert [len(partitions(instance, name)) for name in ("before", "parent", "child")] == [5, 20, 20]


def test_threads_write_to_the_storage_at_once(instance):
    run_ids = [nothing.execute_in_process(instance=instance).run_id for _ in range(4)]
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda each: write_events(instance, each[1], f"thread {each[0]}", 10), enumerate(run_ids)))
    for number, run_id in enumerate(run_ids):
        assert len([each for each in messages(instance, run_id) if each.startswith(f"thread {number}")]) == 10


def test_a_watcher_of_a_run_receives_each_event_while_it_runs(instance, home):
    run = instance.create_run_for_job(nothing)
    heard = Queue[str]()
    with opened(home) as other:
        other.watch_event_logs(run.run_id, None, lambda event, _: heard.put(event.user_message or event.message))
        for number in range(3):
            instance.report_engine_event(f"event {number}", run)
            assert f"event {number}" in heard.get(timeout=30)


def test_a_home_can_switch_from_dagsters_storage_to_ours_and_back(home):
    (home / "dagster.yaml").write_text(STOCK)
    with dg.DagsterInstance.get() as instance:
        first = dg.materialize([made], instance=instance).run_id
    (home / "dagster.yaml").unlink()
    with opened(prepare(home)) as instance:
        assert instance.get_run_by_id(first).status == DagsterRunStatus.SUCCESS
        second = dg.materialize([made], instance=instance).run_id
        told = messages(instance, first), messages(instance, second)
    (home / "dagster.yaml").write_text(STOCK)
    with dg.DagsterInstance.get() as instance:
        assert (messages(instance, first), messages(instance, second)) == told
        assert len(instance.fetch_materializations(made.key, limit=9).records) == 2


def test_a_deleted_run_is_gone_for_every_instance(instance, home):
    run_id = dg.materialize([made], instance=instance).run_id
    with opened(home) as other:
        assert messages(other, run_id)
        instance.delete_run(run_id)
        assert other.get_run_by_id(run_id) is None
        assert messages(other, run_id) == []


def test_storage_files_that_were_removed_are_created_again(instance, home):
    run_id = dg.materialize([made], instance=instance).run_id
    with opened(home) as other:
        other.wipe()
    assert messages(instance, run_id) == []
    run = instance.create_run_for_job(nothing, run_id=run_id)
    instance.report_engine_event("again", run)
    with opened(home) as other:
        assert messages(other, run_id)[-1] == "again"


def test_a_disposed_instance_can_be_used_again(instance):
    run_id = nothing.execute_in_process(instance=instance).run_id
    before = messages(instance, run_id)
    instance.dispose()
    assert messages(instance, run_id) == before
    instance.dispose()


@pytest.fixture
def no_collector():
    """Switch off Python's collector, which closes forgotten files at some moment."""
    gc.disable()
    yield
    gc.enable()


def test_a_disposed_instance_has_no_file_open(home, no_collector):
    with opened(prepare(home)) as instance:
        nothing.execute_in_process(instance=instance)
        assert instance.all_instigator_state() == []
        assert {each.parent.name for each in open_files() if home in each.parents} >= {"runs", "schedules"}
    assert [each for each in open_files() if home in each.parents] == []


def open_files() -> list[Path]:
    return [each.resolve() for each in Path("/proc/self/fd").iterdir() if each.exists()]


def test_an_upgrade_keeps_the_storages_events(instance, capsys):
    run_id = nothing.execute_in_process(instance=instance).run_id
    before = messages(instance, run_id)
    instance.upgrade()
    assert messages(instance, run_id) == before
    assert instance.event_log_storage.alembic_version()[0] == instance.event_log_storage.alembic_version()[1]


@pytest.mark.parametrize("left", [b"", None])
def test_a_half_made_storage_file_is_completed(instance, left):
    run = instance.create_run_for_job(nothing)
    path = Path(instance.event_log_storage.path_for_shard(run.run_id))
    instance.event_log_storage.dispose()
    path.unlink(missing_ok=True)
    if left is None:  # Dagster leaves it so between the tables and their version.
        engine = sa.create_engine(f"sqlite:///{path}")
        instance.event_log_storage._initdb(engine)
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM alembic_version")
        engine.dispose()
    else:
        path.write_bytes(left)
    instance.report_engine_event("after", run)
    assert messages(instance, run.run_id)[-1] == "after"


def test_a_storage_file_made_by_another_process_meanwhile_is_kept(instance, home):
    run = instance.create_run_for_job(nothing)
    mine: Any = instance.event_log_storage
    mine.dispose()
    with opened(home) as other:
        other.report_engine_event("first", run)
    mine._copy(mine.path_for_shard(run.run_id))  # It was not there when this process looked.
    assert messages(instance, run.run_id)[-1] == "first"


def test_at_most_most_files_storage_files_are_open(instance):
    run_ids = [instance.create_run_for_job(nothing).run_id for _ in range(2 * storage.MOST_FILES)]
    for run_id in run_ids:
        instance.report_engine_event("here", instance.get_run_by_id(run_id))
    logs = Path(instance.event_log_storage.path_for_shard("x")).parent
    assert len([each for each in {*open_files()} if each.parent == logs and each.suffix == ".db"]) == storage.MOST_FILES
    assert all(messages(instance, run_id)[-1] == "here" for run_id in run_ids)


def test_log_messages_of_a_step_are_stored(instance):
    @dg.op
    def speaks(context: dg.OpExecutionContext) -> None:
        context.log.info("a word")

    @dg.job
    def spoken() -> None:
        speaks()

    run_id = spoken.execute_in_process(instance=instance).run_id
    assert [each.level for each in instance.all_logs(run_id) if each.user_message == "a word"] == [logging.INFO]
