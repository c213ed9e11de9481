"""Engines: each kind of warehouse has one, with its column types, its SQL and its connections."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from typing import Any, NamedTuple, Protocol, Self

from feed_assets.core.errors import InvalidShape
from feed_assets.core.sql_text import literal, quoted, storable
from feed_assets.warehouse.load_files import ChunkGroup, Copy
from feed_assets.warehouse.shapes import OFFSET, OPERATION, PARTITION, Column, Kind, Shape, check_columns

TYPES = {
    "boolean": "boolean",
    "integer": "integer",
    "bigint": "bigint",
    "real": "real",
    "double": "double precision",
    "text": "text",
    "uuid": "uuid",
    "bytes": "bytea",
    "date": "date",
    "time": "time",
    "timestamp": "timestamptz",
    "local_timestamp": "timestamp",
    "json": "json",
}
"""The SQL types of our kinds of columns, except decimals."""

AS_TEXT = frozenset({"json", "decimal", "bytes"})
"""Kinds that the staging table has as text, because a chunk may have texts that the warehouse cannot convert."""


MOST_OF_A_ROW = 16_000
"""The most characters of a refused row's JSON. In UTF-8 they fit into a text column of any warehouse."""

IS_ANOTHERS = "No load has created this table: rename it, or drop it."
"""Advice if a table that is not ours has the name of one of our tables."""


class RefusedRow(NamedTuple):
    """A row that a warehouse cannot store, and the reason."""

    partition: int
    offset: int
    reason: str


class Findings(NamedTuple):
    """Facts about chunks that a warehouse needs before loading them.

    `lengths` has the bytes of each column's longest text. `refused` has rows that do not fit into the staging table.
    """

    lengths: Mapping[str, int]
    refused: Mapping[Copy, Sequence[RefusedRow]]


class Connection(Protocol):
    """A connection that begins and ends transactions only by statements, such as BEGIN.

    Its methods raise WarehouseUnavailable and LoadFailed.
    """

    def execute(self, statement: str, values: Sequence[object] | None = None, /) -> list[tuple[Any, ...]]:
        """Run a statement. Return its rows, if it has any.

        With values, each `%s` is a bound parameter, and `%%` is a per cent sign.
        """
        ...

    def shut(self) -> None:
        """Break the connection, from another thread. The statement that runs in it fails."""
        ...

    def copy(self, table: str, columns: Mapping[str, str], batch: ChunkGroup) -> None:
        """Load a group of chunks into a table, with the partition of each row.

        `columns` has the table's column and its type for each column of the chunks, in order.
        """
        ...


