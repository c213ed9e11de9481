"""Snowflake's SQL on fakesnow, which refuses what would commit a transaction, and what Snowflake's pages refuse."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlglot
from sqlglot import exp

from feed_assets.warehouse.snowflake import Snowflake
from feed_assets.warehouse.snowflake_connection import SnowflakeConnection, connected, driver
from feed_assets_tests.support.servers import free_ports, wait_until

_CHANGES = (exp.Create, exp.Drop, exp.Alter, exp.Comment)
"""Statements that end a transaction: "DDL statements are always autocommitted", with CREATE TABLE AS among them
(https://docs.snowflake.com/en/sql-reference/transactions).
"""


@contextmanager
def server() -> Iterator[str]:
    """Yield the URL of a schema in a server of fakesnow, which ends with the block."""
    [port] = free_ports(1)
    with subprocess.Popen(
        [sys.executable, "-m", "fakesnow", "-s", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: _listens(port), "fakesnow to answer")
            yield f"snowflake://fake:snow@fakesnow/DB/PUBLIC?host=127.0.0.1&port={port}&protocol=http"
        finally:
            process.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class SnowflakeStandIn(Snowflake):
    """Snowflake whose connection fails if a transaction changes a table. `statements` records all that it gets."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.statements: list[str] = []

    @contextmanager
    def open(self) -> Iterator[Any]:
        with connected(self._url, None, network_timeout=1) as opened:
            yield SnowflakeConnection(_Driver(opened, self.statements), self._url)


class _Driver:
    """The part of Snowflake's driver, connection and cursor, that an engine uses."""

    def __init__(self, opened: Any, statements: list[str]) -> None:
        self._opened, self._statements, self._is_within = opened, statements, False

    def cursor(self) -> "_Driver":
        return self

    def __enter__(self) -> "_Driver":
        self._cursor = self._opened.cursor()
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    @property
    def description(self) -> Any:
        return self._cursor.description

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def execute(self, statement: str, values: Any = None) -> None:
        self._statements.append(statement)
        found = parsed(statement)
        if said := refused(found):
            raise driver.ProgrammingError(said, errno=1003, sqlstate="42000")
        assert not (self._is_within and isinstance(found, _CHANGES)), f"it would commit the transaction: {statement}"
        if isinstance(found, exp.Transaction | exp.Commit | exp.Rollback):
            self._is_within = isinstance(found, exp.Transaction)
        if isinstance(found, exp.Comment):  # fakesnow does not know it, so only look whether the column exists.
            statement = f"SELECT {found.this.this.sql('snowflake')} FROM {_table_of(found)} LIMIT 0"
        self._cursor.execute(statement, values)


def _table_of(comment: exp.Expression) -> str:
    column = comment.this
    return ".".join(exp.to_identifier(each, quoted=True).sql("snowflake") for each in (column.db, column.table) if each)


def parsed(statement: str) -> Any:
    """Parse a statement with sqlglot's Snowflake dialect; fail if sqlglot only accepts it as an opaque command."""
    found = sqlglot.parse_one(statement, dialect="snowflake")
    assert not isinstance(found, exp.Command), f"sqlglot does not read it: {statement}"
    return found


def refused(found: Any) -> str:
    """Return why Snowflake would refuse it, or an empty result."""
    # https://docs.snowflake.com/en/sql-reference/sql/insert: it has no ON CONFLICT and no RETURNING.
    if found.find(exp.OnConflict, exp.Returning, exp.Index):
        return "syntax error: ON CONFLICT, RETURNING, INDEX"
    # https://docs.snowflake.com/en/sql-reference/sql/select: DISTINCT has no ON.
    if any(each.args.get("on") for each in found.find_all(exp.Distinct)):
        return "syntax error: SELECT DISTINCT ON"
    # https://docs.snowflake.com/en/sql-reference/sql/delete: the table has no alias.
    if isinstance(found, exp.Delete) and found.this.alias:
        return "syntax error: DELETE has no alias"
    return _refused_alter(found) if isinstance(found, exp.Alter) else ""


def _refused_alter(found: Any) -> str:
    """Return what https://docs.snowflake.com/en/sql-reference/sql/alter-table refuses.

    "You cannot specify IF NOT EXISTS if you are also specifying DEFAULT"; a column's default cannot be set later, and a
    type changes only to a longer text or to more digits of the same scale.
    """
    for each in found.args["actions"]:
        if isinstance(each, exp.ColumnDef) and (each.constraints or len(found.args["actions"]) > 1):
            return "ADD COLUMN with a constraint, or several"
        if isinstance(each, exp.AlterColumn):
            kind = each.args.get("dtype")
            if kind is None or kind.this not in (exp.DataType.Type.VARCHAR, exp.DataType.Type.DECIMAL):
                return "ALTER COLUMN"
    return ""
