"""Amazon Redshift, which reads the chunks itself, by COPY with a manifest. This code never ran on a real cluster."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import redshift_connector as driver

from feed_assets.core.errors import InvalidShape, LoadFailed, WarehouseUnavailable
from feed_assets.core.secrets import masked
from feed_assets.core.sql_text import literal, quoted
from feed_assets.core.time_limits import shut
from feed_assets.warehouse import columnar
from feed_assets.warehouse.engines import ColumnGrowth, Engine, Findings, comment
from feed_assets.warehouse.lengths import look
from feed_assets.warehouse.load_files import ChunkGroup, Copy
from feed_assets.warehouse.shapes import OFFSET, PARTITION, Column, Kind, Shape, check_case

LENGTHS = (256, 1024, 4096, 16_384, 65_535)
"""Lengths of text columns in bytes. A column begins with the first length, and grows to the next ones as needed."""

LONGEST_ROW = 4 << 20
"""The most bytes of a line for COPY."""

_LONGEST_NAME = 127
"""The most bytes of an identifier: Redshift silently cuts a longer one."""

_TYPES = {"uuid": "varchar(36)", "bytes": "varbyte(32767)"}
_WIDENED, _ROW = '"feed_assets widened"', '"feed_assets row"'

_MAY_BE_OVER = ("08", "40", "53", "55", "57", "58")
"""Classes of SQLSTATEs of temporary errors: connection, serialization, resources, locks, operators, the system."""


class Redshift(Engine):
    """A cluster or workgroup. Its tables have no defaults and no NOT NULL, because Redshift cannot change these later.

    Loads work without them, because rows get their defaults in the staging table.
    """

    clock, json, text = "GETDATE()", "super", f"varchar({LENGTHS[-1]})"
    has_keys, tells_deleted, most_digits = False, False, 38
    layout = f" DISTSTYLE EVEN SORTKEY ({PARTITION}, {OFFSET})"
    """Sort rows by offset, because slices are offset ranges.

    Without a sort key, Redshift might choose a column that is dropped later.
    """
    reads_chunks = True
    own_columns = frozenset({"oid", "tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "deletexid", "insertxid"})

    def __init__(self, url: str, iam_role: str) -> None:
        super().__init__(url)
        self._iam_role = iam_role

    @contextmanager
    def open(self) -> Generator["_RedshiftConnection"]:
        """Yield a connection until the block ends."""
        url = urlsplit(self._url)
        with translated(self._url):
            opened = driver.connect(
                host=url.hostname,
                port=url.port or 5439,
                database=url.path.removeprefix("/"),
                user=unquote(url.username or ""),
                password=unquote(url.password or ""),
                application_name="feed_assets",
            )
        try:
            opened.autocommit = True  # Otherwise the driver begins transactions by itself.
            yield self.connection(opened)
        finally:
            with translated(self._url):
                opened.close()

    def connection(self, opened: Any) -> "_RedshiftConnection":
        """Return our connection for an open connection of the driver."""
        connection = _RedshiftConnection(opened, self._url, self._iam_role)
        connection.execute("SET timezone TO 'UTC'")
        return connection

    def bytes_of(self, text: str) -> str:
        """Return SQL that turns a text of hexadecimal digits into bytes, by Redshift's `FROM_HEX`."""
        return f"FROM_HEX({text})"

    def is_wrong(self, text: str, kind: Kind) -> str:
        """Return the SQL condition that a text is not a valid value of a column type.

        Redshift's own conversion of the text decides.
        """
        if kind.name == "json":
            return f"NOT CAN_JSON_PARSE({text})"
        if kind.name == "bytes":
            return f"{text} !~ '^([0-9a-f][0-9a-f])*$'"
        return f"{text} IS NOT NULL AND TRY_CAST({text} AS {self.type_of(kind)}) IS NULL"

    def limits(self, shape: Shape, /) -> Iterator[tuple[str, str]]:
        """Yield the SQL condition that a row's key ends with a blank.

        Redshift treats such a key as equal to the key without the blank.
        """
        for each in shape.key_columns:
            if each.kind.name == "text":
                name = quoted(each.name)
                yield f"OCTET_LENGTH({name}) <> OCTET_LENGTH(RTRIM({name}))", f"the key {each.name} ends with a blank"

    def type_of(self, kind: Kind) -> str:
        """Return Redshift's name of a column type. The type of a text contains its length."""
        if kind.name == "text":
            return f"varchar({kind.length or LENGTHS[0]})"
        return _TYPES.get(kind.name) or super().type_of(kind)

    def value(self, text: str, kind: Kind) -> str:
        """Return SQL for the value of an expression. Texts are not cast, because a cast would cut long ones."""
        if kind.name == "json":
            return f"JSON_PARSE({text})"
        return text if kind.name == "text" else super().value(text, kind)

    def check(self, table: str, shape: Shape, /) -> None:
        """Raise InvalidShape also for names that differ only in case, and for too long names and schemas."""
        super().check(table, shape)
        check_case(shape.columns, "Redshift")
        for name in (table, *(each.name for each in shape.columns)):
            if len(name.encode()) > _LONGEST_NAME:
                raise InvalidShape(f"{name} is not a name in Redshift: expected at most {_LONGEST_NAME} bytes.")
        if (size := len(shape.model_dump_json().encode())) > LENGTHS[-1]:
            raise InvalidShape(f"the schema of {table} has {size} bytes: expected at most {LENGTHS[-1]} in Redshift.")

    def look(self, copies: Sequence[Copy], shape: Shape | None, /) -> Findings:
        """Return the lengths of texts, and rows in which a text, bytes or the line is too long."""
        columns = shape.columns if shape else ()
        return look(copies, LENGTHS[-1], LONGEST_ROW, {each.name for each in columns if each.kind.name == "bytes"})

    def fitted(self, shape: Shape, lengths: Mapping[str, int], /) -> Shape:
        """Return the shape, in which each text column has the smallest length of LENGTHS that is sufficient."""
        return shape.model_copy(update={"columns": tuple(_fitted(each, lengths) for each in shape.columns)})

    def grow(self, table: str, column: Column, /) -> Iterator[ColumnGrowth]:
        """Yield an ALTER COLUMN TYPE statement that lengthens a text column, if the column is too short.

        The statement works only for texts, and Redshift refuses it inside a transaction.
        """
        schema, _, name = ("", "", table) if table.startswith('"') else table.partition(".")
        where = f"table_schema = {literal(schema)}" if schema else "table_schema = CURRENT_SCHEMA()"
        column_condition = (
            f"table_name = {literal(_folded(name))} AND column_name = {literal(_folded(quoted(column.name)))}"
        )
        shorter = f"character_maximum_length < {column.kind.length}"
        yield ColumnGrowth(
            f"SELECT 1 FROM information_schema.columns WHERE {where} AND {column_condition} AND {shorter}",
            f"ALTER TABLE {table} ALTER COLUMN {quoted(column.name)} TYPE {self.type_of(column.kind)}",
            tuple(self._replaced(table, column, quoted(column.name))),
        )

    def newest(self, newest: str, staging: str, shape: Shape) -> Iterator[str]:
        """Yield a statement that creates the table `newest` with the newest staged row of each key, by ROW_NUMBER."""
        number = f"ROW_NUMBER() OVER (PARTITION BY {self.keys(shape)} ORDER BY {OFFSET} DESC) AS {_ROW}"
        rows = f"SELECT {self.columns(shape)}, {number} FROM {staging}"
        yield f"CREATE TEMP TABLE {newest} AS SELECT * FROM ({rows}) r WHERE {_ROW} = 1"

    def column(self, column: Column) -> str:
        """Return the definition of a column: its name and type, and for a text its encoding.

        Redshift refuses to lengthen a column whose encoding it has chosen itself to be BYTEDICT, RUNLENGTH, TEXT255 or
        TEXT32K. One column with an encoding turns this choice off for the whole table.
        """
        return f"{quoted(column.name)} {self._encoded(column.kind)}"

    def _encoded(self, kind: Kind) -> str:
        return f"{self.type_of(kind)}{' ENCODE zstd' if kind.name == 'text' else ''}"

    def add(self, table: str, column: Column) -> Iterator[str]:
        """Yield statements that add a column, and update existing rows to its default."""
        yield from super().add(table, column)
        if column.default is not None:
            yield f"UPDATE {table} SET {quoted(column.name)} = {self.value(literal(column.default), column.kind)}"

    def widen(self, table: str, column: Column, was: Kind) -> Iterator[str]:
        """Yield statements that replace a column by a new one. Redshift cannot alter columns in a transaction."""
        name = quoted(column.name)
        text = f"CASE WHEN {name} THEN 'true' WHEN NOT {name} THEN 'false' END"  # Redshift cannot cast a boolean.
        value = text if was.name == "boolean" else f"CAST({name} AS {self.type_of(column.kind)})"
        yield from self._replaced(table, column, value)

    def _replaced(self, table: str, column: Column, value: str) -> Iterator[str]:
        """Yield statements that replace a column by one of another type, which is the last one of the table."""
        name = quoted(column.name)
        yield f"ALTER TABLE {table} ADD COLUMN {_WIDENED} {self._encoded(column.kind)}"
        yield f"UPDATE {table} SET {_WIDENED} = {value}"
        yield f"ALTER TABLE {table} DROP COLUMN {name}"
        yield f"ALTER TABLE {table} RENAME COLUMN {_WIDENED} TO {name}"
        yield from comment(table, column)

    def make_nullable(self, _table: str, _name: str, /) -> Iterator[str]:
        """Return no statements: every column is nullable."""
        return iter(())

    def set_default(self, _table: str, _column: Column, /) -> Iterator[str]:
        """Return no statements: no column has a default."""
        return iter(())


