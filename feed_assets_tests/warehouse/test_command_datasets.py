"""`feed-assets warehouse` with datasets: their plans and states."""

import json
import re
import sys
from subprocess import PIPE, Popen, run
from time import monotonic

import pytest

from feed_assets.core.feeds import Feed
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets_tests.support.duckdb_holder import held_open, release
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_datasets import Dataset, load, table, target_of
from feed_assets_tests.warehouse.warehouse_command import run_warehouse

LOCATION = """
import dagster as dg
from feed_assets import feed_asset, foreign_feed, warehouse_table

KEYS = dg.StaticPartitionsDefinition(["1", "2"])
raw = foreign_feed("t/raw/v1.0", partitions_def=KEYS, schema="id bigint")

@feed_asset("t/one/v1.0", partitions_def=KEYS, inputs={"raw": raw})
def one(raw):
    return raw

@feed_asset("t/two/v1.0", partitions_def=KEYS, inputs={"raw": raw})
def two(raw):
    return raw

tables = [warehouse_table(f"main/{name}", dataset=each, warehouse="main") for name, each in (("a", one), ("b", two))]
defs = dg.Definitions(assets=[raw, one, two, *tables])
"""


@pytest.fixture
def duckdb_url(tmp_path) -> str:
    return f"duckdb://{tmp_path}/main.db"


@pytest.fixture
def pair(home, duckdb_url, tmp_path, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_WAREHOUSES", json.dumps({"main": {"url": duckdb_url}}))
    settings.cache_clear()
    (tmp_path / "location_of_datasets.py").write_text(LOCATION)
    monkeypatch.syspath_prepend(str(tmp_path))
    board, ledger = Blackboard.open(settings().blackboard), open_ledger(settings().ledger)
    yield [Dataset(board, ledger, Feed.parse(f"t/{name}/v1.0")) for name in ("one", "two")]
    ledger.engine.dispose()


@pytest.fixture
def ask(monkeypatch, capsys):
    return lambda *given, code=0: run_warehouse(monkeypatch, capsys, *given, code=code)


def test_each_table_has_its_plan_and_then_the_errors_come(pair, ask, monkeypatch):
    one, two = pair
    where = ("-m", "location_of_datasets")
    one.publish("1", {"id": 1})
    two.publish("1", {"id": 1, "text": "a"})
    planned = ask("plan", "main", *where)
    assert planned.count("CREATE TABLE") == 2
    one.publish("2", {"id": 0.5})
    lost = two.publish("2", {"id": 2})
    two.board.delete([f"{two.feed}/2/{lost}/_SUCCESS"])
    planned = ask("plan", "main", *where, code=1)
    assert planned.rindex("CREATE TABLE") < planned.index("would lose data")
    for each in (
        'CREATE TABLE "t/one/v1.0"',
        'CREATE TABLE "t/two/v1.0"',
        "would lose data",
        f"no valid update {lost}",
    ):
        assert each in planned


def test_tables_of_datasets_are_planned_and_loaded_without_the_packages_of_kafka(pair, duckdb_url, tmp_path):
    one, _ = pair
    one.publish("1", {"id": 1})
    code = (
        "import sys; sys.modules.update(confluent_kafka=None, fastavro=None); from feed_assets.cli import main; main()"
    )
    load_all = ("warehouse", "load", "main", "--once", "-m", "location_of_datasets")
    ran = run([sys.executable, "-c", code, *load_all], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, "warehouse main: 1 load" in ran.stderr) == (0, True), ran.stderr
    assert table(target_of(duckdb_url).engine, one, "id") == [(1,)]


def test_a_single_load_waits_half_a_minute_for_a_file_open_elsewhere(pair, duckdb_url, tmp_path):
    one, _ = pair
    one.publish("1", {"id": 1})
    code = "from feed_assets.cli import main; main()"
    command = [sys.executable, "-c", code, "warehouse", "load", "main", "--once", "-m", "location_of_datasets"]
    with held_open(tmp_path / "main.db") as other, Popen(command, cwd=tmp_path, stderr=PIPE, text=True) as loads:
        began, waits = monotonic(), list[str]()
        for line in loads.stderr:
            waits += re.findall(
                r"waits (\d+) s, then tries again: .*Find the other process that has the file open", line
            )
            if waits == ["1", "2", "4", "8"] and other.poll() is None:
                assert monotonic() - began > 20
                release(other)
    assert (loads.returncode, waits) == (0, ["1", "2", "4", "8"])
    assert table(target_of(duckdb_url).engine, one, "id") == [(1,)]


def test_the_state_is_that_of_partitions(pair, ask, duckdb_url):
    one, _ = pair
    update = one.publish("1", {"id": 1}, {"id": 2})
    target = target_of(duckdb_url)
    load(target, one)
    (row,) = json.loads(ask("state", "main", "--json"))
    named = ("table", "partition", "update_id", "records", "next_offset", "problem")
    assert tuple(row[name] for name in named) == (one.name, "1", update, 2, None, None)
    assert row["schema_id"] == int(update.replace(".", ""))
    with opened(target.engine) as connection:
        connection.execute("DELETE FROM feed_assets.tables")
    (row,) = json.loads(ask("state", "main", "--json"))
    assert (row["partition"], row["update_id"], row["schema_id"]) == ("1", update, None)
    assert "its row in feed_assets.tables is gone" in row["problem"]
