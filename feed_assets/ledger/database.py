"""The database of the ledger: its engine, its transactions, its migrations."""

import re
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import SecretStr
from sqlalchemy import exc
from sqlalchemy.dialects import postgresql, sqlite

from feed_assets.core.errors import DiskFull, LedgerUnavailable
from feed_assets.core.secrets import cause, masked
from feed_assets.ledger.sessions import CHANGES, LOCK_SECONDS, PREPARE, WRITES, connect_args, shared_schema
from feed_assets.ledger.tables import cursor, log_lock

MIGRATIONS = Path(__file__).with_name("migrations")
BASELINE = "0020"
"""Schema of the first release. Ledgers with an older schema cannot be upgraded."""


class Ledger:
    """A ledger: short transactions on one SQL database. Never keep a transaction open during Spark or network work."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        """Open a connection that reads from one consistent state of the ledger."""
        with _translated(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Generator[sa.Connection]:
        """Open a writing transaction. Call `lock_log` before you append to the log.

        An exception rolls the transaction back.
        """
        with self._writing(WRITES) as connection:
            yield connection

    @contextmanager
    def change(self) -> Generator[sa.Connection]:
        """Open a writing transaction that may append to the change log (`log.append`).

        An exception rolls the transaction back. Such transactions run one after the other, so none of them reads a
        half-made change of another.
        """
        with self._writing(CHANGES) as connection:
            yield connection

    @contextmanager
    def _writing(self, mode: str) -> Generator[sa.Connection]:
        with (
            _translated(),
            self.engine.connect().execution_options(write=mode) as connection,
            connection.begin(),
        ):
            yield connection


_LOCKED = "55P03"
_FULL = re.compile(r"disk is full|No space left on device|could not extend file")
_UNAVAILABLE = re.compile(
    r"SQLITE_(BUSY|LOCKED|CANTOPEN|READONLY|IOERR|PERM|PROTOCOL)|08|25006|25P03|28|42501|53|57P|58"
)
"""Errors of a database that cannot be reached or written: SQLite's names and PostgreSQL's codes.

Any other error is a bug, such as a missing table or a deadlock, or comes from a cancelled query.
"""


@contextmanager
def _translated() -> Generator[None]:
    """Raise DiskFull or LedgerUnavailable if the database itself fails. Errors of SQL statements pass unchanged."""
    try:
        yield
    except exc.DBAPIError as error:
        message = str(error.orig).strip().partition("\n")[0]
        if _FULL.search(message):
            raise DiskFull(f"The ledger's disk is full ({message}). Make room, then try again.") from error
        if _code(error) == _LOCKED:
            raise LedgerUnavailable(
                f"The ledger is locked for more than {LOCK_SECONDS} s by another transaction ({message}). Find the "
                "transaction with the oldest xact_start in pg_stat_activity. End its process, then try again."
            ) from error
        if not _is_unavailable(error):
            raise
        raise LedgerUnavailable(f"The ledger's database failed ({message}). Check it, then try again.") from error


def _is_unavailable(error: exc.DBAPIError) -> bool:
    """Return whether a database cannot be reached or written. If no server answers, psycopg's error has no code."""
    code = _code(error)
    return bool(_UNAVAILABLE.match(code)) if code else isinstance(error, exc.OperationalError)


def _code(error: exc.DBAPIError) -> str | None:
    return getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None)


@cache
def open_ledger(url: SecretStr | str) -> Ledger:
    """Open the ledger at a SQLAlchemy URL, once for each process, and bring its tables up to date.

    Raise LedgerUnavailable if the database does not exist, or if its driver is not installed.
    """
    text = _text(url)
    with ExitStack() as opening:
        ledger = opening.enter_context(_for_a_look(text))
        with _opening(text, exc.OperationalError, LedgerUnavailable):
            _refuse_other_encoding(ledger)
            _refuse_shared_schema(ledger)
            _migrate(ledger)
        opening.pop_all()  # The ledger can be used, so leave it open.
    return ledger


def _text(url: SecretStr | str) -> str:
    return url if isinstance(url, str) else url.get_secret_value()


