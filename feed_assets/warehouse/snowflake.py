"""Snowflake. Rows are sent as Parquet to a temporary stage, and copied from there into the staging table.

A statement that changes a table commits the open transaction there. So tables are changed before a load's transaction,
by `table_changes`, and temporary tables are created before it, too.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

from pydantic import SecretStr

from feed_assets.core.errors import InvalidShape
from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.engines import MOST_OF_A_ROW, Engine
from feed_assets.warehouse.shapes import OFFSET, OPERATION, PARTITION, Column, Kind, Shape, check_case
from feed_assets.warehouse.snowflake_connection import STAGE, SnowflakeConnection, connected, upper

_TYPES = {
    "real": "double",
    "text": "varchar",
    "uuid": "varchar(36)",
    "bytes": "binary",
    "timestamp": "timestamp_tz",
    "local_timestamp": "timestamp_ntz",
}
"""Types that are not those of `engines.TYPES`. Every float has 64 bits, and every whole number 38 digits."""

_REPORTED = {"integer": "number", "bigint": "number", "timestamptz": "timestamp_tz"}
"""Types as the information schema reports them."""

_SAME = ({"integer", "bigint"}, {"real", "double"})
"""Kinds that have one type."""

_LONGEST_NAME = 255
_WIDENED, _RANK = '"feed_assets widened"', '"feed_assets row"'


class Snowflake(Engine):
    """A schema of a Snowflake account. All names are in upper case there, as Snowflake folds names without quotes.

    Its columns have neither a default nor NOT NULL: rows get their defaults in the staging table.
    """

    clock, json, text = "CURRENT_TIMESTAMP()", "variant", "varchar"
    has_keys, tells_deleted, most_digits = False, False, 38
    ddl_commits = True

    def __init__(self, url: str, private_key: SecretStr | None = None) -> None:
        super().__init__(url)
        self._private_key = private_key

    @contextmanager
    def open(self) -> Generator[SnowflakeConnection]:
        """Yield a connection until the block ends. Roll back what was not committed."""
        with connected(self._url, self._private_key) as opened:
            yield SnowflakeConnection(opened, self._url)

    def folded(self, name: str) -> str:
        """Return a name in upper case."""
        return upper(name)

    def reported(self, type_name: str) -> str:
        """Return the type that the information schema reports for a column of a state table."""
        return _REPORTED.get(type_name, type_name)

    def stored(self, table: str, query: str) -> str:
        """Return the statement that inserts a query's rows into a temporary table, which exists already."""
        return f"INSERT INTO {table} {query}"

    def dropped(self, _table: str, /) -> Iterator[str]:
        """Return no statements: temporary tables end with the connection."""
        return iter(())

    def before_load(self) -> Iterator[str]:
        """Yield the statement that creates the stage of a load, if this session has none."""
        yield f"CREATE TEMPORARY STAGE IF NOT EXISTS {STAGE}"

    def bytes_of(self, text: str) -> str:
        """Return SQL that turns a text of hexadecimal digits into bytes, by Snowflake's `TO_BINARY`."""
        return f"TO_BINARY({text}, 'HEX')"

    def is_wrong(self, text: str, kind: Kind) -> str:
        """Return the SQL condition that a text is not a valid value of a column type.

        Snowflake's own conversion of the text decides.
        """
        functions = {"json": f"TRY_PARSE_JSON({text})", "bytes": f"TRY_TO_BINARY({text}, 'HEX')"}
        value = functions.get(kind.name, f"TRY_CAST({text} AS {self.type_of(kind)})")
        return f"{text} IS NOT NULL AND {value} IS NULL"

    def row_json(self, texts: Mapping[str, str], /) -> str:
        """Return SQL for a JSON object of texts."""
        pairs = ", ".join(f"{literal(name)}, CAST({each} AS varchar)" for name, each in texts.items())
        return f"LEFT(TO_JSON(OBJECT_CONSTRUCT_KEEP_NULL({pairs})), {MOST_OF_A_ROW})"

    def check(self, table: str, shape: Shape, /) -> None:
        """Raise InvalidShape also for names that differ only in case, and for names that are too long."""
        super().check(table, shape)
        check_case(shape.columns, "Snowflake", upper)
        for name in (table, *(each.name for each in shape.columns)):
            if len(name) > _LONGEST_NAME:
                raise InvalidShape(f"{name} is not a name in Snowflake: expected at most {_LONGEST_NAME} characters.")

    def type_of(self, kind: Kind) -> str:
        """Return Snowflake's name of a column type."""
        return _TYPES.get(kind.name) or super().type_of(kind)

    def staged(self, _: Kind, /) -> str:
        """Return the type for texts: the staging table has every value as the text of the chunk."""
        return self.text

    def value(self, text: str, kind: Kind) -> str:
        """Return SQL for the value of an expression."""
        return f"PARSE_JSON({text})" if kind.name == "json" else super().value(text, kind)

    def newest(self, newest: str, staging: str, shape: Shape) -> Iterator[str]:
        """Yield a statement that fills the table `newest` with the newest staged row of each key, by ROW_NUMBER."""
        names = ", ".join([OPERATION, PARTITION, OFFSET, *(quoted(each.name) for each in shape.columns)])
        rank = f"ROW_NUMBER() OVER (PARTITION BY {self.keys(shape)} ORDER BY {OFFSET} DESC) AS {_RANK}"
        rows = f"SELECT {self.columns(shape)}, {rank} FROM {staging}"
        yield self.stored(newest, f"SELECT {names} FROM ({rows}) r WHERE {_RANK} = 1")

    def column(self, column: Column) -> str:
        """Return the definition of a column: its name and type."""
        return f"{quoted(column.name)} {self.type_of(column.kind)}"

    def add(self, table: str, column: Column) -> Iterator[str]:
        """Yield statements that add a column, and update existing rows to its default."""
        yield from super().add(table, column)
        if column.default is not None:
            yield f"UPDATE {table} SET {quoted(column.name)} = {self.value(literal(column.default), column.kind)}"

    def widen(self, table: str, column: Column, was: Kind, /) -> Iterator[str]:
        """Yield statements that give a column its new type: in place if Snowflake can, else with a new column."""
        name, kind = quoted(column.name), column.kind
        is_decimal = was.name == kind.name == "decimal" and was.scale == kind.scale
        if is_decimal or (was.name, kind.name) == ("uuid", "text"):
            yield f"ALTER TABLE {table} ALTER COLUMN {name} SET DATA TYPE {self.type_of(kind)}"
        elif {was.name, kind.name} not in _SAME:
            yield f"ALTER TABLE {table} ADD COLUMN {_WIDENED} {self.type_of(kind)}"
            yield f"UPDATE {table} SET {_WIDENED} = CAST({name} AS {self.type_of(kind)})"
            yield f"ALTER TABLE {table} DROP COLUMN {name}"
            yield f"ALTER TABLE {table} RENAME COLUMN {_WIDENED} TO {name}"
            if column.comment:
                yield f"COMMENT ON COLUMN {table}.{name} IS {literal(column.comment)}"

    def make_nullable(self, _table: str, _name: str, /) -> Iterator[str]:
        """Return no statements: every column is nullable."""
        return iter(())

    def set_default(self, _table: str, _column: Column, /) -> Iterator[str]:
        """Return no statements: no column has a default."""
        return iter(())
