"""Databases that others own: opened to read, their errors translated into ours."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from feed_assets.core.errors import FeedAssetsError, SourceUnavailable
from feed_assets.core.secrets import cause, shown

Types = dict[str, sa.types.TypeEngine[object]]


@contextmanager
def reading(url: str) -> Generator[sa.Connection]:
    """A connection that only reads. Raises SourceUnavailable."""
    with translated(url, SourceUnavailable), _reader(url).connect() as connection:
        yield connection


@contextmanager
def translated(url: str, kind: type[FeedAssetsError]) -> Generator[None]:
    """Raise what a database or its driver raises as an error of this kind, without the password."""
    try:
        yield
    except (exc.SQLAlchemyError, ImportError) as error:
        said = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
        raise kind(
            f"{shown(url)}: {shown(said, url)}. Expected a database that answers at this SQLAlchemy URL, its driver "
            "installed. Correct the URL or the database, then try again."
        ) from cause(error, url)


@cache
def _reader(url: str) -> sa.Engine:
    try:
        parts = sa.make_url(url)
    except ValueError as error:  # Of a port that is no number.
        raise exc.ArgumentError(str(error)) from error
    if parts.get_backend_name() == "sqlite":
        engine = sa.create_engine(url, poolclass=sa.NullPool)  # One that is kept reads a file that was removed since.
        event.listen(engine, "do_connect", _refuse_to_make)
        event.listen(engine, "connect", _refuse_to_write)
        return engine
    return sa.create_engine(url, pool_pre_ping=True)


def _refuse_to_make(_dialect: sa.Dialect, _record: object, args: list[str], _options: object) -> None:
    """SQLite makes a database that is not there."""
    if not Path(args[0]).is_file():
        raise SourceUnavailable(f"There is no SQLite database {args[0]}: correct the path, or have its owner make it.")


def _refuse_to_write(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in ("query_only=ON", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def columns_of(connection: sa.Connection, table: str, schema: str | None, needed: Iterable[str]) -> Types:
    """The columns of a table or view with their types. Raises SourceUnavailable if one that is needed is not there."""
    inspector, name = sa.inspect(connection), f"{schema}.{table}" if schema else table
    where = shown(connection.engine.url.render_as_string())
    try:
        found = {column["name"]: column["type"] for column in inspector.get_columns(table, schema)}
    except exc.NoSuchTableError:
        there = (
            ", ".join(sorted([*inspector.get_table_names(schema), *inspector.get_view_names(schema)])[:20]) or "none"
        )
        raise SourceUnavailable(
            f"{where} has no table {name}: found {there}. Correct the name or the schema, or grant SELECT on it."
        ) from None
    if missing := [column for column in needed if column not in found]:
        raise SourceUnavailable(
            f"{where}: table {name} has no column {', '.join(missing)}: found {', '.join(found)}. Declare what "
            "their columns are called; None for what they do not have."
        )
    return found
