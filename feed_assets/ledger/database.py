"""Opening the ledger: its engine, its transactions, its migrations."""

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
from feed_assets.core.secrets import cause, shown
from feed_assets.ledger.sessions import CHANGES, LOCK_SECONDS, PREPARE, WRITES, connect_args
from feed_assets.ledger.tables import cursor, log_lock

MIGRATIONS = Path(__file__).with_name("migrations")


class Ledger:
    """A ledger: short transactions on one SQL database, never held over Spark or the network."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        """A connection that reads one state of the ledger."""
        with _translated(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def write(self) -> Generator[sa.Connection]:
        """One writing transaction that changes nothing others listen to; rolled back by an exception."""
        with self._writing(WRITES) as connection:
            yield connection

    @contextmanager
    def change(self) -> Generator[sa.Connection]:
        """One writing transaction that may append to the change log (`log.append`); rolled back by an exception.

        These queue from their first statement on: what one of them reads, no other has half changed.
        """
        with self._writing(CHANGES) as connection:
            yield connection

    @contextmanager
    def _writing(self, what: str) -> Generator[sa.Connection]:
        with (
            _translated(),
            self.engine.connect().execution_options(write=what) as connection,
            connection.begin(),
        ):
            yield connection


_LOCKED = "55P03"
_FULL = re.compile(r"disk is full|No space left on device|could not extend file")
_UNAVAILABLE = re.compile(
    r"SQLITE_(BUSY|LOCKED|CANTOPEN|READONLY|IOERR|PERM|PROTOCOL)|08|25006|25P03|28|42501|53|57P|58"
)
"""SQLite's names and PostgreSQL's states of a database that cannot be reached or written.

Others are mistakes of ours, such as a table that is not there or a deadlock, or somebody's who cancels a query.
"""


@contextmanager
def _translated() -> Generator[None]:
    """Raise DiskFull or LedgerUnavailable for what a database says of itself; errors of a statement are our own."""
    try:
        yield
    except exc.DBAPIError as error:
        said = str(error.orig).strip().partition("\n")[0]
        if _FULL.search(said):
            raise DiskFull(f"The ledger's disk is full ({said}). Make room, then try again.") from error
        if _code(error) == _LOCKED:
            raise LedgerUnavailable(
                f"The ledger is locked for more than {LOCK_SECONDS} s by another transaction ({said}). Look who holds "
                "it: pg_stat_activity shows the oldest xact_start. End that process, then try again."
            ) from error
        if not _is_unavailable(error):
            raise
        raise LedgerUnavailable(f"The ledger's database failed ({said}). Check it, then try again.") from error


def _is_unavailable(error: exc.DBAPIError) -> bool:
    """Whether a database cannot be reached or written. psycopg has no state where it found no server, or lost it."""
    code = _code(error)
    return bool(_UNAVAILABLE.match(code)) if code else isinstance(error, exc.OperationalError)


def _code(error: exc.DBAPIError) -> str | None:
    return getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "sqlstate", None)


@cache
def open_ledger(url: SecretStr | str) -> Ledger:
    """Open the ledger at a SQLAlchemy URL, once for each process, and bring its tables up to date.

    Raises LedgerUnavailable if there is no such database, or no driver for it.
    """
    text = _text(url)
    with ExitStack() as opening:
        ledger = opening.enter_context(_for_a_look(text))
        with _opening(text, exc.OperationalError, LedgerUnavailable):
            _migrate(ledger)
        opening.pop_all()  # It stays open, as it can be used.
    return ledger


def _text(url: SecretStr | str) -> str:
    return url if isinstance(url, str) else url.get_secret_value()


def found_ledger(url: SecretStr | str) -> Ledger:
    """Open a ledger that is there: for who only reads. Raises LedgerUnavailable where it would have to be made."""
    if (file := file_of(url)) and not file.is_file():
        raise LedgerUnavailable(
            f"there is no ledger at {file}: `feed-assets run` and `feed publish` make it. Run one of "
            "them, or correct DAGSTER_HOME or FEED_ASSETS_LEDGER."
        )
    return open_ledger(url)


def file_of(url: SecretStr | str) -> Path | None:
    """The file of a ledger on SQLite. Raises LedgerUnavailable for what is no URL."""
    with _opening(_text(url), exc.ArgumentError, ValueError):
        parts = sa.make_url(_text(url))
    return Path(parts.database or "") if parts.get_backend_name() == "sqlite" else None


@contextmanager
def _opening(url: str, *errors: type[Exception]) -> Generator[None]:
    """Turn these errors into one about the URL, or what stands behind it: that is what a person has to look at."""
    try:
        yield
    except errors as error:
        said = shown(str(error).partition("\n")[0], url).rstrip(".")
        raise LedgerUnavailable(
            f"The ledger cannot be opened at FEED_ASSETS_LEDGER={shown(url)}: {said}. {_EXPECTED[_is_url(error)]}"
        ) from cause(error, url)


def _is_url(error: Exception) -> bool:
    """Whether an error is about a URL or its driver, not about the database that it leads to."""
    return not isinstance(error, LedgerUnavailable | exc.DBAPIError)


_EXPECTED = {
    True: "Expected sqlite:///… or postgresql+psycopg://user:password@host:5432/database; the latter needs `pip "
    "install 'feed-assets[postgres]'`.",
    False: "Expected a database that is there, in which this role has its rights; if they are its owner's to give or "
    "to use, have the owner run `feed-assets ledger upgrade` and grant (docs/security.md).",
}


def _migrate(ledger: Ledger) -> None:
    """Upgrade under the writer's lock: a second process waits, and then finds nothing to do."""
    # Here, not above: who only loads definitions does not pay for it.
    from alembic import command
    from alembic.config import Config

    found, newest = _schema(ledger), _newest_schema()
    if found == newest:
        return
    if found and newest and found > newest:
        raise LedgerUnavailable(
            f"The ledger has the schema {found}, of a later version of feed_assets: expected up to {newest}. Use that "
            "version here, too."
        )
    _make_lock(ledger)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with ledger.change() as connection:  # Once it is the only one it looks again: alembic does.
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _make_lock(ledger: Ledger) -> None:
    """Make what writers queue for, before the first of them does. Of two at once one hears that it is there."""
    try:
        with ledger.write() as connection:
            log_lock.create(connection, checkfirst=True)
    except exc.DBAPIError as error:
        if _code(error) not in _IS_THERE:
            raise