class Engine(ABC):
    """A kind of warehouse, such as PostgreSQL, at a URL: its connections, types and SQL."""

    clock: str = ""
    """The SQL expression for the time at which a statement runs."""
    json: str
    text: str = "text"
    """The type for texts of any length."""
    layout: str = ""
    """The clause that follows the columns of a table."""
    has_keys: bool
    """True if tables get a primary key, which speeds up finding and replacing rows."""
    tells_deleted: bool
    """True if a DELETE can return its rows (RETURNING) and be undone alone (SAVEPOINT)."""
    counts_passed: bool = False
    """True if a DELETE can count the rows that it skips, with a sequence in its condition."""
    thins: bool = False
    """True if `newest` turns the staging table into its result. Otherwise the staging table remains."""
    most_digits: int
    """The most digits of a decimal."""
    most_copied_columns: int | None = None
    """The most columns that one change of a table may copy; None if its statements copy no other columns."""
    own_columns: frozenset[str] = frozenset()
    """Built-in columns of every table, whose names no other column may have."""
    reads_chunks: bool = False
    """True if the warehouse reads chunks directly from S3. Otherwise this machine sends its copies."""

    ddl_commits: bool = False
    """True if a statement that changes a table commits the open transaction."""

    stages_text: bool = False
    """True if the staging table has every column as text, so that each value is checked by itself."""

    def __init__(self, url: str) -> None:
        self._url = url

    def staging_text(self) -> Self:
        """Return the same warehouse, with a staging table of texts: slower, and no value of a chunk breaks its copy."""
        careful = copy(self)
        careful.stages_text = True
        return careful

    @property
    def now(self) -> str:
        """Return SQL for the time at which a statement runs, not for the start of its transaction."""
        return self.clock

    def absence(self) -> str:
        """Return a message if the warehouse does not exist and opening would create it; else ''."""
        return ""

    def table(self, name: str) -> str:
        """Return the SQL name of a loaded table."""
        return quoted(name)

    @property
    def schema(self) -> str:
        """Return the SQL expression for the schema of the loaded tables."""
        return "current_schema()"

    def folded(self, name: str) -> str:
        """Return a name of ours as the information schema has it."""
        return name

    def reported(self, type_name: str) -> str:
        """Return a type of a state table's column as the information schema reports it."""
        return type_name

    def before_load(self) -> Iterator[str]:
        """Yield further statements before the transaction of a load, if changes of tables commit. There are none."""
        return iter(())

    def stored(self, table: str, query: str) -> str:
        """Return the statement that stores a query's rows in a temporary table."""
        return f"CREATE TEMP TABLE {table} AS {query}"

    def dropped(self, table: str, /) -> Iterator[str]:
        """Yield statements that drop a temporary table."""
        yield f"DROP TABLE {table}"

    def misplaced(self, _connection: Connection, _table: str, /) -> str | None:
        """Return the schema that this user's table is in, if loads would now write to another schema; else None."""
        return None

    def planted(self, _connection: Connection, _is_load: bool, /) -> str:
        """Return a message if our schemas or state tables could run code of another role; else ''.

        For a load, the schema of the loaded tables counts, too.
        """
        return ""

    @abstractmethod
    def open(self) -> AbstractContextManager[Connection]:
        """Return a context manager for a connection, which at its end rolls back uncommitted changes.

        Raise WarehouseUnavailable.
        """

    @abstractmethod
    def bytes_of(self, text: str) -> str:
        """Return SQL that turns the hexadecimal digits of an expression into bytes."""

    @abstractmethod
    def is_wrong(self, text: str, kind: Kind) -> str:
        """Return the SQL condition that a text is not a valid value of a column type in this warehouse."""

    def row_json(self, _texts: Mapping[str, str], /) -> str:
        """Return SQL for a JSON object of texts: an expression by name. The default is NULL: the chunk has the row."""
        return "NULL"

    def limits(self, _shape: Shape, /) -> Iterator[tuple[str, str]]:
        """Yield SQL conditions under which a staged row cannot be stored, each with its reason: none by default."""
        return iter(())

    def check(self, table: str, shape: Shape, /) -> None:
        """Raise InvalidShape for a table that this warehouse cannot store."""
        check_columns(len(shape.columns) + len(shape.dropped) + shape.is_history)
        for name in (table, *(each.name for each in shape.columns)):
            if name != storable(name):
                raise InvalidShape(f"{name!r} is not a name in a warehouse: expected Unicode without NUL. Rename it.")
        for each in shape.columns:
            if each.name.lower() in self.own_columns:
                raise InvalidShape(f"{each.name} is a built-in column of every table here. Rename the field.")
            if each.kind.precision > self.most_digits:
                most = f"expected at most {self.most_digits} digits"
                raise InvalidShape(f"{each.name} is {each.kind}, which this warehouse cannot store: {most}.")

    def type_of(self, kind: Kind) -> str:
        """Return the warehouse's name of a column type."""
        if kind.name == "decimal":
            return f"numeric({kind.precision}, {kind.scale})"
        return self.json if kind.name == "json" else TYPES[kind.name]

    def staged(self, kind: Kind, /) -> str:
        """Return the type of a kind in the staging table."""
        return self.text if self.stages_text or kind.name in AS_TEXT else self.type_of(kind)

    def value(self, text: str, kind: Kind) -> str:
        """Return SQL that converts an expression to a kind of value.

        The expression is a column of the staging table, or a literal in the chunks' dialect.
        """
        return self.bytes_of(text) if kind.name == "bytes" else f"CAST({text} AS {self.type_of(kind)})"

    def look(self, _copies: Sequence[Copy], _shape: Shape | None, /) -> Findings:
        """Check copies of chunks before they are loaded, and return the findings. The default finds nothing."""
        return Findings({}, {})

    def fitted(self, shape: Shape, _lengths: Mapping[str, int], /) -> Shape:
        """Return a shape whose columns can store texts of these lengths."""
        return shape

    def grow(self, _table: str, _column: Column, /) -> "Iterator[ColumnGrowth]":
        """Yield statements that lengthen a text column, outside of any transaction. The default yields none."""
        return iter(())

    def newest(self, newest: str, staging: str, shape: Shape) -> Iterator[str]:
        """Yield statements that create the table `newest`: for each key, the staged row with the highest offset."""
        keys = self.keys(shape)
        rows = f"SELECT DISTINCT ON ({keys}) {self.columns(shape)} FROM {staging} ORDER BY {keys}, {OFFSET} DESC"
        yield self.stored(newest, rows)

    def row_id(self, _shape: Shape, /) -> str:
        """Return the column that finds a row of a table again in the same transaction. The default is none: ''."""
        return ""

    def keys(self, shape: Shape) -> str:
        """Return SQL for the key columns of a staged row."""
        return ", ".join(self.value(quoted(each.name), each.kind) for each in shape.key_columns)

    def columns(self, shape: Shape) -> str:
        """Return SQL for the values of a staged row: a select list with the name of each column."""
        values = [f"{self.value(quoted(each.name), each.kind)} AS {quoted(each.name)}" for each in shape.columns]
        return ", ".join([OPERATION, PARTITION, OFFSET, *values])

    def column(self, column: Column) -> str:
        """Return a column's definition for creating or altering a table."""
        parts = [quoted(column.name), self.type_of(column.kind), self._default(column)]
        return " ".join(filter(None, [*parts, "" if column.is_nullable else "NOT NULL"]))

    def add(self, table: str, column: Column) -> Iterator[str]:
        """Yield statements that add a column to a table. Existing rows get the column's default."""
        yield f"ALTER TABLE {table} ADD COLUMN {self.column(column)}"

    def widen(self, table: str, column: Column, _was: Kind, /) -> Iterator[str]:
        """Yield statements that give a column its new type, without a default. A later step sets the default."""
        name, kind = quoted(column.name), self.type_of(column.kind)
        yield f"ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT"
        yield f"ALTER TABLE {table} ALTER COLUMN {name} SET DATA TYPE {kind} USING CAST({name} AS {kind})"

    def make_nullable(self, table: str, name: str, /) -> Iterator[str]:
        """Yield statements that allow NULL in a column."""
        yield f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} DROP NOT NULL"

    def set_default(self, table: str, column: Column, /) -> Iterator[str]:
        """Yield statements that set or drop the default of a column."""
        default = self._default(column)
        change = f"SET {default}" if default else "DROP DEFAULT"
        yield f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} {change}"

    def _default(self, column: Column) -> str:
        return f"DEFAULT {self.value(literal(column.default), column.kind)}" if column.default is not None else ""

    def rejections(self, shape: Shape) -> Iterator[tuple[str, str]]:
        """Yield SQL conditions under which a staged row is refused, each with its reason."""
        for each in shape.columns:
            if each.kind.name in ("json", "decimal") or (self.stages_text and each.kind.name != "text"):
                wrong = self.is_wrong(quoted(each.name), each.kind)
                yield wrong, f"{each.name} is not a valid {self.type_of(each.kind)}"
        yield from self.limits(shape)


class ColumnGrowth(NamedTuple):
    """A statement, and a query that returns rows as long as the statement is still needed.

    `otherwise` are statements for one transaction, which do the same if the warehouse refuses the statement.
    """

    needed: str
    statement: str
    otherwise: tuple[str, ...] = ()


def comment(table: str, column: Column) -> Iterator[str]:
    """Yield the statement that sets a column's comment, if it has one."""
    if column.comment:
        yield f"COMMENT ON COLUMN {table}.{quoted(column.name)} IS {literal(column.comment)}"
