"""What a kind of warehouse is to the loader: its types, how it makes values of texts, and a connection to it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from feed_assets.core.errors import InvalidSetting, InvalidShape
from feed_assets.warehouse.shapes import Kind, Shape

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
"""Kinds that are staged as text: it is no value, or may be none that the warehouse can hold."""


class Connection(Protocol):
    """A connection that begins and ends transactions as it is told to. Raises WarehouseUnavailable, LoadFailed."""

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement; its rows, if it has any."""
        ...

    def copy(self, table: str, columns: Mapping[str, str], partition: int, files: Sequence[Path]) -> None:
        """Load lines of the chunks' dialect into these columns of these types, each with its partition."""
        ...


class Engine(ABC):
    """A kind of warehouse, at a URL."""

    now: str
    """The moment at which it runs a statement."""
    json: str
    has_keys: bool
    """Whether tables get a primary key: one that makes it quick to find a row, and lets it be replaced."""
    tells_deleted: bool
    """Whether a deletion tells what it deleted (RETURNING), and can be undone alone (SAVEPOINT)."""
    most_digits: int
    """Of a decimal."""

    def __init__(self, url: str) -> None:
        self._url = url

    @abstractmethod
    def open(self) -> AbstractContextManager[Connection]:
        """A connection until the block ends; what is not committed then is undone. Raises WarehouseUnavailable."""

    @abstractmethod
    def bytes_of(self, text: str) -> str:
        """The bytes that an expression has the hexadecimal digits of."""

    @abstractmethod
    def is_wrong(self, text: str, kind: Kind) -> str:
        """The condition that an expression is no text of a kind that this warehouse can hold."""

    @abstractmethod
    def limits(self, shape: Shape, /) -> Iterator[tuple[str, str]]:
        """Conditions under which a staged row cannot be held, each with its reason."""

    def check(self, _table: str, shape: Shape, /) -> None:
        """Raise InvalidShape for a table that this warehouse cannot hold."""
        for each in shape.columns:
            if each.kind.precision > self.most_digits:
                most = f"expected at most {self.most_digits} digits"
                raise InvalidShape(f"{each.name} is {each.kind}, which this warehouse cannot hold: {most}.")

    def type_of(self, kind: Kind) -> str:
        """The type of a kind."""
        if kind.name == "decimal":
            return f"numeric({kind.precision}, {kind.scale})"
        return self.json if kind.name == "json" else TYPES[kind.name]

    def staged(self, kind: Kind) -> str:
        """The type of a kind in the staging table."""
        return "text" if kind.name in _AS_TEXT else self.type_of(kind)

    def value(self, text: str, kind: Kind) -> str:
        """The value of an expression that is a text of the chunks' dialect, or one that was staged."""
        return self.bytes_of(text) if kind.name == "bytes" else f"CAST({text} AS {self.type_of(kind)})"

    def rejections(self, shape: Shape) -> Iterator[tuple[str, str]]:
        """Conditions under which a staged row is refused, each with its reason."""
        for each in shape.columns:
            if each.kind.name in ("json", "decimal"):
                wrong = self.is_wrong(quoted(each.name), each.kind)
                yield wrong, f"{each.name} is no {self.type_of(each.kind)}"
        yield from self.limits(shape)


def quoted(name: str) -> str:
    """A name as an identifier, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as a literal, whatever is in it."""
    return "'" + text.replace("'", "''") + "'"


def engine_of(url: str) -> Engine:
    """The engine of a URL. Raises InvalidSetting where its driver is not there."""
    driver, extra = ("duckdb", "warehouse") if url.startswith("duckdb:") else ("psycopg", "postgres")
    if find_spec(driver) is None:
        raise InvalidSetting(f"this warehouse needs more packages: `pip install 'feed-assets[kafka,{extra}]'`.")
    if driver == "duckdb":
        from feed_assets.warehouse.duck import DuckDB

        return DuckDB(url)
    from feed_assets.warehouse.postgresql import PostgreSQL

    return PostgreSQL(url)
