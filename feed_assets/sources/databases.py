"""Databases that others own. They are opened only for reading, and their errors are translated into ours."""

import os
import socket
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event, Timer
from time import monotonic
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from feed_assets.core.errors import FeedAssetsError, SourceUnavailable
from feed_assets.core.message_words import LONGEST_REASON, excerpt
from feed_assets.core.secrets import cause, masked
from feed_assets.core.time_limits import shut
from feed_assets.feeds.answers import answers_of
from feed_assets.ledger.sessions import connect_args
from feed_assets.sources.driver_values import load_all
from feed_assets.sources.marker_columns import MOMENT, moment

ANSWER_SECONDS = 30
"""Seconds for all queries of one read. The limit is so low because Dagster stops a tick after 60 seconds."""

LATE_SECONDS = 2
"""Seconds to connect, and to read, even if the tick's time is already over. libpq allows no shorter time to connect."""

_SQLITE_STEPS = 1_000
"""SQLite instructions between two checks of the time limit. A call of one SQL function is not interrupted."""

_SQLITE_CELL = 64 << 20
"""The most bytes of a value that SQLite computes, for example in a view. Long cells are cut only after that."""

_CANCEL_SECONDS = 5
"""Seconds for a canceled statement to end. Then the connection is closed."""

LONGEST_DESCRIPTION = 16 << 20
"""The most bytes of the comments and defaults of a table's columns, together with those of the database's domains.

SQLAlchemy fetches them with the types of the columns. Any number of columns may have a comment of 1 GB.
"""

_DESCRIPTION = sa.text("""
    SELECT coalesce(sum(size), 0) FROM (
        SELECT octet_length(description) AS size FROM pg_catalog.pg_description
        WHERE objoid = to_regclass(:table) AND classoid = 'pg_catalog.pg_class'::regclass
        UNION ALL SELECT octet_length(adbin::text) FROM pg_catalog.pg_attrdef WHERE adrelid = to_regclass(:table)
        UNION ALL SELECT octet_length(conbin::text) FROM pg_catalog.pg_constraint WHERE contypid <> 0
        UNION ALL SELECT octet_length(typdefault) FROM pg_catalog.pg_type WHERE typtype = 'd'
    ) AS sizes""")

Types = dict[str, sa.types.TypeEngine[object]]


@contextmanager
def reading(url: str, seconds: float | None = ANSWER_SECONDS) -> Generator[sa.Connection]:
    """Yield a read-only connection that may be used for `seconds`; None means without a limit.

    Raise SourceUnavailable if the database fails.
    """
    is_late = seconds is not None and seconds <= LATE_SECONDS
    engine = _late_reader if is_late else _reader
    with translated(url, SourceUnavailable), connected(engine(url)) as connection, answering(connection, seconds):
        yield connection


def connected(engine: sa.Engine) -> sa.Connection:
    """Return a new connection of an engine, whose server has answered SQLAlchemy's first questions.

    Raise SQLAlchemy's TimeoutError for a server that takes the login and is silent: a tick that waits for it would
    keep its thread of the code server, and after some ticks no sensor would run any more.
    """
    if engine.dialect.name == "sqlite":
        return engine.connect()
    try:
        return answers_of(engine.url.render_as_string(hide_password=False), "sql").within(engine.connect)
    except OSError as error:
        raise exc.TimeoutError(f"its first answer: {error}") from error


@contextmanager
def rows_alone(connection: sa.Connection, query: sa.Select[Any]) -> Generator[Iterator[dict[str, Any]]]:
    """Yield the rows of a query. Only one row is fetched at a time, because each cell may be large.

    psycopg streams the rows in one answer. The drivers of other database servers may send a request for each row.
    """
    if connection.dialect.driver == "psycopg":
        with closing(_streamed(connection, query)) as rows:  # Close the stream: an open stream locks the connection.
            yield rows
        return
    with connection.execution_options(yield_per=1).execute(query) as result:
        yield (dict(row) for row in result.mappings())


def _streamed(connection: sa.Connection, query: sa.Select[Any]) -> Generator[dict[str, Any]]:
    compiled = query.compile(connection, compile_kwargs={"render_postcompile": True})
    names, driver = [each.name for each in query.selected_columns], connection.connection.dbapi_connection
    cursor: Any = driver.cursor() if driver else None
    try:
        with closing(cursor.stream(compiled.string, compiled.params)) as rows:
            yield from (dict(zip(names, row, strict=True)) for row in rows)
    except connection.dialect.loaded_dbapi.Error as error:
        raise exc.DBAPIError(compiled.string, None, error) from error


@contextmanager
def answering(connection: sa.Connection, seconds: float | None = ANSWER_SECONDS) -> Generator[None]:
    """Cancel the work of PostgreSQL or SQLite on a connection when the time is over. Raise SQLAlchemy's TimeoutError.

    If a server does not react to the cancellation, close the connection. Otherwise the client would wait forever.
    """
    driver: Any = connection.connection.dbapi_connection
    if seconds is not None and connection.dialect.name == "sqlite":
        with _sqlite_answering(driver, seconds):
            yield
        return
    if seconds is None or connection.dialect.name != "postgresql" or not hasattr(driver, "fileno"):
        yield
        return
    is_over = Event()
    with socket.socket(fileno=os.dup(driver.fileno())) as socket_copy:
        timers = (
            Timer(seconds, _cancel, [driver, is_over]),
            Timer(seconds + min(_CANCEL_SECONDS, seconds), shut, [socket_copy]),
        )
        try:
            for timer in timers:
                timer.daemon = True
                timer.start()
            yield
        except exc.SQLAlchemyError as error:
            raise exc.TimeoutError(f"no answer within {seconds:g} s") if is_over.is_set() else error from error
        finally:
            for timer in timers:
                timer.cancel()


