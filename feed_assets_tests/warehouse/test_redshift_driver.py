"""Redshift's driver with a real server: PostgreSQL, whose protocol it speaks, behind a port that greets for it."""

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

from feed_assets.core.errors import LoadFailed, WarehouseUnavailable
from feed_assets.warehouse.redshift import Redshift, driver

GREETING = (b"user", b"database", b"application_name")
"""What PostgreSQL knows of what the driver says of itself."""


@pytest.fixture
def cluster(postgresql, monkeypatch) -> Iterator[Redshift]:
    """A server that takes the driver for one of its own; it speaks no TLS."""
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


def test_statements_and_rows_are_what_they_were(cluster):
    with cluster.open() as connection:
        assert connection.execute("SELECT 1, 'a%s?:b$1', CAST('2026-01-01 00:00:00+00' AS timestamptz), NULL") == [
            (1, "a%s?:b$1", datetime(2026, 1, 1, tzinfo=UTC), None)
        ]
        assert connection.execute(r"SELECT E'C:\'") == [("C:\\",)]
        assert connection.execute("CREATE TEMP TABLE t (a integer)") == []
        assert connection.execute("INSERT INTO t VALUES (1), (2)") == []
        assert connection.execute("SELECT a FROM t ORDER BY a") == [(1,), (2,)]


def test_transactions_begin_and_end_as_they_are_told(cluster):
    with cluster.open() as connection:
        connection.execute("CREATE TABLE kept (a integer)")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.execute("COMMIT")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO kept VALUES (2)")
    with cluster.open() as connection:
        assert connection.execute("SELECT a FROM kept") == [(1,)]


def test_what_the_server_refuses_is_said_in_its_words(cluster):
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
