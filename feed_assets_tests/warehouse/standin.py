"""Redshift's SQL on PostgreSQL: sqlglot translates each statement, and those that Redshift refuses are refused."""

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import psycopg
import pyarrow.parquet as parquet
import redshift_connector
import sqlglot
from psycopg.pq import TransactionStatus
from sqlglot import exp

from feed_assets.feeds.blackboard import Blackboard
from feed_assets.warehouse.redshift import LENGTHS, Redshift

ROLE = "arn:aws:iam::123456789012:role/reads-chunks"

_COPY = re.compile(
    r"""COPY (?P<table>"[^"]+") (?P<columns>\(.*\)) FROM '(?P<manifest>(?:[^']|'')+)' """
    r"""IAM_ROLE '(?P<role>arn:aws:iam::[^']+)' MANIFEST CSV NULL AS '(?P<null>[^']+)' IGNOREHEADER 1"""
    r"""(?P<gzip> GZIP)? COMPUPDATE OFF STATUPDATE OFF"""
)
_COPY_COLUMNAR = re.compile(
    r"""COPY (?P<table>"[^"]+") FROM '(?P<manifest>(?:[^']|'')+)' IAM_ROLE '(?P<role>arn:aws:iam::[^']+)' """
    r"""FORMAT AS PARQUET MANIFEST STATUPDATE OFF"""
)
"""The only options that the documentation allows for columnar formats, without a list of columns:
https://docs.aws.amazon.com/redshift/latest/dg/copy-usage_notes-copy-from-columnar.html
"""
_COLUMNAR = {
    "bool": "boolean",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "binary": "bytea",
    "date32[day]": "date",
    "time64[us]": "time without time zone",
    "timestamp[us]": "timestamp without time zone",
    "timestamp[us, tz=UTC]": "timestamp without time zone",
    "string": "varchar_65535",
}
_NOT_IN_POSTGRESQL = (exp.PrimaryKeyColumnConstraint, exp.EncodeColumnConstraint)
_JSONB = exp.DataType.build("jsonb", dialect="postgres")


class StandIn(Redshift):
    """Redshift with another connection. `statements` records all that it gets."""

    board: Blackboard | None = None

    def __init__(self, url: str, iam_role: str) -> None:
        super().__init__(url, iam_role)
        self.statements: list[str] = []

    @contextmanager
    def open(self) -> Iterator[Any]:
        with psycopg.connect(self._url.replace("redshift:", "postgresql:", 1), autocommit=True) as opened:
            yield self.connection(_Driver(opened, self))


def prepare(url: str) -> None:
    """Make the types of a database: a text of so many bytes at most is one of its own."""
    with psycopg.connect(url.replace("redshift:", "postgresql:", 1), autocommit=True) as opened:
        opened.execute("CREATE TABLE encodings (place text, name text, encoding text, PRIMARY KEY (place, name))")
        for length in (36, *LENGTHS):
            check = f"CHECK (octet_length(VALUE) <= {length})"
            opened.execute(f"CREATE DOMAIN varchar_{length} AS varchar({length}) {check}".encode())