_IS_THERE = ("23505", "42710", "42P07")
"""PostgreSQL's states for a name that is taken: not committed yet, a type's already, or a table's."""


def _newest_schema() -> str | None:
    from alembic.script import ScriptDirectory

    return ScriptDirectory(str(MIGRATIONS)).get_current_head()


def _schema(ledger: Ledger) -> str | None:
    from alembic.runtime.migration import MigrationContext

    with ledger.read() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def _as_it_is(url: str) -> Ledger:
    with _opening(url, exc.ArgumentError, ImportError, KeyError):
        engine = sa.create_engine(url, connect_args=connect_args(url))
        PREPARE[engine.dialect.name](engine)
    return Ledger(engine)


@contextmanager
def _for_a_look(url: str) -> Generator[Ledger]:
    """A ledger as it is, whose connections end with the block."""
    ledger = _as_it_is(url)
    try:
        yield ledger
    finally:
        ledger.engine.dispose()


def schema_of(ledger_url: SecretStr) -> tuple[str | None, str | None]:
    """The schema's version in a database, which is left as it is, and the newest.

    Raises LedgerUnavailable if it cannot be written.
    """
    url = _text(ledger_url)
    with _for_a_look(url) as ledger:
        found = _schema(ledger)
        with _opening(url, exc.OperationalError, LedgerUnavailable), ledger.write() as connection:
            if found:  # Who uses a ledger need not have the right to make tables.
                put_cursors(connection, {"probe": ""})
            else:
                connection.exec_driver_sql("CREATE TABLE feed_assets_probe (n INTEGER)")
            connection.rollback()
        return found, _newest_schema()


def clock_of(url: SecretStr) -> datetime:
    """What a database server takes for the time."""
    with _for_a_look(_text(url)) as ledger, ledger.read() as connection:
        return connection.execute(sa.select(sa.func.now())).scalar_one()


def get_cursor(connection: sa.Connection, name: str) -> str | None:
    """The position in a foreign place that has this name, None if it was never put."""
    return connection.execute(sa.select(cursor.c.value).where(cursor.c.name == name)).scalar()


def get_cursors(connection: sa.Connection, names: Collection[str]) -> dict[str, str]:
    """Those of some positions that were put."""
    rows = connection.execute(sa.select(cursor.c.name, cursor.c.value))
    return {name: value for name, value in rows if name in names}


def put_cursors(connection: sa.Connection, positions: Mapping[str, str]) -> None:
    """Set positions in foreign places, by name: of sources that are read, of folders that are looked through."""
    upsert(connection, cursor, [{"name": name, "value": value} for name, value in positions.items()], ["value"])


def drop_cursor(connection: sa.Connection, name: str) -> bool:
    """Forget a position; whether there was one."""
    return bool(connection.execute(sa.delete(cursor).where(cursor.c.name == name)).rowcount)


_INSERT = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def insert_into(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insert that can say what becomes of a row that is there."""
    return _INSERT[connection.dialect.name](table)


def upsert(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]
) -> None:
    """Insert rows; of those whose primary key is there, set these columns."""
    insert = insert_into(connection, table)
    values = {name: insert.excluded[name] for name in columns}
    if rows:
        connection.execute(insert.on_conflict_do_update(index_elements=[*table.primary_key], set_=values), rows)


def insert_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert those of some rows whose primary key is not there."""
    if rows:
        connection.execute(insert_into(connection, table).on_conflict_do_nothing(), rows)