def found_ledger(url: SecretStr | str) -> Ledger:
    """Open an existing ledger for a command that only reads. Raise LedgerUnavailable if it does not exist."""
    if (file := file_of(url)) and not file.is_file():
        raise LedgerUnavailable(
            f"there is no ledger at {file}: `feed-assets run` and `feed publish` make it. Run one of "
            "them, or correct DAGSTER_HOME or FEED_ASSETS_LEDGER."
        )
    return open_ledger(url)


def file_of(url: SecretStr | str) -> Path | None:
    """Return the file of a SQLite ledger. Return None for other databases.

    Raise LedgerUnavailable for an invalid URL.
    """
    with _opening(_text(url), exc.ArgumentError, ValueError):
        parts = sa.make_url(_text(url))
    return Path(parts.database or "") if parts.get_backend_name() == "sqlite" else None


@contextmanager
def _opening(url: str, *errors: type[Exception]) -> Generator[None]:
    """Turn these errors into LedgerUnavailable. The message says whether to check the URL or the database."""
    try:
        yield
    except errors as error:
        problem = masked(str(error).partition("\n")[0], url).rstrip(".")
        raise LedgerUnavailable(
            f"The ledger cannot be opened at FEED_ASSETS_LEDGER={masked(url)}: {problem}. {_EXPECTED[_is_url(error)]}"
        ) from cause(error, url)


def _is_url(error: Exception) -> bool:
    """Return whether an error is about a URL or its driver, not about its database."""
    return not isinstance(error, LedgerUnavailable | exc.DBAPIError)


_EXPECTED = {
    True: "Expected sqlite:///… or postgresql+psycopg://user:password@host:5432/database; the latter needs `pip "
    "install 'feed-assets[postgres]'`.",
    False: "Expected an existing database in which this role has the rights that it needs. If only the database's "
    "owner has them, ask the owner to run `feed-assets ledger upgrade` and to grant the rights (docs/security.md).",
}


def _refuse_other_encoding(ledger: Ledger) -> None:
    """Raise LedgerUnavailable if a PostgreSQL database cannot store every text, before a text of others stops it."""
    if ledger.engine.dialect.name != "postgresql":
        return
    with ledger.read() as connection:
        encoding = connection.exec_driver_sql("SELECT pg_catalog.current_setting('server_encoding')").scalar()
    if encoding != "UTF8":
        raise LedgerUnavailable(
            f"the database's encoding {encoding} cannot store every text: expected UTF8. Create a new database with "
            "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0; and use that one"
        )


def _refuse_shared_schema(ledger: Ledger) -> None:
    if ledger.engine.dialect.name != "postgresql":
        return
    with ledger.read() as connection:
        schema = shared_schema(connection)
    if schema:
        raise LedgerUnavailable(
            f"every role that may connect could create objects in its schema {schema}, and so run statements with our "
            f"rights. Have a superuser execute REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;"
        )


def _migrate(ledger: Ledger) -> None:
    """Upgrade the schema under the writer's lock. A second process waits, and then finds nothing to do."""
    schema, newest = _schema(ledger), _newest_schema()
    if schema == newest:
        return
    if schema and newest and schema > newest:
        raise LedgerUnavailable(
            f"The ledger has the schema {schema}, of a later version of feed_assets: expected up to {newest}. Use that "
            "version here, too."
        )
    if schema and schema < BASELINE:
        raise LedgerUnavailable(
            f"The ledger has the schema {schema}, from before the first release: expected {BASELINE} or later. Set "
            "FEED_ASSETS_LEDGER to a new database, or move the file away. Then run `feed-assets ledger rebuild --read "
            "--trust`, which records what is on the blackboard (docs/operations.md)."
        )
    # Imported here, because most processes find nothing to do, and Alembic takes longer to import than this check.
    from alembic import command
    from alembic.config import Config

    _make_lock(ledger)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with ledger.change() as connection:  # Alembic reads the version again while it holds the lock.
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _make_lock(ledger: Ledger) -> None:
    """Create the table that writers lock, before the first writer uses it. Another process may create it first."""
    try:
        with ledger.write() as connection:
            log_lock.create(connection, checkfirst=True)
    except exc.DBAPIError as error:
        if _code(error) not in _IS_THERE:
            raise


_IS_THERE = ("23505", "42710", "42P07")
"""PostgreSQL's error codes for a name that exists already: as an uncommitted table, a type, or a table."""


def _newest_schema() -> str | None:
    """Return the newest schema. Each migration's file begins with its schema, so that none has to be loaded."""
    return max((path.name.partition("_")[0] for path in MIGRATIONS.glob("versions/[0-9]*.py")), default=None)