@contextmanager
def _sqlite_answering(driver: Any, seconds: float) -> Generator[None]:
    """Interrupt a query of SQLite after `seconds`, and raise TimeoutError.

    SQLite runs in this process, and a view may be a query that never ends.
    """
    end = monotonic() + seconds
    # The progress handler does not run while SQLite waits for a lock.
    driver.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")
    driver.set_progress_handler(lambda: monotonic() > end, _SQLITE_STEPS)
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise exc.TimeoutError(f"no answer within {seconds:g} s") if monotonic() > end else error from error
    finally:
        driver.set_progress_handler(None, 0)


def _cancel(driver: Any, is_over: Event) -> None:
    is_over.set()
    # The query may have just ended. If it cannot be canceled, `shut` closes the connection later.
    with suppress(Exception):
        # psycopg's older `cancel` would hold the GIL until the server answers.
        driver.cancel_safe(timeout=_CANCEL_SECONDS)


def engine_of(url: str) -> sa.Engine:
    """Return an engine without a pool: a pooled connection may lead to a server that no longer answers."""
    return sa.create_engine(url, poolclass=sa.NullPool, connect_args=connect_args(url))


@contextmanager
def translated(url: str, kind: type[FeedAssetsError]) -> Generator[None]:
    """Turn errors of a database or its driver into errors of the class `kind`, without the password."""
    try:
        yield
    except (exc.SQLAlchemyError, ImportError) as error:
        message = excerpt(str(getattr(error, "orig", None) or error)[:LONGEST_REASON])  # A view may raise megabytes.
        raise kind(
            f"{masked(url)}: {masked(message, url)}. Expected a database that answers at this SQLAlchemy URL, and its "
            "driver. Correct the URL or the database, then try again."
        ) from cause(error, url)


@cache
def _reader(url: str) -> sa.Engine:
    engine = engine_of(url)
    event.listen(engine, "connect", load_all)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "do_connect", _refuse_to_make)
        event.listen(engine, "connect", _refuse_to_write)
        event.listen(engine, "connect", _add_moment)
        event.listen(engine, "connect", _limit_cells)
    if engine.dialect.name == "postgresql":  # A view may call functions that write as our role.
        engine.update_execution_options(postgresql_readonly=True)
    return engine


@cache
def _late_reader(url: str) -> sa.Engine:
    """Return an engine with a short connection timeout, whatever the URL says."""
    engine = _reader.__wrapped__(url)
    event.listen(engine, "do_connect", _hurry)
    return engine


def _hurry(_dialect: sa.Dialect, _record: object, _args: list[str], options: dict[str, Any]) -> None:
    if "connect_timeout" in options:  # Only PostgreSQL has this option.
        options["connect_timeout"] = LATE_SECONDS


def _refuse_to_make(_dialect: sa.Dialect, _record: object, args: list[str], _options: object) -> None:
    """Raise SourceUnavailable if the database file is missing. Otherwise SQLite would create it."""
    if not Path(args[0]).is_file():
        raise SourceUnavailable(f"There is no SQLite database {args[0]}: correct the path, or have its owner make it.")


def _refuse_to_write(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in ("query_only=ON", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _add_moment(connection: Any, _record: ConnectionPoolEntry) -> None:
    connection.create_function(MOMENT, 1, moment, deterministic=True)


def _limit_cells(connection: Any, _record: ConnectionPoolEntry) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITE_CELL)


def columns_of(
    connection: sa.Connection,
    table: str,
    schema: str | None,
    needed: Iterable[str],
    cure: str = "Declare the name of an existing column.",
) -> Types:
    """Return the columns of a table or view, with their types. For a domain, return the type that it is based on.

    Raise SourceUnavailable if a needed column is missing, or if the table's description is too long.
    """
    if connection.dialect.name == "postgresql":
        _refuse_long(connection, table, schema)
    inspector, name = sa.inspect(connection), f"{schema}.{table}" if schema else table
    where = masked(connection.engine.url.render_as_string())
    try:
        column_types = {column["name"]: _base(column["type"]) for column in inspector.get_columns(table, schema)}
    except exc.NoSuchTableError:
        names = sorted([*inspector.get_table_names(schema), *inspector.get_view_names(schema)])[:20]
        table_names = excerpt(", ".join(names)) or "none"
        raise SourceUnavailable(
            f"{where} has no table {name}: found {table_names}. Correct the name or the schema, or grant SELECT on it."
        ) from None
    if missing := [column for column in needed if column not in column_types]:
        raise SourceUnavailable(
            f"{where}: table {name} has no column {', '.join(missing)}: found {excerpt(', '.join(column_types))}. "
            f"{cure}"
        )
    return column_types


def _refuse_long(connection: sa.Connection, table: str, schema: str | None) -> None:
    """Raise SourceUnavailable if SQLAlchemy would fetch too many bytes to describe a table's columns."""
    name = connection.dialect.identifier_preparer.format_table(sa.table(table, schema=schema))
    size = connection.execute(_DESCRIPTION, {"table": name}).scalar_one()
    if size > LONGEST_DESCRIPTION:
        raise SourceUnavailable(
            f"{masked(connection.engine.url.render_as_string())}: the comments and defaults of the columns of {name}, "
            f"and those of the database's domains, have {size:,} bytes: expected at most {LONGEST_DESCRIPTION:,}. Have "
            "their owners shorten them."
        )


def _base(kind: sa.types.TypeEngine[Any]) -> sa.types.TypeEngine[Any]:
    """Return the type that a domain of PostgreSQL is based on. The driver returns values of this type."""
    return _base(kind.data_type) if isinstance(kind, pg.DOMAIN) else kind
