"""PostgreSQL from version 16 on. Chunks are sent by COPY FROM STDIN."""

import os
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from socket import SHUT_RDWR, socket
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg

from feed_assets.core.errors import InvalidSetting, InvalidShape, LoadFailed, TableBusy, WarehouseUnavailable
from feed_assets.core.message_words import LONGEST_REASON
from feed_assets.core.secrets import masked
from feed_assets.core.sql_text import literal, quoted
from feed_assets.core.time_limits import ended_after
from feed_assets.warehouse.engines import AS_TEXT, IS_ANOTHERS, MOST_OF_A_ROW, Connection, Engine
from feed_assets.warehouse.load_files import ChunkGroup
from feed_assets.warehouse.parquet_lines import line_files
from feed_assets.warehouse.postgresql_owners import planted_by_others
from feed_assets.warehouse.shapes import PARTITION, Kind, Shape
from feed_assets.warehouse.statements import DELETED, STATE

_LONGEST_NAME = 63
"""The most bytes of an identifier: PostgreSQL silently cuts a longer one."""

_LONGEST_KEY = 2600
"""The most bytes of a row's key. A key of this size always fits into an index."""

_OTHER_BYTES = 16
"""The most bytes of a key column that is not a text."""

_DIGITS = {"bytes": " / 2"}
"""SQL that turns the length of a staged text into bytes, for kinds that are staged with two digits per byte."""

_OLDEST = 160_000
"""The number of the oldest supported version, the first with pg_input_is_valid."""

_URL = "of its url in FEED_ASSETS_WAREHOUSES; in a password / ? # @ : [ ] and % are written as %2F and so on"
_ADVICE = {
    "password authentication failed": f"Correct the user and the password {_URL}",
    "no password supplied": f"Name the password {_URL}",
    "no pg_hba.conf entry": "Have its administrator let this user in from here (pg_hba.conf)",
    " does not exist": f"Correct the database or the user {_URL}",
    "could not translate host name": f"Correct the host {_URL}",
    "failed to resolve host": f"Correct the host {_URL}",
}
"""Advice by a part of the error text of a connection. These errors need a person: waiting does not help."""

_RIGHTS = {"database": "CREATE", "schema": "USAGE, CREATE", "table": "SELECT, INSERT, UPDATE, DELETE"}

_READ_BYTES = 1 << 20