def _schema(ledger: Ledger) -> str | None:
    """Return the schema that Alembic has noted in the database. Return None if the database has no tables of ours."""
    with ledger.read() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()


def _as_it_is(url: str) -> Ledger:
    with _opening(url, exc.ArgumentError, ImportError, KeyError):
        # With this encoding, a database in SQL_ASCII answers with texts, too, so that it can be refused.
        encoding = {"client_encoding": "utf8"} if url.startswith("postgresql+psycopg") else {}
        # Without this option, an insert on PostgreSQL has the count -1, also if its conflict left the row as it is.
        counting = {"preserve_rowcount": True}
        engine = sa.create_engine(url, connect_args=connect_args(url) | encoding, execution_options=counting)
        PREPARE[engine.dialect.name](engine)
    return Ledger(engine)


@contextmanager
def _for_a_look(url: str) -> Generator[Ledger]:
    """Open a ledger without an upgrade of its schema. Close its connections after the block."""
    ledger = _as_it_is(url)
    try:
        yield ledger
    finally:
        ledger.engine.dispose()


@contextmanager
def look(url: SecretStr | str) -> Generator[Ledger | None]:
    """Open an existing ledger to read it, without an upgrade of its schema. Yield None if it has no tables yet.

    Its connections are closed after the block. Raise LedgerUnavailable if the database does not answer.
    """
    if (file := file_of(url)) and not file.is_file():
        yield None
        return
    with _for_a_look(text := _text(url)) as ledger:
        with _opening(text, exc.OperationalError, LedgerUnavailable):
            has_tables = _schema(ledger) is not None
        yield ledger if has_tables else None


def schema_of(ledger_url: SecretStr) -> tuple[str | None, str | None]:
    """Return the schema's version in a database, and the newest version. The database is not changed.

    Raise LedgerUnavailable if the database cannot be written.
    """
    url = _text(ledger_url)
    with _for_a_look(url) as ledger:
        schema = _schema(ledger)
        with _opening(url, exc.OperationalError, LedgerUnavailable), ledger.write() as connection:
            if schema:  # A role that only uses the ledger may not create tables.
                put_cursors(connection, {"probe": ""})
            else:
                connection.exec_driver_sql("CREATE TABLE feed_assets_probe (n INTEGER)")
            connection.rollback()
        return schema, _newest_schema()


def clock_of(url: SecretStr) -> datetime:
    """Return the current time of a database server."""
    with _for_a_look(_text(url)) as ledger, ledger.read() as connection:
        return connection.execute(sa.select(sa.func.now())).scalar_one()


def get_cursor(connection: sa.Connection, name: str) -> str | None:
    """Return the stored position of a reader, such as a sensor, by its name. Return None if it was never stored."""
    return connection.execute(sa.select(cursor.c.value).where(cursor.c.name == name)).scalar()


def get_cursors(connection: sa.Connection, names: Collection[str]) -> dict[str, str]:
    """Return stored positions of readers by name. Positions that were never stored are missing."""
    rows = connection.execute(sa.select(cursor.c.name, cursor.c.value))
    return {name: value for name, value in rows if name in names}


def put_cursors(connection: sa.Connection, positions: Mapping[str, str]) -> None:
    """Store positions of readers by name, such as positions in event sources and in searched folders."""
    upsert(connection, cursor, [{"name": name, "value": value} for name, value in positions.items()], ["value"])


def drop_cursor(connection: sa.Connection, name: str) -> bool:
    """Delete the stored position of a reader. Return whether it existed."""
    return bool(connection.execute(sa.delete(cursor).where(cursor.c.name == name)).rowcount)


_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert_into(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Return an insert of the database's dialect, which supports ON CONFLICT."""
    return _INSERT[connection.dialect.name](table)


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]
) -> None:
    """Insert rows. If a row with the same primary key exists, update only these columns."""
    insert = insert_into(connection, table)
    values = {name: insert.excluded[name] for name in columns}
    if rows:
        connection.execute(insert.on_conflict_do_update(index_elements=[*table.primary_key], set_=values), rows)


def insert_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose primary key does not exist."""
    if rows:
        connection.execute(insert_into(connection, table).on_conflict_do_nothing(), rows)
