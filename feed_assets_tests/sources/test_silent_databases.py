"""Databases of others that do not answer, or answer without end: nobody waits forever."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from socket import AF_UNIX, SHUT_RDWR, create_server, socket
from threading import Event, Thread
from time import monotonic

import psycopg
import pytest
import sqlalchemy as sa

from feed_assets.core.errors import SinkUnavailable, SourceUnavailable
from feed_assets.core.isolation import failing_alone
from feed_assets.ledger import sessions
from feed_assets.sources import sinks
from feed_assets.sources.databases import ANSWER_SECONDS, reading
from feed_assets.sources.sinks import SqlSink
from feed_assets.sources.sql import SqlEvents
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.foreign_tables import event

SOON = 30
"""Seconds within which a timeout of one or two seconds has ended on a busy machine; without it, none would end."""


@contextmanager
def freezing(url: str) -> Iterator[tuple[str, Event]]:
    """Proxy a server until the event is set; then forward nothing, and close nothing."""
    frozen = Event()
    parts = sa.make_url(url)
    folder, ends = str(parts.query["host"]), list[socket]()

    def pump(source: socket, target: socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not frozen.is_set():
                    target.sendall(data)

    with create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    caller, server = listening.accept()[0], socket(AF_UNIX)
                    server.connect(f"{folder}/.s.PGSQL.{parts.port or 5432}")
                    ends.extend((caller, server))
                    for pair in ((caller, server), (server, caller)):
                        Thread(target=pump, args=pair, daemon=True).start()

        Thread(target=serve, daemon=True).start()
        address = parts.set(host="127.0.0.1", port=listening.getsockname()[1], query={"sslmode": "disable"})
        yield address.render_as_string(hide_password=False), frozen
        for end in ends:
            with suppress(OSError):
                end.shutdown(SHUT_RDWR)
            end.close()


def test_silent_database_server_is_unavailable(monkeypatch):
    monkeypatch.setattr(sessions, "CONNECT_SECONDS", 2)  # The fewest that libpq takes.
    with create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://me:secret@127.0.0.1:{silent.getsockname()[1]}/lake"
        for call in (
            lambda: SqlEvents(url, "events", order_by="id").read(None, 10),
            lambda: SqlSink(url, "events").publish([(1, event(1, "timestamp"))]),
        ):
            began = monotonic()
            with pytest.raises((SourceUnavailable, SinkUnavailable), match="timeout") as raised:
                call()
            assert monotonic() - began < SOON
            assert "secret" not in str(raised.value)


def test_a_statement_that_does_not_end_is_cancelled_on_the_server(postgresql_url):
    began = monotonic()
    with pytest.raises(SourceUnavailable, match="no answer within 1 s"), reading(postgresql_url, 1) as connection:
        connection.exec_driver_sql("SELECT pg_sleep(600)")
    assert monotonic() - began < SOON
    with reading(postgresql_url) as connection:
        left = connection.exec_driver_sql("SELECT count(*) FROM pg_stat_activity WHERE query ~ 'pg_sleep.600'")
        assert left.scalar() == 1  # This one.


def test_a_server_that_does_not_hear_of_a_cancellation_loses_the_connection(postgresql_url):
    with freezing(postgresql_url) as (url, frozen):
        began = monotonic()

        def ask() -> None:
            with reading(url, 1) as connection:
                assert connection.exec_driver_sql("SELECT 1").scalar() == 1
                frozen.set()
                connection.exec_driver_sql("SELECT 2")

        with pytest.raises(SourceUnavailable, match="no answer within 1 s"):
            ask()
        assert monotonic() - began < SOON


def test_answers_in_time_are_not_cancelled_and_other_errors_are_unchanged(postgresql_url):
    with reading(postgresql_url, 20) as connection:
        assert connection.exec_driver_sql("SELECT pg_sleep(0.1) IS NULL").scalar() is False
    with pytest.raises(SourceUnavailable, match="division by zero"), reading(postgresql_url, 20) as connection:
        connection.exec_driver_sql("SELECT 1 / 0")


@pytest.mark.soak
def test_a_lock_on_the_table_holds_neither_a_source_nor_a_sink_for_ever(postgresql_url):
    SqlSink(postgresql_url, "events").publish([(1, event(1, "timestamp"))])
    with psycopg.connect(postgresql_url.replace("+psycopg", "")) as holder:
        holder.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        for call in (
            lambda: SqlEvents(postgresql_url, "events", order_by="id").read(None, 10),
            lambda: SqlSink(postgresql_url, "events").publish([(2, event(2, "timestamp"))]),
        ):
            began = monotonic()
            with pytest.raises((SourceUnavailable, SinkUnavailable), match="no answer within"):
                call()
            assert monotonic() - began < ANSWER_SECONDS + SOON


def test_a_read_has_one_time_for_all_that_it_asks(postgresql_url):
    """Give each of two statements enough time alone."""
    SqlSink(postgresql_url, "written").publish([(1, event(1, "timestamp")), (2, event(2, "timestamp"))])
    with psycopg.connect(postgresql_url.replace("+psycopg", ""), autocommit=True) as owner:
        owner.execute("CREATE VIEW events AS SELECT * FROM written WHERE pg_sleep(1) IS NOT NULL")
    source = SqlEvents(postgresql_url, "events", order_by="id")
    assert len(source.read(None, 10).events) == 2
    with pytest.raises(SourceUnavailable, match="no answer within"):
        source.read(None, 10, 2.5)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n WHERE i < 0"


@each_case(
    ("view", "message"),
    [
        (ENDLESS, "no answer within 1 s"),
        ("SELECT 1 AS id, hex(zeroblob(60000000)) AS correlation", "string or blob too big"),
    ],
)
def test_a_view_of_sqlite_costs_neither_endless_time_nor_memory(tmp_path, view, message):
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with closing(sqlite3.connect(tmp_path / "shop.db")) as owner:
        owner.execute("DROP VIEW IF EXISTS events")
        owner.execute(f"CREATE VIEW events AS {view}")
    began = monotonic()
    with pytest.raises(SourceUnavailable, match=message), reading(url, 1) as connection:
        connection.exec_driver_sql("SELECT * FROM events").all()
    assert monotonic() - began < SOON


def test_megabytes_in_the_error_of_a_view_are_neither_kept_nor_searched(postgresql_url):
    with pytest.raises(SourceUnavailable) as raised, reading(postgresql_url) as connection:
        connection.exec_driver_sql("DO $$ BEGIN RAISE EXCEPTION USING MESSAGE = repeat('x', 30000000); END $$")
    assert len(str(raised.value)) < 10_000
    assert raised.value.__cause__ is None
    problems: dict[str, str] = {}
    with failing_alone(problems, "shop"):
        raise RuntimeError("x" * 30_000_000)
    assert len(problems["shop"]) < 10_000


def test_a_trigger_at_the_commit_of_a_sink_has_the_same_time_limit(postgresql_url, monkeypatch):
    sink = SqlSink(postgresql_url, "events")
    sink.publish([(1, event(1, "timestamp"))])
    with psycopg.connect(postgresql_url.replace("+psycopg", ""), autocommit=True) as owner:
        owner.execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$; CREATE CONSTRAINT TRIGGER t AFTER INSERT ON events "
            "DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()"
        )
    monkeypatch.setattr(sinks, "SINK_SECONDS", 1)
    began = monotonic()
    with pytest.raises(SinkUnavailable, match="no answer within 1 s"):
        sink.publish([(2, event(2, "timestamp"))])
    assert monotonic() - began < SOON


def test_a_lock_that_a_producer_keeps_on_sqlite_is_waited_for_as_long_as_the_read_may_take(tmp_path):
    url = f"sqlite:///{tmp_path / 'locked.db'}"
    with closing(sqlite3.connect(tmp_path / "locked.db", isolation_level=None)) as producer:
        producer.execute("CREATE TABLE events (id int)")
        producer.execute("BEGIN EXCLUSIVE")
        began = monotonic()
        with pytest.raises(SourceUnavailable), reading(url, 1) as connection:
            connection.execute(sa.text("SELECT * FROM events"))
        assert monotonic() - began < 15