def _fitted(column: Column, lengths: Mapping[str, int]) -> Column:
    if column.kind.name != "text":
        return column
    longest = max(lengths.get(column.name, 0), len((column.default or "").encode()))
    if longest > LENGTHS[-1]:
        raise InvalidShape(f"the default of {column.name} has {longest} bytes: expected at most {LENGTHS[-1]}.")
    length = next(each for each in LENGTHS if each >= longest)
    return column.model_copy(update={"kind": column.kind.model_copy(update={"length": length})})


def _folded(identifier: str) -> str:
    """Return the name in a quoted identifier, in the form in which Redshift stores it."""
    return identifier[1:-1].replace('""', '"').lower()


class _RedshiftConnection:
    def __init__(self, opened: Any, url: str, iam_role: str) -> None:
        self._opened, self._url, self._iam_role = opened, url, iam_role

    def execute(self, statement: str, values: Sequence[object] | None = None, /) -> list[tuple[Any, ...]]:
        """Run a statement with doubled backslashes, because Redshift reads a single one as an escape.

        Only literals contain backslashes. A statement with values was written by a user, so it is not changed.
        """
        with translated(self._url), self._opened.cursor() as cursor:
            if values is None:
                cursor.execute(statement.replace("\\", "\\\\"))
            else:
                cursor.execute(statement, values)
            return [tuple(each) for each in cursor.fetchall()] if cursor.description else []

    def shut(self) -> None:
        shut(getattr(self._opened, "_usock", None))

    def copy(self, table: str, columns: Mapping[str, str], batch: ChunkGroup) -> None:
        """Copy chunks, and then set the partition of their rows: COPY cannot set a constant."""
        names = ", ".join(map(quoted, columns))
        source = f"FROM {literal(batch.manifest)} IAM_ROLE {literal(self._iam_role)}"
        if batch.types:
            for each in columnar.copied(table, columns, batch, source):
                self.execute(each)
            return
        # Without TIMEFORMAT: the documented default is YYYY-MM-DD HH:MI:SSOF, with microseconds in SS. For 'auto', no
        # form with microseconds and an offset is documented.
        form = rf"MANIFEST CSV NULL AS '\N' IGNOREHEADER 1{' GZIP' if batch.is_packed else ''}"
        self.execute(f"COPY {table} ({names}) {source} {form} COMPUPDATE OFF STATUPDATE OFF")
        self.execute(f"UPDATE {table} SET {PARTITION} = {batch.partition} WHERE {PARTITION} IS NULL")


