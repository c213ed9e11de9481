"""PostgreSQL from version 16 on. Chunks are sent by COPY FROM STDIN."""

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg

from feed_assets.core.errors import InvalidSetting, InvalidShape, LoadFailed, TableBusy, WarehouseUnavailable
from feed_assets.core.secrets import masked
from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.engines import IS_ANOTHERS, Connection, Engine
from feed_assets.warehouse.load_files import ChunkGroup
from feed_assets.warehouse.shapes import PARTITION, Kind, Shape
from feed_assets.warehouse.statements import DELETED, STATE

_LONGEST_NAME = 63
"""The most bytes of an identifier: PostgreSQL silently cuts a longer one."""

_LONGEST_KEY = 2600
"""The most bytes of a row's key. A key of this size always fits into an index."""

_OTHER_BYTES = 16
"""The most bytes of a key column that is not a text."""

_DIGITS = {"bytes": " / 2"}
"""Divisors for kinds that are staged with two digits per byte."""

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

_UNTRUSTED = (
    "NOT r.rolsuper AND r.rolname NOT IN (current_user, 'pg_database_owner') "
    "AND r.oid <> (SELECT datdba FROM pg_database WHERE datname = current_database()) AND "
    "((SELECT rolsuper FROM pg_roles WHERE rolname = current_user) OR NOT pg_has_role(current_user, r.oid, 'USAGE'))"
)
"""The SQL condition that an owner `r` gets more rights by our use of its object. A superuser is in every role."""

_STATE_TABLES = (
    f"pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = {literal(STATE)} "
    "AND c.relkind IN ('r', 'p')"
)
_OWNERS = (
    "SELECT 'SCHEMA', quote_ident(n.nspname), r.rolname, current_user FROM pg_namespace n "
    f"JOIN pg_roles r ON r.oid = n.nspowner WHERE n.nspname IN ({{schemas}}) AND {_UNTRUSTED} "
    "UNION ALL SELECT 'TABLE', format('%I.%I', n.nspname, c.relname), r.rolname, current_user "
    f"FROM {_STATE_TABLES} JOIN pg_roles r ON r.oid = c.relowner WHERE {_UNTRUSTED} ORDER BY 1, 2"
)
_PLANTED = (
    "SELECT 'TRIGGER', quote_ident(t.tgname), format('%I.%I', n.nspname, c.relname) "
    f"FROM {_STATE_TABLES} JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal "
    "UNION ALL SELECT 'RULE', quote_ident(w.rulename), format('%I.%I', n.nspname, c.relname) "
    f"FROM {_STATE_TABLES} JOIN pg_rewrite w ON w.ev_class = c.oid ORDER BY 1, 2"
)

_RIGHTS = {"database": "CREATE", "schema": "USAGE, CREATE", "table": "SELECT, INSERT, UPDATE, DELETE"}

