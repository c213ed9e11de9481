"""Kinds of warehouses as the loader uses them: types, conversions of texts to values, and connections."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from feed_assets.core.errors import InvalidShape
from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.load_files import ChunkGroup, Copy
from feed_assets.warehouse.shapes import OFFSET, OPERATION, PARTITION, Column, Kind, Shape

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
"""The types of kinds, a decimal's apart."""

_AS_TEXT = frozenset({"json", "decimal", "bytes"})
"""Kinds that are staged as text: the text is no value yet, or may be none that the warehouse can hold."""


IS_ANOTHERS = "No load has made it: rename it, or drop it."
"""Advice for a table that is in the place of ours."""


class RefusedRow(NamedTuple):
    """A row that a warehouse cannot hold, and why."""

    partition: int
    offset: int
    reason: str


class Findings(NamedTuple):
    """Facts about chunks that a warehouse needs before it loads them.

    `lengths` are bytes of the longest text of a column, `refused` the rows of a chunk that must not even be staged.
    """

    lengths: Mapping[str, int]
    refused: Mapping[Copy, Sequence[RefusedRow]]


class Connection(Protocol):
    """A connection that begins and ends transactions only by statements. Raises WarehouseUnavailable, LoadFailed."""

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement. Return its rows, if it has any."""
        ...

    def copy(self, table: str, columns: Mapping[str, str], batch: ChunkGroup) -> None:
        """Load lines of the chunks' dialect into these columns of these types, each with its partition."""
        ...


