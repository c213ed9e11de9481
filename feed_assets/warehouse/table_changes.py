"""Changes of a table in a warehouse where each such statement commits, so that no transaction can undo them.

Before the first statement, all are stored in the state table `changes`, with the table's shape after them. After each
one, their count is stored. So the loader after a killed one continues with the statement that may have run already, in
a form that can be repeated. The shape is stored in the transaction that ends the change. Until then, the state tables
have the old one.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from feed_assets.core.errors import LoadFailed, WarehouseUnavailable
from feed_assets.core.sql_text import literal
from feed_assets.warehouse import load_state
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.load_state import TopicState
from feed_assets.warehouse.shapes import Shape
from feed_assets.warehouse.statements import STATE

_COLUMN = re.compile(r'(ALTER TABLE (?:(\w+)\.)?("(?:[^"]|"")*") )(ADD|DROP|RENAME) COLUMN ("(?:[^"]|"")*")')
"""A statement that adds, drops or renames a column: its begin, schema, table, verb and column."""

_REPEATED = {"CREATE TABLE ": "CREATE TABLE IF NOT EXISTS ", "CREATE VIEW ": "CREATE OR REPLACE VIEW "}
_COLUMN_REPEATED = {"ADD": "ADD COLUMN IF NOT EXISTS", "DROP": "DROP COLUMN IF EXISTS"}


class _Change(NamedTuple):
    """A change of a table that was begun: its statements, how many are done, and the schema and shape after them."""

    statements: Sequence[str]
    done: int
    schema_id: int | None
    shape: str


def apply(
    engine: Engine, table: str, holder: str, *, before: TopicState, after: TopicState, statements: Sequence[str]
) -> TopicState:
    """Change a table, and store its new shape. Return the state with it. The positions stay.

    If the first statement fails, nothing is changed, and the change is forgotten.
    """
    changed = replace(after, positions=before.positions, topic_id=before.topic_id)
    with engine.open() as connection:
        _store(connection, engine, table, holder, before=before, after=changed, statements=statements)
        try:
            connection.execute(statements[0])
        except LoadFailed:
            connection.execute(_forgotten(table))
            raise
        _continue(connection, engine, table, holder=holder, statements=statements, done=1)
        _end(connection, engine, table, holder)
    return changed


def complete(engine: Engine, table: str, holder: str) -> None:
    """Complete a change of a table that was interrupted.

    Raise WarehouseUnavailable if there was one: the caller's state is older, and has to be read again.
    """
    with engine.open() as connection:
        if not (change := _stored(connection, table)):
            return
        if change.done < len(change.statements):
            load_state.renew(connection, engine, holder)
            for each in _repeated(connection, engine, change.statements[change.done]):
                connection.execute(each)
            _continue(connection, engine, table, holder=holder, statements=change.statements, done=change.done + 1)
        _end(connection, engine, table, holder)
    raise WarehouseUnavailable(f"an interrupted change of {table} is now complete. The next attempt loads it.")


def forget(engine: Engine, table: str) -> Iterator[str]:
    """Yield the statement that forgets an interrupted change of a table."""
    if engine.ddl_commits:
        yield _forgotten(table)


def _store(
    connection: Connection,
    engine: Engine,
    table: str,
    holder: str,
    *,
    before: TopicState,
    after: TopicState,
    statements: Sequence[str],
) -> None:
    shape = "NULL" if after.shape is None else literal(after.shape.model_dump_json())
    schema_id = "NULL" if after.schema_id is None else after.schema_id
    connection.execute("BEGIN")
    load_state.renew(connection, engine, holder)
    stored = load_state.read(connection, table)
    if (stored.positions, stored.shape) != (before.positions, before.shape):
        raise WarehouseUnavailable(
            f"{table} was loaded by another process meanwhile. The next attempt continues after that load."
        )
    texts = literal(json.dumps(statements))
    connection.execute(f"INSERT INTO {STATE}.changes VALUES ({literal(table)}, {texts}, 0, {schema_id}, {shape})")
    connection.execute("COMMIT")


def _continue(
    connection: Connection, engine: Engine, table: str, *, holder: str, statements: Sequence[str], done: int
) -> None:
    """Run the statements of a stored change after the first ones. Of these, the last one is not counted yet."""
    _count(connection, table, done)
    for number, statement in enumerate(statements[done:], done + 1):
        load_state.renew(connection, engine, holder)
        connection.execute(statement)
        _count(connection, table, number)


def _count(connection: Connection, table: str, done: int) -> None:
    connection.execute(f"UPDATE {STATE}.changes SET done = {done} WHERE topic = {literal(table)}")


def _end(connection: Connection, engine: Engine, table: str, holder: str) -> None:
    """Store the shape after a change, and forget the change, in one transaction."""
    connection.execute("BEGIN")
    load_state.renew(connection, engine, holder)
    if change := _stored(connection, table):
        before = load_state.read(connection, table)
        shape = Shape.model_validate_json(change.shape) if change.shape else None
        after = replace(before, schema_id=change.schema_id, shape=shape)
        load_state.write(connection, engine, table, before, after)
    connection.execute(_forgotten(table))
    connection.execute("COMMIT")


def _stored(connection: Connection, table: str) -> _Change | None:
    columns = "statements, done, schema_id, shape"
    rows = connection.execute(f"SELECT {columns} FROM {STATE}.changes WHERE topic = {literal(table)}")
    return next((_Change(json.loads(statements), *counts) for statements, *counts in rows), None)


def _forgotten(table: str) -> str:
    return f"DELETE FROM {STATE}.changes WHERE topic = {literal(table)}"


def _repeated(connection: Connection, engine: Engine, statement: str) -> Iterator[str]:
    """Yield a statement that may have run already, in a form that can be repeated. Yield none if it needs no repeat."""
    if match := _COLUMN.match(statement):
        begin, schema, table, verb, column = match.groups()
        if verb != "RENAME":
            yield f"{begin}{_COLUMN_REPEATED[verb]} {column}{statement[match.end() :]}"
        elif connection.execute(_exists(engine, schema, table, column)):
            yield statement
        return
    for begin, repeated in _REPEATED.items():
        if statement.startswith(begin):
            statement = repeated + statement.removeprefix(begin)
            break
    yield statement


def _exists(engine: Engine, schema: str | None, table: str, column: str) -> str:
    """Return the query that has a row if a column exists."""
    names = (literal(engine.folded(each[1:-1].replace('""', '"'))) for each in (table, column))
    return (
        "SELECT 1 FROM information_schema.columns "
        f"WHERE table_schema = {literal(engine.folded(schema)) if schema else engine.schema} "
        "AND table_name = {} AND column_name = {}".format(*names)
    )