_READ_BYTES = 1 << 20

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
        """Return the first schema of the user's `search_path`. Raise InvalidSetting if it names none that exists."""
        with self._connected() as connection:
            [(name,)] = connection.execute("SELECT pg_catalog.current_schema()")
        if name is None:
            raise InvalidSetting(
                "the search_path of the warehouse's user names no schema that exists: expected the one for the loaded "
                "tables. Create it, or set another one with ALTER ROLE."
            )
        return name

    def table(self, name: str) -> str:
        """Return the table's name with its schema, because no session has this schema in its `search_path`."""
        return f"{quoted(self._first_schema)}.{quoted(name)}"

    @property
    def schema(self) -> str:
        """Return the schema of the loaded tables, as a text."""
        return literal(self._first_schema)

    def misplaced(self, connection: Connection, table: str, /) -> str | None:
        """Return the schema. A new schema, such as one named like the user, may come first in the `search_path`."""
        rows = connection.execute(
            "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE c.relkind IN ('r', 'p') AND c.relname = {literal(table)} AND n.nspname <> {literal(DELETED)} "
            "AND pg_get_userbyid(c.relowner) = current_user"
        )
        schemas = [name for (name,) in rows]
        return None if not schemas or self._first_schema in schemas else min(schemas)

    def planted(self, connection: Connection, /) -> str:
        """Return a message for schemas and state tables of an untrusted owner, and triggers and rules on these tables.

        Triggers, rules and defaults run with the rights of the loader. A schema's owner can drop all that is in it.
        """
        schemas = ", ".join(map(literal, (STATE, DELETED, self._first_schema)))
        for kind, name, owner, user in connection.execute(_OWNERS.format(schemas=schemas)):
            return (
                f"the {kind.lower()} {name} belongs to {owner}: expected {user}, the database's owner, a superuser or "
                f"a role that {user} is in, or {owner} could run code with the rights of {user}. If this role made it "
                f"unasked, drop it. Otherwise have a superuser execute: ALTER {kind} {name} OWNER TO {quoted(user)};"
            )
        for kind, name, table in connection.execute(_PLANTED):
            return (
                f"{table} has a {kind.lower()} {name}: expected none, because it runs with the rights of the loader. "
                f"Have the owner of the table execute: DROP {kind} {name} ON {table};"
            )
        return ""

    @contextmanager
    def open(self) -> Generator["_Connection"]:
        """Yield a connection until the block ends.

        Operators and functions are found only in `pg_catalog`. Otherwise a role that may create objects in a schema of
        the `search_path` could add an operator, which our statements would then run with the loader's rights. For the
        same reason a policy of another role for the rows of a table is an error, and is not run (`row_security`).
        """
        with self._connected() as connection:
            connection.execute(
                "SET search_path = pg_catalog, pg_temp; SET standard_conforming_strings = on; "
                f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'; SET lock_timeout = '{WAIT_SECONDS}s'; "
                "SET row_security = off; "
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
            )
        with opened:
            _refuse_old(opened.info.server_version)
            yield _Connection(opened, url)

    def bytes_of(self, text: str) -> str:
        """Return SQL for the bytes, with decode."""
        return f"decode({text}, 'hex')"

    def is_wrong(self, text: str, kind: Kind) -> str:
        """Return the SQL condition that a text is not a valid value of a column type.

        PostgreSQL's own function decides, which exists since version 16.
        """
        return f"NOT pg_input_is_valid({text}, {literal(self.type_of(kind))})"

    def limits(self, shape: Shape) -> Iterator[tuple[str, str]]:
        """Yield the condition for a key that the index cannot store."""
        texts = [each for each in shape.key_columns if self.staged(each.kind) == "text"]
        if texts:
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

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with translated(self._url, self._opened):
            cursor = self._opened.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def copy(self, table: str, columns: Mapping[str, str], batch: ChunkGroup) -> None:
        self.execute(f"ALTER TABLE {table} ALTER COLUMN {PARTITION} SET DEFAULT {batch.partition}")
        names = ", ".join(map(quoted, columns))
        statement = rf"COPY {table} ({names}) FROM STDIN (FORMAT csv, NULL '\N')"
        with translated(self._url, self._opened), self._opened.cursor().copy(statement.encode()) as copy:
            for each in batch.copies:
                with each.path.open("rb") as file:
                    while data := file.read(_READ_BYTES):
                        copy.write(data)


@contextmanager
def translated(url: str, opened: psycopg.Connection | None = None) -> Generator[None]:
    """Translate the driver's errors into ours: TableBusy or WarehouseUnavailable if temporary, else LoadFailed.

    If the connection `opened` still works after a temporary error, only the current table is affected: a trigger may
    raise any SQLSTATE.
    """
    try:
        yield
    except _NEVER as error:
        raise LoadFailed(f"the warehouse cannot store it: {masked(' '.join(str(error).split()), url)}") from None
    except psycopg.errors.LockNotAvailable as error:
        raise TableBusy(
            f"the lock was not free within {WAIT_SECONDS} s: {masked(' '.join(str(error).split()), url)}. Somebody has "
            "the table open in a transaction: end it (pg_stat_activity shows whose it is)."
        ) from None
    except _MAY_BE_OVER as error:
        message = masked(" ".join(str(error).split()), url)
        if opened and _works(opened):
            raise TableBusy(f"the server ended a statement: {message}. If a trigger raises this, remove it.") from None
        advice = next((each for part, each in _ADVICE.items() if part in message), "Check that it answers")
        raise WarehouseUnavailable(f"the warehouse cannot do it now: {message}. {advice}.") from None
    except psycopg.Error as error:
        message = masked(" ".join(str(error).split()), url)
        raise LoadFailed(f"the warehouse refuses: {message}{_what_to_do(error, url)}") from None


def _works(opened: psycopg.Connection) -> bool:
    """Return whether a connection still works after an error. Roll back its transaction."""
    try:
        opened.rollback()
        opened.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


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
