"""`feed-assets warehouse`: settings, topics of a code location, and output."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feed_assets.core.errors import InvalidSetting
from feed_assets.core.topics import history_of, versions_of
from feed_assets.core.warehouses import Warehouse
from feed_assets.settings import Settings, settings
from feed_assets.warehouse import load_state
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.kafka_topics import QUICK, World
from feed_assets_tests.support.servers import ROOT
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.warehouse.loader_thread import value_of_other_type
from feed_assets_tests.warehouse.standin import ROLE
from feed_assets_tests.warehouse.warehouse_command import run_warehouse

LOCATION = """
import dagster as dg
from feed_assets import kafka_topic, warehouse_table
clicks = kafka_topic("ads/clicks", topic={topic!r}, key=["id"], **{limits!r})
views = kafka_topic("ads/views", topic="views", key=["id"])
tables = [warehouse_table("main/clicks", topic=clicks, warehouse="main")]
defs = dg.Definitions(assets=[clicks, views, *tables])
"""
WITH_HISTORY = """
tables.append(warehouse_table("main/all", topic=clicks, warehouse="main", history=True))
defs = dg.Definitions(assets=[clicks, views, *tables])
"""

WITH_UNION = """
tables.append(warehouse_table("main/both", topics=[clicks, views], union="both", warehouse="main"))
defs = dg.Definitions(assets=[clicks, views, *tables])
"""


@pytest.fixture
def world(broker, registry, local_board, home, tmp_path, monkeypatch):
    with World.of(broker, registry, local_board.url) as made:
        made.create()
        given = {
            "BLACKBOARD": made.board.url,
            "KAFKA": json.dumps({"bootstrap.servers": made.place.servers, **QUICK}),
            "KAFKA_REGISTRY": made.place.registry,
            "WAREHOUSES": json.dumps({"main": {"url": f"duckdb://{tmp_path}/main.db", "seconds": 1}}),
        }
        for name, value in given.items():
            monkeypatch.setenv(f"FEED_ASSETS_{name}", value)
        limits = made.settings.model_dump(exclude={"key", "columns"})
        (tmp_path / f"{module(made)}.py").write_text(LOCATION.format(topic=made.name, limits=limits))
        monkeypatch.syspath_prepend(str(tmp_path))
        yield made


def module(world: World) -> str:
    return f"location_{world.name.replace('.', '_')}"


def test_plan_load_and_state(world, monkeypatch, capsys, tmp_path):
    def say(*arguments):
        return run_warehouse(monkeypatch, capsys, *arguments)

    assert "nothing was loaded into main yet" in say("state", "main")
    world.produce(3)
    world.run_until_done()
    planned = say("plan", "main", "-m", module(world))
    assert f'CREATE TABLE "{world.name}" ("id" text NOT NULL' in planned
    assert not (tmp_path / "main.db").exists()
    assert "warehouse main: 1 load\n" in say("load", "main", "--once", "-m", module(world))
    assert json.loads(say("plan", "main", "--json", "-m", module(world))) == []
    (row,) = json.loads(say("state", "main", "--json"))
    assert (row["table"], row["partition"], row["next_offset"], row["refused"], row["problem"]) == (
        world.name, 0, 3, 0, None,
    )  # fmt: skip
    assert world.name in say("state", "main")
    world.producer.produce(world.name, value_of_other_type(world), world.key(1), 0, headers=[("op", b"update")])
    assert world.producer.flush(30) == 0
    world.run_until_done()
    refused = run_warehouse(monkeypatch, capsys, "plan", "main", "-m", module(world), code=1)
    assert "no table changes\n" in refused
    assert f"{world.name} cannot be migrated: n was bigint and is boolean, which would lose data" in refused
    told = run_warehouse(monkeypatch, capsys, "plan", "main", "--json", "-m", module(world), code=1)
    assert "n was bigint and is boolean" in json.JSONDecoder().raw_decode(told)[0][0]["problem"]


def test_a_union_is_planned_loaded_refuses_rows_and_reads_one_topic_again(world, monkeypatch, capsys, tmp_path):
    def say(*arguments):
        return run_warehouse(monkeypatch, capsys, *arguments)

    with (tmp_path / f"{module(world)}.py").open("a") as location:
        location.write(WITH_UNION)
    world.produce(3)
    world.producer.produce(world.name, value_of_other_type(world), world.key(1), 0, headers=[("op", b"update")])
    world.producer.flush(30)
    world.run_until_done()
    arguments = "main", "both", "-m", module(world)
    assert 'CREATE TABLE "both" ("_topic" text' in run_warehouse(monkeypatch, capsys, "plan", *arguments, code=1)
    assert "there is no topic views" in say("load", *arguments, "--once", "--refuse")
    place = f"{world.name}-0"
    assert [each["partition"] for each in json.loads(say("state", "main", "--json"))] == [place]
    (refused,) = json.loads(say("refused", "main", "both", "--json"))
    assert (refused["partition"], refused["offset"]) == (place, 3)
    assert "leave out --from" in run_warehouse(
        monkeypatch, capsys, "reset", "main", "both", "--topic", world.name, "--from", "stop", code=1
    )
    assert f"next load makes {world.name} anew" in say("reset", "main", "both", "--topic", world.name, "--apply")
    assert json.loads(say("refused", "main", "--json")) == []
    assert "warehouse main: 1 load\n" in say("load", *arguments, "--once", "--refuse")
    assert [each["next_offset"] for each in json.loads(say("state", "main", "--json"))] == [4]


def test_a_plan_prints_its_statements_before_an_error(world, monkeypatch, capsys):
    """Load nothing first: the first schema makes the table, and the second is refused."""
    world.produce(3)
    world.run_until_done()
    world.producer.produce(world.name, value_of_other_type(world), world.key(1), 0, headers=[("op", b"update")])
    assert world.producer.flush(30) == 0
    world.run_until_done()
    planned = run_warehouse(monkeypatch, capsys, "plan", "main", "-m", module(world), code=1)
    assert f'CREATE TABLE "{world.name}"' in planned
    assert "n was bigint and is boolean, which would lose data" in planned


def test_loading_a_topic_without_signals_says_so(world, monkeypatch, capsys):
    expected = f"nothing of {world.name} can be loaded yet: {world.name} has no signals yet. Check that"
    for command in (["load", "main", "--once"], ["plan", "main"]):
        told = run_warehouse(monkeypatch, capsys, *command, "-m", module(world))
        assert told.count(expected) == 1
    world.delete(world.name)
    told = run_warehouse(monkeypatch, capsys, "load", "main", "--once", "-m", module(world))
    assert f"there is no topic {world.name}: expected it at the broker" in told


def test_a_broker_that_is_away_is_said_rarely_and_a_loader_ends_at_once(world, tmp_path):
    servers = json.dumps({"bootstrap.servers": "127.0.0.1:1", **QUICK})
    command = [Path(sys.executable).with_name("feed-assets"), "warehouse", "load", "main", "-m", module(world)]
    given = {**os.environ, "FEED_ASSETS_KAFKA": servers, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        lines = [process.stderr.readline() for _ in range(2)]
        time.sleep(7)
        process.send_signal(signal.SIGTERM)
        lines += process.communicate(timeout=60)[1].splitlines()
    assert f"warehouse main: loads 1 table: {world.name}\n" in lines[0]
    assert len(lines) < 10, lines


def test_a_reset_table_restarts_where_a_schema_stopped_it(world, monkeypatch, capsys):
    """Restart behind the old chunks: from the beginning, the table would stop at the same offset."""

    def say(*arguments, code=0):
        return run_warehouse(monkeypatch, capsys, *arguments, code=code)

    def load(code=0):
        return say("load", "main", "--once", "-m", module(world), code=code)

    world.produce(3)
    world.run_until_done()
    load()
    world.producer.produce(world.name, value_of_other_type(world), world.key(1), 0, headers=[("op", b"update")])
    assert world.producer.flush(30) == 0
    world.run_until_done()
    command = f"feed-assets warehouse reset main {world.name} --from stop --apply"
    assert command in " ".join(load(code=1).split())
    printed = say("reset", "main", world.name, "--from", "stop")
    assert f'DROP TABLE IF EXISTS "{world.name}";' in printed
    assert "add --apply to run these statements" in printed
    planned = json.loads(say("reset", "main", world.name, "--from", "stop", "--json"))
    assert (planned["table"], planned["applied"]) == (world.name, False)
    assert f'DROP TABLE IF EXISTS "{world.name}"' in planned["statements"]
    assert json.loads(say("state", "main", "--json"))[0]["problem"]
    say(*command.split()[2:])
    load()
    (row,) = json.loads(say("state", "main", "--json"))
    assert (row["next_offset"], row["problem"]) == (4, None)
    say("reset", "main", world.name, "--apply")
    assert command in " ".join(load(code=1).split())
    say("reset", "main", world.name, "--from", "3", "--apply")
    load()
    assert json.loads(say("state", "main", "--json"))[0]["problem"] is None


def test_a_stopped_table_continues_by_a_command_and_its_refused_rows_are_shown_and_dropped(world, monkeypatch, capsys):
    def say(*arguments, code=0):
        return " ".join(run_warehouse(monkeypatch, capsys, *arguments, code=code).split())

    world.produce(3)
    world.run_until_done()
    say("load", "main", "--once", "-m", module(world))
    assert say("refused", "main") == "no rows are refused"
    world.producer.produce(world.name, value_of_other_type(world), world.key(1), 0, headers=[("op", b"update")])
    world.producer.flush(30)
    world.run_until_done()
    command = f"warehouse load main {world.name} --once --refuse"
    assert command in say("load", "main", "--once", "-m", module(world), code=1)
    say(*command.split()[1:], "-m", module(world))
    (row,) = json.loads(say("refused", "main", world.name, "--json"))
    assert (row["topic"], row["partition"], row["offset"]) == (world.name, 0, 3)
    assert "n was bigint and is boolean" in row["reason"]
    assert json.loads(row["row"]) == {"id": "k1", "n": "true"}
    (state,) = json.loads(say("state", "main", "--json"))
    assert (state["next_offset"], state["refused"], state["problem"]) == (4, 1, None)
    assert "name it" in say("refused", "main", "--drop", "--apply", code=1)
    assert f"the warehouse has no table 'clicks': expected one of {world.name}" in say(
        "refused", "main", "clicks", code=1
    )
    assert "add --apply to drop the rows" in say("refused", "main", world.name, "--drop")
    assert "1 rows are dropped" in say("refused", "main", world.name, "--drop", "--apply")
    assert say("refused", "main", world.name) == "no rows are refused"


def test_a_history_is_planned_loaded_refused_and_reset_by_its_own_name(world, monkeypatch, capsys, tmp_path):
    def say(*arguments, code=0):
        return " ".join(run_warehouse(monkeypatch, capsys, *arguments, code=code).split())

    def states():
        return [(row["table"], row["next_offset"]) for row in json.loads(say("state", "main", "--json"))]

    with (tmp_path / f"{module(world)}.py").open("a") as file:
        file.write(WITH_HISTORY)
    history = history_of(world.name)
    world.produce(3)
    world.run_until_done()
    planned = say("plan", "main", "-m", module(world))
    assert f'CREATE TABLE "{history}" ("id" text NOT NULL' in planned
    assert f'CREATE VIEW "{versions_of(world.name)}" AS' in planned
    assert "2 loads" in say("load", "main", "--once", "-m", module(world))
    assert states() == [(world.name, 3), (history, 3)]
    world.producer.produce(world.name, value_of_other_type(world), world.key(1), 0, headers=[("op", b"update")])
    world.producer.flush(30)
    world.run_until_done()
    command = f"warehouse load main {history} --once --refuse"
    assert command in say("load", "main", history, "--once", "-m", module(world), code=1)
    say(*command.split()[1:], "-m", module(world))
    assert states() == [(world.name, 3), (history, 4)]
    (row,) = json.loads(say("refused", "main", "--json"))
    assert (row["topic"], row["offset"]) == (history, 3)
    assert f'DROP VIEW IF EXISTS "{versions_of(world.name)}";' in say("reset", "main", history, "--apply")
    assert states() == [(world.name, 3)]
    say("load", "main", history, "--once", "--refuse", "-m", module(world))
    assert states() == [(world.name, 3), (history, 4)]


def test_a_table_is_not_reset_while_a_loader_runs(world, monkeypatch, capsys):
    world.produce(3)
    world.run_until_done()
    run_warehouse(monkeypatch, capsys, "load", "main", "--once", "-m", module(world))
    engine = engine_of(settings().warehouse("main").url.get_secret_value())
    with opened(engine) as connection:
        load_state.take(connection, engine, "somebody", 30)
    told = run_warehouse(monkeypatch, capsys, "reset", "main", world.name, "--apply", code=1)
    assert "somebody loads this warehouse" in " ".join(told.split())
    assert json.loads(run_warehouse(monkeypatch, capsys, "state", "main", "--json"))[0]["next_offset"] == 3
    for arguments, expected in (
        (["other"], f"has no table 'other': expected one of {world.name}"),
        ([world.name, "--from", "x"], "--from 'x': expected stop, or an offset such as 1200"),
    ):
        assert expected in " ".join(run_warehouse(monkeypatch, capsys, "reset", "main", *arguments, code=1).split())


def test_warehouse_commands_refuse_undeclared_tables_and_warehouses(world, monkeypatch, capsys):
    for name, arguments, expected in (
        ("main", ["views"], f"'views' has no table in main: expected one of {world.name}."),
        ("other", [], "there is no warehouse 'other': FEED_ASSETS_WAREHOUSES has main"),
    ):
        said_ = run_warehouse(monkeypatch, capsys, "load", name, *arguments, "-m", module(world), code=1)
        assert expected in " ".join(said_.split())


def test_warehouse_state_of_a_missing_file_prints_one_line_and_creates_nothing(home, tmp_path):
    given = {
        "DAGSTER_HOME": str(home),
        "FEED_ASSETS_WAREHOUSES": json.dumps({"main": {"url": f"duckdb://{tmp_path}/w.db"}}),
    }
    command = [Path(sys.executable).with_name("feed-assets"), "warehouse", "state", "main"]
    done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, check=True)
    assert (done.stdout + done.stderr).strip() == (
        f"nothing was loaded into main yet: there is no file {tmp_path}/w.db yet: the first load makes it"
    )
    assert not (tmp_path / "w.db").exists()


def test_an_undefined_warehouse_is_reported(home, monkeypatch):
    with pytest.raises(InvalidSetting, match="no warehouse 'main': FEED_ASSETS_WAREHOUSES has none"):
        Settings().warehouse("main")


def role(url: str, named: str = ROLE) -> str:
    return json.dumps({"main": {"url": url, "iam_role": named}})


def keyed(url: str) -> str:
    return json.dumps({"main": {"url": url, "private_key": "secret"}})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            '{"main": {"url": "mysql://u:secret@h/d"}}',
            "['main']['url']: found mysql://, expected duckdb:///folder/file.db",
        ),
        ('{"main": {"url": "redshift://u:secret@h/d"}}', "['main']: iam_role is not set: it is needed for a redshift"),
        (role("duckdb:///f"), "['main']: iam_role is set, but the url is not a redshift"),
        (keyed("snowflake://u:secret@a/d/s?warehouse=w"), "['main']: expected a private_key for Snowflake alone, and"),
        (keyed("duckdb:///f"), "['main']: expected a private_key for Snowflake alone, and there either it or a pass"),
        *(
            (keyed(f"snowflake://{odd}"), "['main']['url']: expected snowflake://user:password@account/database/schema")
            for odd in ("u@a/d?warehouse=w", "a/d/s?warehouse=w", "u@a/d/s", "u@a/d/s?warehouse=w&insecure=1")
        ),
        (role("redshift://u:secret@h/d", "me"), "['main']['iam_role']: expected arn:aws:iam::ACCOUNT:role/NAME"),
        *(
            (role(f"redshift://u:secret{odd}1@h/d"), "['main']['url']: expected redshift://user:password@host")
            for odd in "/?#["
        ),
        ('{"main": {"url": "duckdb:///data/../f.db"}}', "['main']['url']: a part of the path is . or .."),
        ('{"main": {}}', "['main']['url']: it is missing"),
        ('{"main": {"url": "duckdb:///f", "chunks": 0}}', "['main']['chunks']: expected greater than or equal to 1"),
        ('{"m/n": {"url": "duckdb:///f"}}', "['m/n']: expected letters, digits, '_' and '-'"),
    ],
)
def test_a_wrong_warehouse_setting_is_reported_without_its_secrets(home, monkeypatch, value, expected):
    monkeypatch.setenv("FEED_ASSETS_WAREHOUSES", value)
    with pytest.raises(InvalidSetting) as raised:
        Settings()
    assert f"FEED_ASSETS_WAREHOUSES{expected}" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_the_docs_have_every_field_of_a_warehouse():
    docs = (ROOT / "docs" / "warehouse.md").read_text(encoding="utf-8")
    assert [name for name in Warehouse.model_fields if f"\n| `{name}` |" not in docs] == []
