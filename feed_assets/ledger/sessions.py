"""Settings of the ledger's sessions, on each database: what they see, and how long they wait."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from feed_assets.home import OWNED, announce, home
from feed_assets.ledger.tables import log_lock

CONNECT_SECONDS = 5
"""Seconds to wait for a PostgreSQL server to take a connection, unless its URL has `connect_timeout`."""

LOCK_SECONDS = 30
"""Seconds that a transaction waits for one that is before it; ours take milliseconds."""

WRITES, CHANGES = "writes", "changes"
"""Values of a transaction's execution option `write`. Without it a transaction reads."""


def _prepare_postgresql(engine: sa.Engine) -> None:
    """Let a reader see one state, and appenders to the log queue: transactions of milliseconds. Others write beside."""
    event.listen(engine, "begin", _begin_postgresql)


_ENDS = f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"
_WRITE_ENDS = f"{_ENDS}; SET LOCAL idle_in_transaction_session_timeout = '{2 * LOCK_SECONDS}s'"
_BEGIN_POSTGRESQL = {
    None: f"{_ENDS}; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    WRITES: _WRITE_ENDS,
    CHANGES: f"{_WRITE_ENDS}; LOCK TABLE {log_lock.name} IN EXCLUSIVE MODE",
}


def _begin_postgresql(connection: sa.Connection) -> None:
    """Begin in one round trip. Nothing waits forever, neither for a lock nor for the end of a stopped process.

    Lock a table, as any role that may connect could take, and hold, an advisory lock.
    """
    connection.exec_driver_sql(_BEGIN_POSTGRESQL[connection.get_execution_options().get("write")])


def lock_log(connection: sa.Connection) -> None:
    """Let a writing transaction append to the log from here on: it queues now, not where it began.

    Call it without a lock that a transaction of `Ledger.change()` may need.
    """
    if connection.get_execution_options().get("write") == CHANGES:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {log_lock.name} IN EXCLUSIVE MODE")
    connection.execution_options(write=CHANGES)


def _prepare_sqlite(engine: sa.Engine) -> None:
    """Let readers work beside one writer (WAL), and writers queue instead of failing half-way."""
    if engine.url.database and not (file := Path(engine.url.database)).exists():
        announce(file.resolve(), "the ledger")
        if file.resolve().parent == home():
            file.touch(OWNED)  # SQLite gives its other files the rights of this one.
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin_sqlite)


PREPARE = {"sqlite": _prepare_sqlite, "postgresql": _prepare_postgresql}


def _configure(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late for an upgrade to be safe
    cursor = connection.cursor()
    for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=FULL"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def connect_args(url: str) -> dict[str, Any]:
    """Return how long PostgreSQL's own client waits for a server to take a connection, and for one that is cut off.

    Settings in the URL itself stay. Raises ArgumentError.
    """
    try:
        parsed = sa.make_url(url)
    except ValueError as error:  # The port is no number.
        raise exc.ArgumentError(str(error)) from error
    is_libpq = parsed.get_backend_name() == "postgresql" and parsed.get_driver_name().startswith("psycopg")
    waits = {"connect_timeout": CONNECT_SECONDS, "tcp_user_timeout": 1000 * LOCK_SECONDS} if is_libpq else {}
    return {name: value for name, value in waits.items() if name not in parsed.query}
