"""Redshift's driver with a real server: PostgreSQL, behind a port that sends Redshift's greeting."""

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from select import select
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
import redshift_connector

from feed_assets.core.errors import InvalidSetting, LoadFailed, WarehouseUnavailable
from feed_assets.warehouse import load_state, redshift, target
from feed_assets.warehouse.redshift import Redshift, driver, translated
from feed_assets.warehouse.table import Loading
from feed_assets.warehouse.target import engine_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import check as check_topic
from feed_assets_tests.support.warehouse_topics import loading_of, nexts
from feed_assets_tests.warehouse import standin
from feed_assets_tests.warehouse.loader_thread import loading_in_thread
from feed_assets_tests.warehouse.standin import ROLE, StandIn

SERIALIZABLE = {"S": "ERROR", "C": "XX000", "M": "1023", "D": "Serializable isolation violation on table"}
GREETING = (b"user", b"database", b"application_name")
"""Startup parameters of the driver that PostgreSQL knows."""


@pytest.fixture
def cluster(postgresql, monkeypatch) -> Iterator[Redshift]:
    """Provide a server that accepts Redshift's driver as a client; without TLS."""
    path = parse_qs(urlsplit(postgresql.uri).query)["host"][0] + "/.s.PGSQL.5432"
    database = urlsplit(postgresql.database()).path
    monkeypatch.setattr(driver, "connect", partial(driver.connect, ssl=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=accept, args=(listener, path))
        thread.start()
        yield Redshift(f"redshift://postgres:planted@127.0.0.1:{listener.getsockname()[1]}{database}", "arn")
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def accept(listener: socket.socket, path: str) -> None:
    with suppress(OSError):
        while True:
            Thread(target=lead, args=(listener.accept()[0], path), daemon=True).start()


def lead(here: socket.socket, path: str) -> None:
    with closing(here), suppress(OSError), socket.socket(socket.AF_UNIX) as there:
        there.connect(path)
        (length,) = struct.unpack("!i", here.recv(4, socket.MSG_WAITALL))
        version, told = struct.unpack(f"!4s{length - 8}s", here.recv(length - 4, socket.MSG_WAITALL))
        words = told.split(b"\0")
        known = [b"%s\0%s\0" % each for each in zip(words[::2], words[1::2], strict=False) if each[0] in GREETING]
        greeting = version + b"".join(known) + b"\0"
        there.sendall(struct.pack("!i", len(greeting) + 4) + greeting)
        while True:
            for one in select([here, there], [], [])[0]:
                if not (data := one.recv(65_536)):
                    return
                (there if one is here else here).sendall(data)


def test_statements_and_rows_pass_the_driver_unchanged(cluster):
    with cluster.open() as connection:
        assert connection.execute("SELECT 1, 'a%s?:b$1', CAST('2026-01-01 00:00:00+00' AS timestamptz), NULL") == [
            (1, "a%s?:b$1", datetime(2026, 1, 1, tzinfo=UTC), None)
        ]
        assert connection.execute(r"SELECT E'C:\'") == [("C:\\",)]
        assert connection.execute("CREATE TEMP TABLE t (a integer)") == []
        assert connection.execute("INSERT INTO t VALUES (1), (2)") == []
        assert connection.execute("SELECT a FROM t ORDER BY a") == [(1,), (2,)]


def test_transactions_begin_and_end_only_by_statement(cluster):
    with cluster.open() as connection:
        connection.execute("CREATE TABLE kept (a integer)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO kept VALUES (2)")
    with cluster.open() as connection:
        assert connection.execute("SELECT a FROM kept") == [(1,)]


def test_errors_of_the_server_are_reported_in_its_words(cluster):
    with (
        cluster.open() as connection,
        pytest.raises(LoadFailed, match='Redshift refuses: column "nope" does not exist'),
    ):
        connection.execute("SELECT nope")


def test_a_serialization_failure_is_over_later(cluster):
    with cluster.open() as connection, cluster.open() as other:
        connection.execute("CREATE TABLE told (a integer)")
        connection.execute("INSERT INTO told VALUES (1)")
        for each in (connection, other):
            each.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            each.execute("SELECT a FROM told")
        connection.execute("UPDATE told SET a = 2")
        connection.execute("COMMIT")
        with pytest.raises(WarehouseUnavailable, match="could not serialize access"):
            other.execute("UPDATE told SET a = 3")


def test_a_connection_that_breaks_is_no_end(cluster):
    with pytest.raises(WarehouseUnavailable), cluster.open() as connection:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


@each_case(
    ("error", "kind"),
    [
        (redshift_connector.ProgrammingError(SERIALIZABLE), WarehouseUnavailable),
        (redshift_connector.ProgrammingError({"C": "40001", "M": "could not serialize access"}), WarehouseUnavailable),
        (redshift_connector.ProgrammingError({"C": "57014", "M": "Query cancelled"}), WarehouseUnavailable),
        (redshift_connector.InterfaceError("communication error", OSError(111, "refused")), WarehouseUnavailable),
        (redshift_connector.OperationalError("connection time out"), WarehouseUnavailable),
        (ConnectionResetError(104, "Connection reset by peer"), WarehouseUnavailable),
        (redshift_connector.ProgrammingError({"C": "42601", "M": "syntax error; password planted"}), LoadFailed),
        (redshift_connector.DataError("no number"), LoadFailed),
    ],
)  # fmt: skip
def test_driver_errors_are_classified_as_temporary_or_permanent(error, kind):
    with pytest.raises(kind) as said, translated("redshift://me:planted@h/d"):
        raise error
    assert "planted" not in str(said.value)
    assert "Serializable" in str(said.value) or "1023" not in str(error)


def test_an_unavailable_cluster_is_reported_without_the_password():
    with pytest.raises(WarehouseUnavailable) as said, opened(engine_of("redshift://me:planted@127.0.0.1:1/d", ROLE)):
        pass
    assert "planted" not in str(said.value)


def test_without_the_driver_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(target, "find_spec", lambda name: None if name == "redshift_connector" else 1)
    with pytest.raises(InvalidSetting, match=r"pip install 'feed-assets\[redshift\]'"):
        engine_of("redshift://h/d", ROLE)


@pytest.fixture
def world(broker, registry, s3_url, s3_env) -> Iterator[World]:
    with World.of(broker, registry, s3_url, s3_env.endpoint) as made:
        made.create()
        yield made


@pytest.fixture
def loading(world, url, monkeypatch) -> Iterator[Loading]:
    """Provide a loader from its settings, except that the stand-in is its connection."""
    made = StandIn(url, ROLE)
    monkeypatch.setattr(redshift, "Redshift", lambda *told: made if told == (url, ROLE) else None)
    loading = loading_of(world.place, url, iam_role=ROLE)
    made.board = loading.board
    with made.open() as connection:
        load_state.prepare(connection, made)
        connection.execute("DELETE FROM feed_assets.lease")
    with closing(loading.schemas):
        yield loading


@pytest.mark.parametrize("url", ["redshift"], indirect=True)
def test_a_table_follows_its_topic_also_where_another_transaction_was_in_the_way(world, loading, monkeypatch, capsys):
    world.produce(15)
    world.send(None, 3)
    world.run_until_done()
    refusals, execute = iter(["UPDATE feed_assets.lease", 'DELETE FROM "feed', "COMMIT"]), standin._Driver.execute
    waited = [next(refusals)]

    def conflicts(self, statement):
        if waited and statement.startswith(waited[0]):
            waited[:] = [each for each in [next(refusals, None)] if each]
            raise redshift_connector.ProgrammingError(SERIALIZABLE)
        execute(self, statement)

    monkeypatch.setattr(standin._Driver, "execute", conflicts)
    with loading_in_thread(loading, world) as ended:
        wait_until(lambda: bool(ended) or nexts(loading.engine, world.name) == {0: world.end()}, "all to be loaded")
    assert (ended, waited) == ([], [])
    assert capsys.readouterr().err.count("Redshift cannot do it now: 1023 Serializable isolation violation") == 3
    check_topic(world, loading.engine)
