"""First starts in a home take turns: two at once would leave two schema versions in Dagster's SQLite."""

import os
import sqlite3
import sys
from contextlib import ExitStack, closing
from multiprocessing import get_context
from pathlib import Path

import dagster as dg
import pytest
from alembic.script import ScriptDirectory
from filelock import FileLock

from feed_assets.cli.loaded_location import open_instance, prepare
from feed_assets.cli.processes import free_port, group
from feed_assets.core.errors import HomeBusy
from feed_assets_tests.support.feed_processes import start
from feed_assets_tests.support.servers import wait_until

DATABASES = {"history/runs.db", "history/runs/index.db", "schedules/schedules.db"}


def open_at_once(home: str, count: int) -> None:
    """Open the instance of a home in several processes at the same moment, after each has loaded Dagster."""
    import dagster  # noqa: F401

    os.environ["DAGSTER_HOME"] = home
    forks = get_context("fork")
    barrier = forks.Barrier(count)
    starts = [forks.Process(target=open_after, args=(barrier,)) for _ in range(count)]
    for each in starts:
        each.start()
    for each in starts:
        each.join()
    assert [each.exitcode for each in starts] == [0] * count


def open_after(barrier) -> None:
    barrier.wait(60)
    with open_instance():
        pass


def versions(home: Path) -> dict[str, int]:
    found = {}
    for path in home.rglob("*.db"):
        with closing(sqlite3.connect(path)) as database:
            found[str(path.relative_to(home))] = database.execute("SELECT count(*) FROM alembic_version").fetchone()[0]
    return found


def test_several_first_starts_at_once_leave_one_version_of_each_table(tmp_path):
    starter = start(open_at_once, str(tmp_path), 4)
    starter.join()
    assert starter.exitcode == 0
    assert versions(tmp_path) == dict.fromkeys(DATABASES, 1)


def test_of_two_simultaneous_first_ui_starts_one_works_and_the_other_says_why_not(tmp_path, monkeypatch):
    """Run without Spark, which takes half a minute and is not needed here."""
    for name in [name for name in os.environ if name.startswith("FEED_ASSETS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DAGSTER_HOME", str(home := tmp_path / "home"))
    monkeypatch.setenv("FEED_ASSETS_SPARK_REMOTE", "sc://127.0.0.1:1")
    program = str(Path(sys.executable).with_name("feed-assets"))
    with ExitStack() as stack:
        logs = [tmp_path / f"{number}.log" for number in range(2)]
        commands = [[program, "ui", "--port", str(free_port()), "-m", "feed_assets.definitions"] for _ in logs]
        both = [stack.enter_context(group("ui", each, log)) for each, log in zip(commands, logs, strict=True)]
        wait_until(lambda: [each.process.poll() for each in both].count(1) == 1, "the refusal", 240)
        second = next(number for number, each in enumerate(both) if each.process.poll() == 1)
        first = logs[1 - second]
        wait_until(lambda: both[1 - second].check() or "?token=" in first.read_text(), "the web UI", 240)
    assert logs[second].read_text().splitlines()[-1] == (
        f"feed-assets: another `feed-assets ui` works in {home}: two UIs would start runs twice. End it, or set "
        "DAGSTER_HOME."
    )
    found = versions(home)
    assert (found.keys() >= {*DATABASES, "ledger.db"}, {*found.values()}) == (True, {1}), found


def test_a_first_start_killed_before_writing_its_version_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    prepare(tmp_path)
    for name in DATABASES:
        with closing(sqlite3.connect(tmp_path / name)) as database, database:
            database.execute("DELETE FROM alembic_version")
    with open_instance() as instance:
        assert instance.get_runs_count() == 0
        assert instance.all_asset_keys() == []
    assert versions(tmp_path) == dict.fromkeys(DATABASES, 1)
    monkeypatch.delattr(ScriptDirectory, "from_config")  # of 90 migrations, which take a tenth of a second
    with open_instance() as instance:
        assert instance.get_runs_count() == 0


def test_a_hanging_first_start_is_reported_after_a_limited_wait(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(HomeBusy, match=r"another process has been starting here"),
    ):
        prepare(tmp_path, patience=0)
    prepare(tmp_path)


def test_an_existing_dagster_yaml_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    (tmp_path / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    prepare(tmp_path)
    assert (tmp_path / "dagster.yaml").read_text() == "telemetry:\n  enabled: false\n"


def test_dagsters_newsletter_form_is_disabled(tmp_path):
    with dg.DagsterInstance.from_config(str(prepare(tmp_path))) as instance:
        assert not instance.nux_enabled