class _Driver:
    """The part of Redshift's driver, connection and cursor, that an engine uses."""

    description: Any = None

    def __init__(self, opened: psycopg.Connection, engine: StandIn) -> None:
        self._opened, self._engine = opened, engine

    def cursor(self) -> "_Driver":
        return self

    def __enter__(self) -> "_Driver":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, statement: str) -> None:
        self._engine.statements.append(statement)
        found = parsed(statement)
        if isinstance(found, exp.Copy):
            return self._copy(statement)
        is_within = self._opened.info.transaction_status != TransactionStatus.IDLE
        if said := refused(found, is_within) or self._refused_encoding(found):
            raise redshift_connector.ProgrammingError({"S": "ERROR", "C": "0A000", "M": said})
        try:
            self._cursor = self._opened.execute(translated(found).encode())
        except psycopg.Error as error:
            raise redshift_connector.ProgrammingError({"C": error.sqlstate, "M": f"{error} ({statement})"}) from error
        self.description = self._cursor.description
        self._note_encodings(found)
        return None

    def _refused_encoding(self, found: exp.Expression) -> str:
        """Return why a column cannot be lengthened: "You can't alter a column with compression encodings BYTEDICT,
        RUNLENGTH, TEXT255, or TEXT32K" (https://docs.aws.amazon.com/redshift/latest/dg/r_ALTER_TABLE.html).
        """
        altered = found.find(exp.AlterColumn) if isinstance(found, exp.Alter) else None
        if altered is None:
            return ""
        place = [_place(found.this), altered.this.name.lower()]
        rows = self._opened.execute("SELECT encoding FROM encodings WHERE place = %s AND name = %s", place).fetchall()
        bad = [each for (each,) in rows if each in ("bytedict", "runlength", "text255", "text32k")]
        return f"column has the encoding {bad[0]}, which cannot be altered" if bad else ""

    def _note_encodings(self, found: exp.Expression) -> None:
        """Note each column's encoding, in the transaction of the statement.

        A text without one gets the worst that ENCODE AUTO may choose
        (https://docs.aws.amazon.com/redshift/latest/dg/c_Compression_encodings.html).
        """
        if not isinstance(found, exp.Create | exp.Alter):
            return
        place = _place(found.find(exp.Table))
        for each in found.find_all(exp.ColumnDef):
            told = each.find(exp.EncodeColumnConstraint)
            is_text = each.kind is not None and each.kind.this == exp.DataType.Type.VARCHAR
            encoding = told.name.lower() if told else "text255" if is_text else "az64"
            name = each.name.lower()
            self._opened.execute("DELETE FROM encodings WHERE place = %s AND name = %s", [place, name])
            self._opened.execute("INSERT INTO encodings VALUES (%s, %s, %s)", [place, name, encoding])
        for each in found.find_all(exp.RenameColumn):
            old, new = each.this.name.lower(), each.args["to"].name.lower()
            self._opened.execute("DELETE FROM encodings WHERE place = %s AND name = %s", [place, new])
            self._opened.execute("UPDATE encodings SET name = %s WHERE place = %s AND name = %s", [new, place, old])

    def fetchall(self) -> list[Any]:
        return [[*each] for each in self._cursor.fetchall()]

    def _copy(self, statement: str) -> None:
        if columnar := _COPY_COLUMNAR.fullmatch(statement):
            return self._copy_columnar(columnar["table"], columnar["manifest"].replace("''", "'"), columnar["role"])
        told = _COPY.fullmatch(statement)
        assert told, f"not the COPY that the stand-in knows: {statement}"
        assert told["role"] == ROLE
        null = told["null"].replace("\\\\", "\\")
        into = f"COPY {told['table']} {told['columns'].lower()} FROM STDIN (FORMAT csv, NULL '{null}')"
        self.description = None
        try:
            with self._opened.cursor().copy(into.encode()) as copy:
                for each in self._files(told["manifest"].replace("''", "'")):
                    _, _, lines = (gzip.decompress(each) if told["gzip"] else each).partition(b"\n")
                    copy.write(lines)
        except psycopg.Error as error:
            raise redshift_connector.ProgrammingError({"C": error.sqlstate, "M": str(error)}) from error
        return None

    def _copy_columnar(self, table: str, manifest: str, role: str) -> None:
        """Copy Parquet as Redshift does: by the order of columns, whose number and types are those of the file."""
        assert role == ROLE
        self.description = None
        columns = self._opened.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
            [table],
        ).fetchall()
        for each in self._files(manifest):
            rows = parquet.read_table(BytesIO(each))
            kinds = [_COLUMNAR.get(str(kind), str(kind).replace("decimal128", "numeric").replace(", ", ","))
                     for kind in rows.schema.types]  # fmt: skip
            if kinds != [kind for (kind,) in columns]:
                said = f"Spectrum Scan Error: incompatible Parquet schema: {kinds} for {columns}"
                raise redshift_connector.ProgrammingError({"S": "ERROR", "C": "XX000", "M": said})
            with self._opened.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
                for row in rows.to_pylist():
                    copy.write_row([*row.values()])

    def _files(self, manifest: str) -> Iterator[bytes]:
        for each in json.loads(self._object(manifest) or b"")["entries"]:
            content = self._object(each["url"])
            if content is not None:
                yield content
            elif each.get("mandatory"):
                said = f"Problem reading manifest file - {each['url']}: The specified key does not exist"
                raise redshift_connector.ProgrammingError({"S": "ERROR", "C": "XX000", "M": said})

    def _object(self, url: str) -> bytes | None:
        board = self._engine.board
        assert board
        assert url.startswith(f"{board.url}/"), url
        return board.get(url.removeprefix(f"{board.url}/"))


