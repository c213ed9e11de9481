"""Settings of the ledger's sessions on each database: isolation, locks and timeouts."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from feed_assets.home import OWNED, announce, home
from feed_assets.ledger.tables import log_lock

CONNECT_SECONDS = 5
"""Seconds to wait for a PostgreSQL server to accept a connection, unless the URL has `connect_timeout`."""

LOCK_SECONDS = 30
"""Seconds that a transaction waits for a lock. Our transactions take milliseconds."""

WRITES, CHANGES = "writes", "changes"
"""Values of a transaction's execution option `write`. A transaction without this option only reads."""


def _prepare_postgresql(engine: sa.Engine) -> None:
    """Let each reader see one consistent state, and let transactions that append to the log run one by one.

    Other writing transactions are not blocked.
    """
    event.listen(engine, "begin", _begin_postgresql)


_ENDS = f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"
_WRITE_ENDS = f"{_ENDS}; SET LOCAL idle_in_transaction_session_timeout = '{2 * LOCK_SECONDS}s'"
_BEGIN_POSTGRESQL = {
    None: f"{_ENDS}; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    WRITES: _WRITE_ENDS,
    CHANGES: f"{_WRITE_ENDS}; LOCK TABLE {log_lock.name} IN SHARE UPDATE EXCLUSIVE MODE",
}


def _begin_postgresql(connection: sa.Connection) -> None:
    """Begin a transaction in one round trip, with time limits for locks and for idle processes.

    The log's lock is a lock on a table. An advisory lock would not do, because any role that can connect could hold it.
    """
    connection.exec_driver_sql(_BEGIN_POSTGRESQL[connection.get_execution_options().get("write")])


def lock_log(connection: sa.Connection) -> None:
    """Let a writing transaction append to the log.

    It waits for other appending transactions only here, not at its start. The caller must not hold a lock that a
    transaction of `Ledger.change()` may need.
    """
    if connection.get_execution_options().get("write") == CHANGES:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {log_lock.name} IN SHARE UPDATE EXCLUSIVE MODE")
    connection.execution_options(write=CHANGES)


def _prepare_sqlite(engine: sa.Engine) -> None:
    """Let readers work in parallel with one writer (WAL), and let writers queue instead of failing."""
    if engine.url.database and not (file := Path(engine.url.database)).exists():
        announce(file.resolve(), "the ledger")
        if file.resolve().parent == home():
            file.touch(OWNED)  # SQLite gives its other files the same access rights.
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin_sqlite)


PREPARE = {"sqlite": _prepare_sqlite, "postgresql": _prepare_postgresql}


def _configure(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # Switch off the driver's BEGIN, which comes too late for a safe upgrade.
    cursor = connection.cursor()
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


_SHARED = (
    "SELECT schema FROM pg_catalog.current_schema() AS schema "
    "WHERE pg_catalog.has_schema_privilege('public', schema, 'CREATE')"
)


def shared_schema(connection: sa.Connection) -> str | None:
    """Return the schema of a ledger on PostgreSQL if every role may create objects in it, else None.

    Such a role could add an operator, which our statements would then run with our rights.
    """
    return connection.exec_driver_sql(_SHARED).scalar()


def connect_args(url: str) -> dict[str, Any]:
    """Return the time limits of PostgreSQL's client: for connecting, and for a lost connection.

    Settings in the URL have priority. Raise ArgumentError for an invalid URL.
    """
    try:
        parsed = sa.make_url(url)
    except ValueError as error:  # The port is not a number.
        raise exc.ArgumentError(str(error)) from error
    is_libpq = parsed.get_backend_name() == "postgresql" and parsed.get_driver_name().startswith("psycopg")
    waits = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 1000 * LOCK_SECONDS} if is_libpq else {}
    return {name: value for name, value in waits.items() if name not in parsed.query}