@contextmanager
def translated(url: str) -> Generator[None]:
    """Translate the driver's errors into ours: WarehouseUnavailable if they may be temporary, else LoadFailed."""
    try:
        yield
    except (driver.InterfaceError, driver.OperationalError, OSError) as error:
        raise WarehouseUnavailable(
            f"Redshift does not answer: {_message(error, url)}. Check that it is running."
        ) from None
    except driver.Error as error:
        if _may_be_over(error):
            raise WarehouseUnavailable(f"Redshift cannot do it now: {_message(error, url)}.") from None
        raise LoadFailed(f"Redshift refuses: {_message(error, url)}") from None


def _may_be_over(error: driver.Error) -> bool:
    """Return whether a retry may succeed, for example after error 1023, a conflict with another transaction."""
    facts = _facts(error)
    return str(facts.get("C", "")).startswith(_MAY_BE_OVER) or str(facts.get("M", "")).strip().startswith("1023")


def _facts(error: Exception) -> Mapping[str, Any]:
    """Return the server's error fields by letter: C is the SQLSTATE, M the message, D the detail."""
    details: Any = error.args[0] if error.args else None
    return cast(Mapping[str, Any], details) if isinstance(details, dict) else {"M": str(error)}


def _message(error: Exception, url: str) -> str:
    facts = _facts(error)
    return masked(" ".join(" ".join(str(facts[each]) for each in "MD" if each in facts).split()), url)