def parsed(statement: str) -> exp.Expression:
    """Parse a statement with sqlglot's Redshift dialect; fail if sqlglot only accepts it as an opaque command."""
    found = sqlglot.parse_one(statement, dialect="redshift")
    assert not found.find(exp.Command), f"sqlglot does not read it: {statement}"
    return found


def _place(table: Any) -> str:
    return f"{table.db}.{table.name}".lower()


def refused(found: exp.Expression, is_within: bool) -> str:
    """Return why Redshift would refuse it, or an empty result."""
    # https://docs.aws.amazon.com/redshift/latest/dg/r_TRUNCATE.html: it commits the transaction in which it is run.
    if isinstance(found, exp.TruncateTable):
        return "TRUNCATE would end the transaction"
    # https://docs.aws.amazon.com/redshift/latest/dg/c_unsupported-postgresql-features.html
    if found.find(exp.OnConflict, exp.Returning, exp.Index):
        return "syntax error: ON CONFLICT, RETURNING, INDEX"
    # https://docs.aws.amazon.com/redshift/latest/dg/r_SELECT_list.html: DISTINCT has no ON.
    if any(each.args.get("on") for each in found.find_all(exp.Distinct)):
        return "SELECT DISTINCT ON is not supported"
    # https://docs.aws.amazon.com/redshift/latest/dg/r_DELETE.html: the table has no alias.
    if isinstance(found, exp.Delete) and found.this.alias:
        return "syntax error: DELETE has no alias"
    return _refused_alter(found, is_within) if isinstance(found, exp.Alter) else ""


def _refused_alter(found: exp.Alter, is_within: bool) -> str:
    """Return what https://docs.aws.amazon.com/redshift/latest/dg/r_ALTER_TABLE.html refuses.

    A statement has one change. Only the size of a VARCHAR can be altered, and not inside a transaction block.
    """
    actions = found.args["actions"]
    if len(actions) > 1:
        return "ALTER TABLE does one thing at a time"
    if not isinstance(actions[0], exp.AlterColumn):
        return ""
    kind = actions[0].args.get("dtype")
    if kind is None or kind.this != exp.DataType.Type.VARCHAR or actions[0].args.get("using"):
        return "ALTER COLUMN SET/DROP is not supported"
    return "ALTER TABLE ALTER COLUMN cannot run inside a transaction block" if is_within else ""


def translated(found: exp.Expression) -> str:
    """Translate a statement into PostgreSQL."""
    return found.transform(_translated).sql("postgres")


def _translated(node: exp.Expression) -> exp.Expression | None:
    match node:
        case exp.DistStyleProperty() | exp.SortKeyProperty() | exp.PrimaryKey() | exp.PrimaryKeyColumnConstraint():
            return None
        case exp.ColumnConstraint() if isinstance(node.args["kind"], _NOT_IN_POSTGRESQL):
            return None
        case exp.Identifier():
            return exp.to_identifier(node.this.lower(), quoted=node.args.get("quoted"))
        case exp.CurrentTimestamp():
            return exp.func("clock_timestamp")
        case exp.ParseJSON():
            return exp.Cast(this=node.this.transform(_translated), to=_JSONB.copy())
        case exp.TryCast():
            kind = exp.Literal.string(node.to.sql("postgres"))
            is_valid = exp.func("pg_input_is_valid", node.this.copy(), kind)
            return exp.case().when(is_valid, exp.Cast(this=node.this.copy(), to=node.to.copy()))
        case exp.DataType():
            return _type(node)
    return _function(node)


def _function(node: exp.Expression) -> exp.Expression:
    if isinstance(node, exp.LowerHex):
        return exp.func("encode", node.this, exp.Literal.string("hex"))
    names = {"FROM_HEX": ("decode", "hex"), "CAN_JSON_PARSE": ("pg_input_is_valid", "jsonb")}
    if not isinstance(node, exp.Anonymous) or node.name not in names:
        return node
    name, how = names[node.name]
    return exp.Anonymous(this=name, expressions=[*node.expressions, exp.Literal.string(how)])


def _type(node: exp.DataType) -> exp.DataType:
    match node.this:
        case exp.DataType.Type.VARCHAR:
            return exp.DataType.build(f"varchar_{node.expressions[0].name}", dialect="postgres", udt=True)
        case exp.DataType.Type.SUPER:
            return _JSONB.copy()
        case exp.DataType.Type.VARBINARY:
            return exp.DataType.build("bytea", dialect="postgres")
    return node
