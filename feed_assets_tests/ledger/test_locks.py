"""Every wait for a lock ends, and a role without rights on the ledger's tables cannot take a lock that writers need."""

from socket import create_server

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.errors import InsufficientPrivilege

from feed_assets.core.errors import LedgerUnavailable
from feed_assets.ledger import log, sessions
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.sessions import LOCK_SECONDS, connect_args
from feed_assets.ledger.tables import log_lock, metadata

LOCK = f"LOCK TABLE {log_lock.name} IN SHARE UPDATE EXCLUSIVE MODE"
ADVISORY = "SELECT pg_advisory_lock(6370417200958541395)"
"""The lock that writers queued for in an older version."""


@pytest.fixture
def stranger(postgresql_ledger):
    """Yield a connection of a role that may only connect."""
    url = postgresql_ledger.engine.url
    with postgresql_ledger.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("CREATE ROLE stranger LOGIN PASSWORD 'x'")
    named = url.set(drivername="postgresql", username="stranger", password="x")
    with psycopg.connect(named.render_as_string(hide_password=False), autocommit=True) as connection:
        yield connection
    with postgresql_ledger.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("DROP ROLE stranger")


def test_role_without_table_rights_cannot_block_a_writer(postgresql_ledger, stranger):
    stranger.execute(ADVISORY)
    for table in metadata.tables:
        with pytest.raises(InsufficientPrivilege), stranger.transaction():
            stranger.execute(f'LOCK TABLE "{table}" IN ACCESS SHARE MODE')
    stranger.execute("BEGIN")
    stranger.execute("PREPARE statement AS DELETE FROM log_lock")  # PostgreSQL checks rights at EXECUTE alone.
    with postgresql_ledger.engine.connect() as connection, connection.begin():
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")
        connection.exec_driver_sql(LOCK)
    with postgresql_ledger.change() as connection:
        assert log.last(connection) == 0


def test_writers_queue_for_the_log_lock_table(postgresql_ledger):
    """A writer that waits there gets an error after a while, with a hint."""
    with postgresql_ledger.change(), postgresql_ledger.engine.connect() as second, second.begin():
        second.exec_driver_sql("SET LOCAL lock_timeout = '10ms'")
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
            second.exec_driver_sql(LOCK)


def test_lock_timeout_is_reported_with_advice(postgresql_ledger):
    def wait():
        with postgresql_ledger.write() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '10ms'")
            connection.exec_driver_sql(LOCK)

    with (
        postgresql_ledger.change(),
        pytest.raises(LedgerUnavailable, match=r"is locked for more than .*Find the transaction"),
    ):
        wait()


@pytest.mark.parametrize("kind", ["read", "write", "change"])
def test_every_transaction_has_a_lock_timeout(postgresql_ledger, kind):
    with getattr(postgresql_ledger, kind)() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar_one() == f"{LOCK_SECONDS}s"
        idle = connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
    assert idle == ("0" if kind == "read" else f"{LOCK_SECONDS * 2 // 60}min")


def test_role_without_table_rights_gets_a_clear_error(postgresql_ledger):
    def ask():
        with postgresql_ledger.read() as connection:
            connection.exec_driver_sql("SET LOCAL ROLE pg_monitor")
            connection.exec_driver_sql("SELECT * FROM cursor")

    with pytest.raises(LedgerUnavailable, match="permission denied for table cursor"):
        ask()


def test_silent_ledger_server_is_unavailable(monkeypatch):
    monkeypatch.setattr(sessions, "CONNECT_SECONDS", 2)
    with create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://me:secret@127.0.0.1:{silent.getsockname()[1]}/lake"
        with pytest.raises(LedgerUnavailable, match="timeout expired") as raised:
            open_ledger(url)
    assert "secret" not in str(raised.value)


def test_timeout_in_the_ledger_url_is_kept():
    assert connect_args("postgresql+psycopg://h/d?connect_timeout=60") == {"tcp_user_timeout": 30_000}
    assert connect_args("sqlite:///x.db") == connect_args("postgresql+asyncpg://h/d") == {}
