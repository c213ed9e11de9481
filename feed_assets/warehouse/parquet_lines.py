"""Parquet files of an update or of chunks, which DuckDB converts to lines of the chunks' dialect for the loader."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, cast

import duckdb

from feed_assets.core.errors import DiskFull, InvalidShape, UnreadableUpdate
from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.chunk_rows import file_list, text_rows_of
from feed_assets.warehouse.duck import opened_at, translated
from feed_assets.warehouse.load_files import Copy
from feed_assets.warehouse.shapes import TAKEN, TEXT, Column, Kind, Shape

if TYPE_CHECKING:
    from duckdb.sqltypes import DuckDBPyType

LINES_BYTES = 32 << 20
"""Approximate bytes of a file of lines.

To read the file, DuckDB reserves this amount of memory, because one line may be as long as the file.
"""

_FORM = (
    r"""FORMAT csv, HEADER false, QUOTE '"', ESCAPE '"', NULLSTR '\N', FORCE_QUOTE *, """
    f"FILE_SIZE_BYTES {LINES_BYTES}"
)

_JSON = Kind(name="json")
_KINDS = {
    "boolean": Kind(name="boolean"),
    "tinyint": Kind(name="integer"),
    "smallint": Kind(name="integer"),
    "integer": Kind(name="integer"),
    "bigint": Kind(name="bigint"),
    "float": Kind(name="real"),
    "double": Kind(name="double"),
    "varchar": TEXT,
    "blob": Kind(name="bytes"),
    "date": Kind(name="date"),
    "time": Kind(name="time"),
    "timestamp": Kind(name="local_timestamp"),
    "timestamp with time zone": Kind(name="timestamp"),
    "list": _JSON,
    "map": _JSON,
    "struct": _JSON,
}
"""Kinds by DuckDB's names of types, except decimals."""

_AS_THEY_ARE = frozenset({"boolean", "tinyint", "smallint", "integer", "bigint", "varchar"})
"""Types whose values are written to JSON as they are."""


class Rows:
    """The rows of some Parquet files. Each column has a type that fits all files."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._rows = f"read_parquet([{file_list(paths)}], hive_partitioning = false, union_by_name = true)"

    @property
    def types(self) -> "dict[str, DuckDBPyType]":
        """Return the type of each column, in order. Raise UnreadableUpdate."""
        with _reading() as connection:
            relation = connection.sql(f"FROM {self._rows}")
            return dict(zip(relation.columns, relation.types, strict=True))

    @property
    def shape(self) -> Shape:
        """Return the shape of a table for the rows. All columns are nullable. Raise UnreadableUpdate, InvalidShape."""
        types = self.types
        if reserved := types.keys() & TAKEN:
            raise InvalidShape(
                f"there is a column {min(reserved)}: that is a column of every table. Rename it in the dataset."
            )
        return Shape(columns=tuple(Column(name=name, kind=_kind(name, each)) for name, each in types.items()), key=())

    def write(self, names: Sequence[str], folder: Path) -> tuple[int, tuple[Path, ...]]:
        """Write some columns as lines into files of a new folder. Return the number of lines, and the files.

        Raise UnreadableUpdate and DiskFull.
        """
        types = self.types
        texts = ", ".join(_text(quoted(name), types[name]) for name in names)
        with _reading() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            copied = connection.execute(f"COPY (SELECT {texts} FROM {self._rows}) TO {literal(str(folder))} ({_FORM})")
            [(count,)] = copied.fetchall()
        return count, tuple(sorted(folder.iterdir()))


@contextmanager
def line_files(copies: Sequence[Copy]) -> Generator[Sequence[Path]]:
    """Yield local files with the lines of chunks. Lines of Parquet are removed at the end of the block.

    Raise WarehouseUnavailable if there is no room for them.
    """
    paths = [each.path for each in copies]
    if not copies[0].types:
        yield paths
        return
    with TemporaryDirectory(dir=paths[0].parent) as folder:
        yield _lines_of(copies, Path(folder) / "lines")


def _lines_of(copies: Sequence[Copy], folder: Path) -> Sequence[Path]:
    with translated(), opened_at(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = f"SELECT * FROM {text_rows_of(copies)}"
        connection.execute(f"COPY ({rows}) TO {literal(str(folder))} ({_FORM})")
    return sorted(folder.iterdir())


def _kind(name: str, column_type: "DuckDBPyType") -> Kind:
    if column_type.id == "decimal":
        return Kind(name="decimal", **cast(Mapping[str, int], dict(column_type.children)))
    if column_type.id not in _KINDS:
        raise InvalidShape(
            f"the column {name} is {column_type}, which no table can have: expected a type of Spark. Cast it."
        )
    return _KINDS[column_type.id]


def _text(value: str, kind: "DuckDBPyType") -> str:
    """Return a SQL expression for the text of a value in the chunks' dialect."""
    if _KINDS.get(kind.id) == _JSON:
        return f"CAST({_json(value, kind)} AS VARCHAR)"
    return f"lower(hex({value}))" if kind.id == "blob" else f"CAST({value} AS VARCHAR)"


def _json(value: str, kind: "DuckDBPyType", depth: int = 0) -> str:
    """Return a SQL expression for a value in the dialect's JSON. Values that JSON cannot represent exactly are text."""
    inner = f"e{depth}"
    match kind.id:
        case "list":
            (_, each), *_ = _children(kind)
            return f"to_json(list_transform({value}, lambda {inner}: {_json(inner, each, depth + 1)}))"
        case "map":
            _, (_, each) = _children(kind)
            entry = f"{{'k': CAST({inner}.key AS VARCHAR), 'v': {_json(f'{inner}.value', each, depth + 1)}}}"
            return f"to_json(map_from_entries(list_transform(map_entries({value}), lambda {inner}: {entry})))"
        case "struct":
            fields = ", ".join(
                f"{literal(name)}: {_json(f'struct_extract({value}, {literal(name)})', each, depth)}"
                for name, each in _children(kind)
            )
            return f"CASE WHEN {value} IS NULL THEN NULL ELSE to_json({{{fields}}}) END"
        case "float" | "double":
            return f"CASE WHEN isfinite({value}) THEN to_json({value}) ELSE to_json(CAST({value} AS VARCHAR)) END"
        case name:
            return f"to_json({value if name in _AS_THEY_ARE else _text(value, kind)})"


def _children(kind: "DuckDBPyType") -> "Sequence[tuple[str, DuckDBPyType]]":
    return cast("Sequence[tuple[str, DuckDBPyType]]", kind.children)


@contextmanager
def _reading() -> Generator[duckdb.DuckDBPyConnection]:
    """Yield a DuckDB in memory, and translate its errors into ours."""
    try:
        with opened_at(":memory:") as connection:
            yield connection
    except duckdb.IOException as error:
        advice = "Make room for the rows of an update, or set TMPDIR to a larger disk"
        raise DiskFull(f"the copy of an update cannot be kept: {' '.join(str(error).split())}. {advice}.") from error
    except duckdb.Error as error:
        message = " ".join(str(error).split())
        raise UnreadableUpdate(f"it cannot be read as Parquet: {message}. Have it published again.") from error
