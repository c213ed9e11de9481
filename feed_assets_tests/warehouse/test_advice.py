"""Errors of a warehouse that cannot be reached or refuses: they name the cause and the remedy."""

import subprocess
import sys
from urllib.parse import urlsplit
from uuid import uuid4

import duckdb
import psycopg
import pytest
from confluent_kafka import KafkaError

from feed_assets.cli.warehouse_looks import WarehouseLooks
from feed_assets.core.errors import FeedAssetsError, InvalidSetting, LoadFailed, TableBusy, WarehouseUnavailable
from feed_assets.kafka import clients
from feed_assets.settings import Settings
from feed_assets.warehouse import duck, postgresql
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.warehouse_connection import opened


def refusal(url: str, statement: str = "SELECT 1") -> str:
    with pytest.raises((WarehouseUnavailable, LoadFailed)) as raised, opened(engine_of(url)) as connection:
        connection.execute(statement)
    return str(raised.value)


def test_a_missing_database_is_not_reported_as_silent(postgresql_url):
    name = urlsplit(postgresql_url).path
    said = refusal(postgresql_url.replace(name, "/none"))
    assert "Correct the database or the user of its url in FEED_ASSETS_WAREHOUSES" in said
    assert "Check that it answers" not in said


def test_a_wrong_password_names_the_setting_and_how_it_is_written():
    expected = r"Correct the user and the password of its url.* as %2F and so on"
    with pytest.raises(WarehouseUnavailable, match=expected), postgresql.translated("postgresql://u@h/d"):
        raise psycopg.OperationalError('FATAL: password authentication failed for user "u"')


def test_a_block_that_does_not_fit_into_memory_is_no_lock():
    with (
        pytest.raises(TableBusy, match=r"DuckDB may use 1GB: load fewer chunks at once"),
        duck.translated(),
    ):
        raise duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block of size 1.1 GiB")


def test_a_warehouse_file_open_in_another_process_is_reported(tmp_path):
    held = f"import duckdb; opened = duckdb.connect({str(tmp_path / 'f.db')!r}); print(flush=True); input()"
    command = [sys.executable, "-c", held]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline()
        assert "Find the other process that has the file open" in refusal(f"duckdb://{tmp_path}/f.db")
        process.kill()


def test_missing_rights_are_a_statement(postgresql_url):
    user = f"u_{uuid4().hex}"
    with opened(engine_of(postgresql_url)) as connection:
        connection.execute(f"CREATE ROLE {user}")
        connection.execute(f"SET ROLE {user}")
        with pytest.raises(LoadFailed, match=r"Have its owner execute: GRANT CREATE ON DATABASE db_\w+ TO "):
            connection.execute("CREATE SCHEMA other")


@pytest.mark.parametrize("url", ["duckdb", "postgresql"], indirect=True)
def test_a_table_made_by_others_is_reported(url):
    name = f"t_{uuid4().hex}"
    with opened(engine_of(url)) as connection:
        connection.execute(f"CREATE TABLE {name} (a integer)")
        with pytest.raises(LoadFailed, match="No load has created this table: rename it, or drop it"):
            connection.execute(f"CREATE TABLE {name} (a integer)")


def test_an_old_server_is_refused():
    with pytest.raises(InvalidSetting, match=r"the warehouse is PostgreSQL 15\.18: expected 16 or newer"):
        postgresql._refuse_old(150_018)


def test_a_wrong_warehouse_file_is_reported_with_the_remedy(tmp_path):
    (tmp_path / "text.db").write_text("no database " * 1000)
    for name, expected in (
        ("", "is a folder: name a file in it"),
        ("none/main.db", f"Make the folder {tmp_path}/none"),
        ("text.db", "Name another file in FEED_ASSETS_WAREHOUSES: this one is not a DuckDB file"),
    ):
        assert expected in refusal(f"duckdb://{tmp_path}/{name}"), name


def test_a_missing_extra_names_the_warehouse(monkeypatch):
    monkeypatch.setattr("feed_assets.warehouse.target.find_spec", lambda _: None)
    with pytest.raises(FeedAssetsError, match="the warehouse main needs more packages"):
        engine_of("postgresql://h/d", "", "main")


def test_repeated_client_errors_are_printed_once_a_minute(capsys, monkeypatch):
    monkeypatch.setattr(clients, "_last_logged", {})
    for _ in range(3):
        clients.say_heard(KafkaError(KafkaError._TRANSPORT))
    clients.say_heard(KafkaError(KafkaError._RESOLVE))
    assert capsys.readouterr().err.count("kafka: ") == 2


def test_the_doctor_checks_each_warehouse(postgresql_url, tmp_path):
    warehouses = {"main": {"url": postgresql_url}, "file": {"url": f"duckdb://{tmp_path}/main.db"}}
    looks = dict(WarehouseLooks(Settings(warehouses=warehouses)).looks())
    assert looks["warehouse file"]() == f"there is no file {tmp_path}/main.db yet: the first load makes it"
    assert "answers, " in looks["warehouse main"]()
    assert not (tmp_path / "main.db").exists()
