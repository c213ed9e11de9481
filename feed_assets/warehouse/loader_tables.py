"""The loader's state tables, and checks whether another role has altered them.

A load never repairs altered rows, because a wrong position would skip data. The table stops instead.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from feed_assets.core.errors import LoadFailed
from feed_assets.core.sql_text import literal
from feed_assets.warehouse.engines import Connection, Engine
from feed_assets.warehouse.statements import DELETED, STATE

_SHOWN = 80
"""The most characters of an unexpected value in a message."""

_ROWS = 3
"""The most unexpected rows in a message."""

_TYPES = {"varchar": "text", "character varying": "text", "timestamp with time zone": "timestamptz"}
"""Our names of types, by the names that warehouses report."""

_AHEAD = timedelta(days=1)
"""How far the clock of a loader may be ahead of ours. A load cannot have stored a later time than that."""

_RESTORE = (
    f"Restore it from a backup, or drop the schemas {STATE} and {DELETED} and the loaded tables: then all is loaded "
    f"again. Let nobody but the loader change {STATE}."
)


class LoaderTable(NamedTuple):
    """A state table: its column definitions and further clauses. `{text}` stands for the type of unlimited texts."""

    name: str
    columns: Sequence[str]
    clauses: Sequence[str] = ()
    later: Sequence[str] = ()
    """Columns that an earlier version did not create. A loader adds them; readers need none of them."""

    def create(self, engine: Engine, begin: str = "CREATE TABLE") -> str:
        """Return the statement that creates the table."""
        definitions = ", ".join([*self.columns, *self.later, *self.clauses]).format(text=engine.text)
        return f"{begin} {STATE}.{self.name} ({definitions})"

    @property
    def names(self) -> list[str]:
        """Return the names of the table and its columns."""
        return [self.name, *(each.split()[0] for each in (*self.columns, *self.later))]

    def form(self, engine: Engine) -> str:
        """Return the expected kind, columns and types of the table, in the same form as `_forms`."""
        return _form(engine, [*self.columns, *self.later])

    def first_form(self, engine: Engine) -> str:
        """Return the form that an earlier version created."""
        return _form(engine, self.columns)


def _form(engine: Engine, columns: Sequence[str]) -> str:
    named = [each.format(text="text").split()[:2] for each in columns]
    return f"BASE TABLE ({', '.join(f'{name} {engine.reported(kind)}' for name, kind in named)})"


def exist(connection: Connection, engine: Engine, tables: Sequence[LoaderTable]) -> bool:
    """Return whether these tables of the loader exist in the warehouse.

    Raise LoadFailed if only some exist, if one has an unexpected form, or if reading them could run code of another
    role.
    """
    forms = _forms(connection, engine, tables)
    if not forms.keys() & {each.name for each in tables}:
        return False
    for each in tables:
        form = forms.get(each.name, "no such table, or no right to use it")
        if form not in (expected := each.form(engine), each.first_form(engine)):
            raise altered(each.name, form, expected, _RESTORE)
    _refuse(engine.planted(connection, False))
    return True


def missing(connection: Connection, engine: Engine, tables: Sequence[LoaderTable]) -> bool:
    """Return whether some of these tables do not exist."""
    return not {each.name for each in tables} <= _forms(connection, engine, tables).keys()


def add_later(connection: Connection, engine: Engine, tables: Sequence[LoaderTable]) -> None:
    """Add the columns that an earlier version did not create."""
    forms = _forms(connection, engine, tables)
    for each in tables:
        if forms.get(each.name) != each.form(engine):
            for column in each.later:
                connection.execute(f"ALTER TABLE {STATE}.{each.name} ADD COLUMN {column.format(text=engine.text)}")


def _forms(connection: Connection, engine: Engine, tables: Sequence[LoaderTable]) -> dict[str, str]:
    """Return the kind, columns and types of each table in our schema, by name."""
    rows = connection.execute(
        "SELECT t.table_name, t.table_type, c.column_name, c.data_type FROM information_schema.tables t "
        "JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name "
        f"WHERE t.table_schema = {literal(engine.folded(STATE))} ORDER BY t.table_name, c.ordinal_position"
    )
    columns = dict[tuple[str, str], list[str]]()
    names = {engine.folded(each): each for table in tables for each in table.names}
    for name, kind, column, column_type in rows:
        type_name, column_name = str(column_type).lower(), names.get(column) or column
        described = f"{_plain(column_name)} {_TYPES.get(type_name, type_name)}"
        columns.setdefault((names.get(name) or name, kind), []).append(described)
    return {name: f"{kind} ({', '.join(each)})" for (name, kind), each in columns.items()}


def _plain(name: str) -> str:
    """Return a name unchanged if it is a short identifier. Otherwise quote and shorten it, as anybody may choose it."""
    return name if name.isidentifier() and len(name) < _SHOWN else repr(name)[:_SHOWN]


def refuse_planted(connection: Connection, engine: Engine) -> None:
    """Raise LoadFailed if our schemas or state tables could run code of another role, with the loader's rights."""
    _refuse(engine.planted(connection, True))


def _refuse(message: str) -> None:
    if message:
        raise LoadFailed(message)


def refuse_others(connection: Connection, engine: Engine, table: str) -> None:
    """Raise LoadFailed if a load would write elsewhere than into the loaded table: into a view, or another schema."""
    rows = connection.execute(
        "SELECT table_schema, table_type FROM information_schema.tables "
        f"WHERE table_name = {literal(engine.folded(table))} AND table_type <> 'BASE TABLE' "
        f"AND table_schema IN ({engine.schema}, {literal(engine.folded(DELETED))})"
    )
    if schema := engine.misplaced(connection, table):
        raise LoadFailed(
            f"{table} is in the schema {schema}, but rows would now go to another one: expected the same first schema "
            f"in the user's search_path. Remove the other schema, or SET search_path = {schema} with ALTER ROLE."
        )
    for schema, kind in rows:
        raise LoadFailed(
            f"{schema}.{table} is a {kind}: expected the loaded table, or rows would go elsewhere. Put the "
            f"table back, or drop the {kind}. {reset_advice(table)}"
        )


def altered(name: str, content: str, expected: str, advice: str) -> LoadFailed:
    """Return the error for a state table with a content that no load can have written."""
    return LoadFailed(f"{STATE}.{name} was altered by somebody else: found {content}; expected {expected}. {advice}")


def rows_text(rows: Sequence[Sequence[Any]]) -> str:
    """Return unexpected rows as one short line."""
    return ", ".join(f"({', '.join(repr(each)[:_SHOWN] for each in row)})" for row in rows[:_ROWS])


def is_number(value: object) -> bool:
    """Return whether a value in a state table is a whole number of 0 or more."""
    return type(value) is int and value >= 0


def is_moment(text: str) -> bool:
    """Return whether a text from a state table is a time with a zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def is_possible(moment: str) -> str:
    """Return the SQL condition that a time is from 1970 on and not far in the future. All loads' times meet it.

    A driver may fail to read other times, because PostgreSQL can also store infinity and years before 1.
    """
    latest = literal((datetime.now(UTC) + _AHEAD).isoformat())
    return f"{moment} >= CAST('1970-01-01T00:00:00+00:00' AS timestamptz) AND {moment} < CAST({latest} AS timestamptz)"


def reset_advice(table: str) -> str:
    """Return the advice to make a table anew, without its old state."""
    return f"Make the table anew: `feed-assets warehouse reset WAREHOUSE {table} --apply`."
