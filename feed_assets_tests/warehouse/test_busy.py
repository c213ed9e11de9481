"""A DuckDB file that another process has open: loader and sensors of `ui` take turns."""

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from unittest.mock import Mock

import pytest

from feed_assets.core.errors import InvalidSetting, LoadFailed, WarehouseBusy
from feed_assets.core.feeds import Feed
from feed_assets.warehouse import duck, load_state, loader
from feed_assets.warehouse.dataset import DatasetTable
from feed_assets_tests.support.duckdb_holder import held_open, release
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import Dataset, table, target_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "main.db"


@pytest.fixture
def target(path):
    return target_of(f"duckdb://{path}")


@pytest.fixture
def dataset(local_board, ledger):
    made = Dataset(local_board, ledger, Feed.parse("ads/ctr/v1.0"), datetime(2026, 1, 1, tzinfo=UTC))
    made.publish("2026-01-01", {"n": 1})
    return made


def test_a_file_that_is_open_elsewhere_for_a_moment_is_waited_for(target, path):
    with held_open(path) as process:
        Timer(0.2, release, [process]).start()
        with opened(target.engine) as connection:
            assert connection.execute("SELECT 1") == [(1,)]


def test_a_single_load_waits_for_an_open_file_and_says_so(target, dataset, path, monkeypatch, capsys):
    monkeypatch.setattr(duck, "BUSY_SECONDS", 0.0)
    with held_open(path) as process:
        pauses: list[float] = []

        def wait(seconds):
            pauses.append(seconds)
            if len(pauses) == 2:
                release(process)

        assert loader.once(target, {dataset.name: dataset.published}, wait=wait) == 1
    assert pauses == [1, 2]
    assert table(target.engine, dataset, "n") == [(1,)]
    assert "warehouse main: waits 2 s, then tries again: DuckDB cannot do it now" in capsys.readouterr().err


@each_case("error", [KeyError("precision"), RuntimeError("std::bad_cast"), MemoryError(), ValueError("\ud800 \0")])
def test_an_unexpected_error_stops_its_table_alone(target, dataset, local_board, ledger, monkeypatch, error):
    broken = Dataset(local_board, ledger, Feed.parse("ads/broken/v1.0"))
    load_all = DatasetTable.load_all

    def failing(self):
        if self.name == broken.name:
            raise error
        load_all(self)

    monkeypatch.setattr(DatasetTable, "load_all", failing)
    monkeypatch.setattr(loader, "_logger", Mock())  # pytest's workers cannot send a lone surrogate in a log line.
    dataset.publish("2026-01-01", {"n": len(str(error))})
    with pytest.raises(LoadFailed, match=f"ads/broken/v1.0 cannot be loaded: {type(error).__name__}: "):
        loader.once(target, {each.name: each.published for each in (broken, dataset)})
    assert table(target.engine, dataset, "n") == [(len(str(error)),)]
    with opened(target.engine) as connection:
        problems = {each.topic: each.problem for each in load_state.tables(connection)}
    assert (problems[dataset.name], type(error).__name__ in problems[broken.name]) == (None, True)


def test_one_load_gives_up_on_a_file_that_stays_open(target, dataset, path, monkeypatch):
    monkeypatch.setattr(duck, "BUSY_SECONDS", 0.0)
    now = iter([0.0, 1.0, 600.0])
    with held_open(path), pytest.raises(WarehouseBusy, match="Find the other process that has the file open"):
        loader.once(target, {dataset.name: dataset.published}, clock=lambda: next(now), wait=lambda _: None)


@pytest.mark.parametrize("is_there", [False, True])
def test_the_spill_folder_of_a_load_is_private(target, path, is_there):
    spill, before = path.with_name("main.db.tmp"), os.umask(0)
    try:
        if is_there:
            spill.mkdir(0o777)
        with opened(target.engine) as connection:
            for statement in ("SET memory_limit = '20MB'", "SET threads = 1"):
                connection.execute(statement)
            connection.execute("CREATE TABLE spilled AS SELECT hash(i) AS h FROM range(4000000) t(i) ORDER BY h")
            assert connection.execute("SELECT current_setting('temp_directory')") == [(str(spill),)]
            assert stat.S_IMODE(spill.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_a_spill_folder_of_another_user_is_refused_and_unchanged(target, path, monkeypatch):
    spill = path.with_name("main.db.tmp")
    spill.mkdir(0o755)
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: spill.stat().st_uid + 1)
        with pytest.raises(InvalidSetting, match=r"is a folder, of the user \d+: expected"):
            target.engine.open().__enter__()
    assert stat.S_IMODE(spill.stat().st_mode) == 0o755
    spill.rename(elsewhere := path.with_name("elsewhere"))
    for pointed_at in (elsewhere, path.with_name("nowhere")):
        spill.symlink_to(pointed_at)
        with pytest.raises(InvalidSetting, match=r"main.db.tmp is a link, .* expected a folder of this user"):
            target.engine.open().__enter__()
        spill.unlink()
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    with opened(target.engine) as connection:
        assert connection.execute("SELECT 1") == [(1,)]


def test_the_spill_folder_of_an_in_memory_database_is_private():
    with duck.opened_at(":memory:") as opened:
        ((folder,),) = opened.execute("SELECT current_setting('temp_directory')").fetchall()
    assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