class Engine(ABC):
    """A kind of warehouse, at a URL."""

    clock: str = ""
    """Its expression for the moment at which it runs a statement."""
    json: str
    text: str = "text"
    """The type of a text of any length."""
    layout: str = ""
    """The layout of a table: the text that follows its columns."""
    has_keys: bool
    """True if tables get a primary key: one that makes it quick to find a row, and lets it be replaced."""
    tells_deleted: bool
    """True if a deletion can return what it deleted (RETURNING), and be undone alone (SAVEPOINT)."""
    counts_passed: bool = False
    """True if a sequence in its condition can count the rows that a deletion passes over."""
    thins: bool = False
    """True if the staging table is gone once the newest rows are found, else both tables are there."""
    most_digits: int
    """Most digits of a decimal."""
    own_columns: frozenset[str] = frozenset()
    """Columns that each table has by itself: no other one may have their names."""
    reads_chunks: bool = False
    """True if it reads chunks where they lie, which has to be S3; otherwise it gets the copies of this machine."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def now(self) -> str:
        """Return the moment at which it runs a statement, not the one at which its transaction began."""
        return self.clock

    def absence(self) -> str:
        """Return why there is nothing to read, as opening it would make it; '' if it is there."""
        return ""

    @abstractmethod
    def open(self) -> AbstractContextManager[Connection]:
        """Return a connection until the block ends; uncommitted changes are undone then. Raise WarehouseUnavailable."""

    @abstractmethod
    def bytes_of(self, text: str) -> str:
        """Return the bytes whose hexadecimal digits an expression has."""

    @abstractmethod
    def is_wrong(self, text: str, kind: Kind) -> str:
        """Return the condition that an expression is no text of a kind that this warehouse can hold."""

    @abstractmethod
    def limits(self, shape: Shape, /) -> Iterator[tuple[str, str]]:
        """Yield conditions under which a staged row cannot be held, each with its reason."""

    def check(self, table: str, shape: Shape, /) -> None:
        """Raise InvalidShape for a table that this warehouse cannot hold."""
        for name in (table, *(each.name for each in shape.columns)):
            if "\0" in name or any("\ud800" <= letter < "\ue000" for letter in name):
                raise InvalidShape(f"{name!r} is no name in a warehouse: expected Unicode without NUL. Rename it.")
        for each in shape.columns:
            if each.name.lower() in self.own_columns:
                raise InvalidShape(f"{each.name} is a column that every table has here of itself. Rename the field.")
            if each.kind.precision > self.most_digits:
                most = f"expected at most {self.most_digits} digits"
                raise InvalidShape(f"{each.name} is {each.kind}, which this warehouse cannot hold: {most}.")

    def type_of(self, kind: Kind) -> str:
        """Return the type of a kind."""
        if kind.name == "decimal":
            return f"numeric({kind.precision}, {kind.scale})"
        return self.json if kind.name == "json" else TYPES[kind.name]

    def staged(self, kind: Kind) -> str:
        """Return the type of a kind in the staging table."""
        return self.text if kind.name in _AS_TEXT else self.type_of(kind)

    def value(self, text: str, kind: Kind) -> str:
        """Return the value of an expression that is a text of the chunks' dialect, or one that was staged."""
        return self.bytes_of(text) if kind.name == "bytes" else f"CAST({text} AS {self.type_of(kind)})"

    def look(self, _copies: Sequence[Copy], _shape: Shape | None, /) -> Findings:
        """Return the findings in copies of chunks, rows of a shape, before they are loaded.

        Find nothing, if not overridden.
        """
        return Findings({}, {})

    def fitted(self, shape: Shape, _lengths: Mapping[str, int], /) -> Shape:
        """Return a shape whose columns hold texts of these lengths."""
        return shape

    def grow(self, _table: str, _column: Column, /) -> "Iterator[ColumnGrowth]":
        """Yield what makes a text column as long as it says, outside of any transaction: nothing, if not overridden."""
        return iter(())

    def newest(self, newest: str, staging: str, shape: Shape) -> Iterator[str]:
        """Make a table of the staged row of each key with the highest offset."""
        keys = self.keys(shape)
        rows = f"SELECT DISTINCT ON ({keys}) {self.columns(shape)} FROM {staging} ORDER BY {keys}, {OFFSET} DESC"
        yield f"CREATE TEMP TABLE {newest} AS {rows}"

    def keys(self, shape: Shape) -> str:
        """Return the values of a staged row's key."""
        return ", ".join(self.value(quoted(each.name), each.kind) for each in shape.key_columns)

    def columns(self, shape: Shape) -> str:
        """Return the values of a staged row, and their names."""
        values = [f"{self.value(quoted(each.name), each.kind)} AS {quoted(each.name)}" for each in shape.columns]
        return ", ".join([OPERATION, PARTITION, OFFSET, *values])

    def column(self, column: Column) -> str:
        """Return the definition of a column, to make or alter a table."""
        parts = [quoted(column.name), self.type_of(column.kind), self._default(column)]
        return " ".join(filter(None, [*parts, "" if column.is_nullable else "NOT NULL"]))

    def add(self, table: str, column: Column) -> Iterator[str]:
        """Add a column; existing rows have its default."""
        yield f"ALTER TABLE {table} ADD COLUMN {self.column(column)}"

    def widen(self, table: str, column: Column, _was: Kind, /) -> Iterator[str]:
        """Change a column to its new kind; its default is of the old one, and is set anew later."""
        name, kind = quoted(column.name), self.type_of(column.kind)
        yield f"ALTER TABLE {table} ALTER COLUMN {name} DROP DEFAULT"
        yield f"ALTER TABLE {table} ALTER COLUMN {name} SET DATA TYPE {kind} USING CAST({name} AS {kind})"

    def make_nullable(self, table: str, name: str, /) -> Iterator[str]:
        """Let a column have nulls."""
        yield f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} DROP NOT NULL"

    def set_default(self, table: str, column: Column, /) -> Iterator[str]:
        """Set the value of rows that name none."""
        default = self._default(column)
        change = f"SET {default}" if default else "DROP DEFAULT"
        yield f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} {change}"

    def _default(self, column: Column) -> str:
        return f"DEFAULT {self.value(literal(column.default), column.kind)}" if column.default is not None else ""

    def rejections(self, shape: Shape) -> Iterator[tuple[str, str]]:
        """Yield conditions under which a staged row is refused, each with its reason."""
        for each in shape.columns:
            if each.kind.name in ("json", "decimal"):
                wrong = self.is_wrong(quoted(each.name), each.kind)
                yield wrong, f"{each.name} is no {self.type_of(each.kind)}"
        yield from self.limits(shape)


class ColumnGrowth(NamedTuple):
    """A statement, and a query that returns rows as long as the statement is needed."""

    needed: str
    statement: str


def comment(table: str, column: Column) -> Iterator[str]:
    """Set a column's comment, if it has one."""
    if column.comment:
        yield f"COMMENT ON COLUMN {table}.{quoted(column.name)} IS {literal(column.comment)}"