_DEAD_PEER: Mapping[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Options of libpq with which a connection to a dead host ends after a minute. TCP itself takes two hours."""

FIRST_SECONDS = 10.0  # for the first answer of a server that has taken the login
WAIT_SECONDS = 5
"""The most seconds for which a load waits for a lock. New readers of the table wait behind the load meanwhile."""

IDLE_SECONDS = 30
"""Seconds after which the server aborts an idle transaction, so that a hanging loader does not block others."""

_NEVER = (psycopg.errors.ProgramLimitExceeded, psycopg.errors.StatementTooComplex, psycopg.errors.TooManyColumns)
"""Errors that the driver calls operational, although they concern only one table and a retry does not help."""

_MAY_BE_OVER = (psycopg.OperationalError, psycopg.errors.IdleInTransactionSessionTimeout)


class PostgreSQL(Engine):
    """A PostgreSQL server."""

    clock, json, has_keys, tells_deleted, most_digits = "clock_timestamp()", "jsonb", True, True, 1000

    own_columns = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})

    @cached_property
    def _first_schema(self) -> str:
        """Return the first schema of the user's `search_path`. Raise InvalidSetting if no schema in it exists."""
        with self._connected() as connection, ended_after(FIRST_SECONDS, connection.shut):
            [(name,)] = connection.execute("SELECT pg_catalog.current_schema()")
        if name is None:
            raise InvalidSetting(
                "the search_path of the warehouse's user names no schema that exists: expected the one for the loaded "
                "tables. Create it, or set another one with ALTER ROLE."
            )
        return name

    def table(self, name: str) -> str:
        """Return the table's name with its schema, because `open` sets a `search_path` without this schema."""
        return f"{quoted(self._first_schema)}.{quoted(name)}"

    @property
    def schema(self) -> str:
        """Return the schema of the loaded tables, as a text."""
        return literal(self._first_schema)

    def misplaced(self, connection: Connection, table: str, /) -> str | None:
        """Return the schema of an existing table if it is not the first schema of the `search_path`; else None.

        This happens if somebody has created a schema that comes earlier in the path, such as one named like the user.
        """
        rows = connection.execute(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.relkind IN ('r', 'p') AND c.relname = {literal(table)} AND n.nspname <> {literal(DELETED)} "
            "AND pg_get_userbyid(c.relowner) = current_user"
        )
        schemas = [name for (name,) in rows]
        return None if not schemas or self._first_schema in schemas else min(schemas)

    def planted(self, connection: Connection, is_load: bool, /) -> str:
        """Return a message if a schema or state table has an untrusted owner, or could run code; else ''.

        Triggers, rules and defaults run with the rights of the loader. An index's predicate runs with the rights of
        each reader, when the server plans a query. A schema's owner can drop all that is in it.
        """
        names = (STATE, DELETED, self._first_schema) if is_load else (STATE, DELETED)
        return planted_by_others(connection, names)

    @contextmanager
    def open(self) -> Generator["_Connection"]:
        """Yield a connection until the block ends.

        Operators and functions are found only in `pg_catalog`. Otherwise a role that may create objects in a schema of
        the `search_path` could add an operator, which our statements would run with the loader's rights. For the same
        reason, `row_security` is off: with a policy of another role, a statement fails and does not run it.
        """
        with self._connected() as connection:
            with ended_after(FIRST_SECONDS, connection.shut):
                connection.execute(
                    "SET search_path = pg_catalog, pg_temp; SET standard_conforming_strings = on; "
                    f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'; "
                    f"SET lock_timeout = '{WAIT_SECONDS}s'; SET row_security = off; "
                    "SET datestyle = ISO"  # A database or role may have another style, with other texts for dates.
                )
            yield connection

    @contextmanager
    def _connected(self) -> Generator["_Connection"]:
        url = self._url.replace("postgresql+psycopg:", "postgresql:", 1)
        with translated(url):
            opened = psycopg.connect(
                url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=10,
                client_encoding="utf8",
                application_name="feed_assets",
                **_DEAD_PEER,
            )
        with opened:
            _refuse_old(opened.info.server_version)
            yield _Connection(opened, url)

    def row_id(self, _: Shape, /) -> str:
        """Return the place of a row. If another role moves the row meanwhile, the primary key refuses the new one."""
        return "ctid"

    def bytes_of(self, text: str) -> str:
        """Return SQL that turns a text of hexadecimal digits into bytes, by PostgreSQL's `decode`."""
        return f"decode({text}, 'hex')"

    def is_wrong(self, text: str, kind: Kind) -> str:
        """Return the SQL condition that a text is not a valid value of a column type.

        PostgreSQL's own function decides. It exists since version 16.
        """
        if kind.name == "bytes":
            return f"{text} !~ '^([0-9a-f]{{2}})*$'"
        return f"NOT pg_input_is_valid({text}, {literal(self.type_of(kind))})"

    def row_json(self, texts: Mapping[str, str], /) -> str:
        """Return SQL for a JSON object of texts. Arrays have no limit, while a function takes 100 arguments."""
        names, values = ", ".join(map(literal, texts)), ", ".join(f"CAST({each} AS text)" for each in texts.values())
        return f"left(CAST(json_object(ARRAY[{names}]::text[], ARRAY[{values}]::text[]) AS text), {MOST_OF_A_ROW})"

    def limits(self, shape: Shape) -> Iterator[tuple[str, str]]:
        """Yield the condition for a key that the index cannot store. The index of a history has no key."""
        texts = [each for each in shape.key_columns if each.kind.name in {"text", *AS_TEXT}]
        if texts and not shape.is_history:
            other_bytes = _OTHER_BYTES * (len(shape.key) - len(texts))
            text_bytes = " + ".join(
                f"octet_length({quoted(each.name)}){_DIGITS.get(each.kind.name, '')}" for each in texts
            )
            yield f"{text_bytes} > {_LONGEST_KEY - other_bytes}", f"the key has more than {_LONGEST_KEY} bytes"

    def check(self, table: str, shape: Shape, /) -> None:
        """Raise InvalidShape also for names that PostgreSQL would cut, or reserves."""
        super().check(table, shape)
        if table.startswith("pg_"):
            raise InvalidShape(f"{table} is a name that PostgreSQL reserves. Give the topic another name.")
        for name in (table, *(each.name for each in shape.columns)):
            if len(name.encode()) > _LONGEST_NAME:
                raise InvalidShape(f"{name} is not a name in PostgreSQL: expected at most {_LONGEST_NAME} bytes.")


def _refuse_old(version: int) -> None:
    """Raise InvalidSetting for a server that cannot check whether a text is a valid value."""
    if version < _OLDEST:
        server_version, oldest = f"{version // 10_000}.{version % 10_000}", _OLDEST // 10_000
        raise InvalidSetting(
            f"the warehouse is PostgreSQL {server_version}: expected {oldest} or newer, which can check whether a "
            "text is a number or JSON. Upgrade it, or name another one."
        )


class _Connection:
    def __init__(self, opened: psycopg.Connection, url: str) -> None:
        self._opened, self._url = opened, url

    def execute(self, statement: str, values: Sequence[object] | None = None, /) -> list[tuple[Any, ...]]:
        with translated(self._url, self._opened):
            cursor = self._opened.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def shut(self) -> None:
        with suppress(psycopg.Error, OSError), socket(fileno=os.dup(self._opened.fileno())) as opened:
            opened.shutdown(SHUT_RDWR)

    def copy(self, table: str, columns: Mapping[str, str], batch: ChunkGroup) -> None:
        self.execute(f"ALTER TABLE {table} ALTER COLUMN {PARTITION} SET DEFAULT {batch.partition}")
        names = ", ".join(map(quoted, columns))
        statement = rf"COPY {table} ({names}) FROM STDIN (FORMAT csv, NULL '\N')"
        with (
            line_files(batch.copies) as paths,
            translated(self._url, self._opened),
            self._opened.cursor().copy(statement.encode()) as copy,
        ):
            for path in paths:
                with path.open("rb") as file:
                    while data := file.read(_READ_BYTES):
                        copy.write(data)


@contextmanager
def translated(url: str, opened: psycopg.Connection | None = None) -> Generator[None]:
    """Translate the driver's errors into ours: TableBusy or WarehouseUnavailable if temporary, else LoadFailed.

    If the connection `opened` still works after a temporary error, raise TableBusy, because only the current table is
    affected. For example, a trigger of the table may have raised the error, with any SQLSTATE.
    """
    try:
        yield
    except _NEVER as error:
        raise LoadFailed(f"the warehouse cannot store it: {_text(error, url)}") from None
    except psycopg.errors.LockNotAvailable as error:
        raise TableBusy(
            f"the lock was not free within {WAIT_SECONDS} s: {_text(error, url)}. Somebody has "
            "the table open in a transaction: end it (pg_stat_activity shows whose it is)."
        ) from None
    except (psycopg.errors.ReadOnlySqlTransaction, *_MAY_BE_OVER) as error:
        message = _text(error, url)
        if opened and _works(opened):
            raise TableBusy(f"the server ended a statement: {message}. If a trigger raises this, remove it.") from None
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
            raise WarehouseUnavailable(
                "the server is read-only now: expected one that is no standby. Wait for the end of a failover, or "
                f"correct the host {_URL}."
            ) from None
        advice = next((each for part, each in _ADVICE.items() if part in message), "Check that it answers")
        raise WarehouseUnavailable(f"the warehouse cannot do it now: {message}. {advice}.") from None
    except psycopg.Error as error:
        message = _text(error, url)
        raise LoadFailed(f"the warehouse refuses: {message}{_what_to_do(error, url)}") from None


def _text(error: psycopg.Error, url: str) -> str:
    """Return the text of an error in one line. A trigger may raise megabytes."""
    return masked(" ".join(str(error)[:LONGEST_REASON].split()), url)


def _works(opened: psycopg.Connection) -> bool:
    """Return whether a connection still works, and can write, after an error. Roll back its transaction."""
    try:
        opened.rollback()
        is_read_only = opened.execute("SHOW transaction_read_only").fetchone()
    except psycopg.Error:
        return False
    return is_read_only == ("off",)


def _what_to_do(error: psycopg.Error, url: str) -> str:
    if isinstance(error, psycopg.errors.DuplicateTable):
        return f". {IS_ANOTHERS}"
    if view := re.search(r"((?:materialized )?view) (.+) depends on ", str(error)):
        kind, name = view.groups()
        again = "Start the loader again, and then make it again, or have it read a copy of the table"
        return f". Have its owner execute: DROP {kind.upper()} {name}; {again}."
    match = re.search(r"permission denied for (database|schema|table) (\S+)", str(error))
    if not match:
        return ""
    kind, name = match.groups()
    user = unquote(urlsplit(url).username or "") or "USER"
    return f". Have its owner execute: GRANT {_RIGHTS[kind]} ON {kind.upper()} {name} TO {quoted(user)};"
