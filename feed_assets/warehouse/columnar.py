"""Redshift's COPY of chunks in Parquet, through a table with exactly the columns of the files.

By its documentation, such a COPY takes no list of columns, no NULL AS and no COMPUPDATE: the table has as many columns
as the file, in the same order, of the same types.
"""

import re
from collections.abc import Iterator, Mapping

from feed_assets.core.sql_text import quoted
from feed_assets.warehouse.load_files import ChunkGroup
from feed_assets.warehouse.shapes import PARTITION

_FILE = '"feed_assets file"'
"""A temporary table with the rows of some files."""

_TYPES = {
    "bool": "boolean",
    "int32": "integer",
    "int64": "bigint",
    "float": "real",
    "double": "double precision",
    "binary": "varbyte(32767)",
    "date32[day]": "date",
    "time64[us]": "time",
    "timestamp[us]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamp",
    "string": "varchar(65535)",
}
"""Redshift's types by Arrow's names, except decimals. Parquet's timestamps have no zone in Redshift: they are UTC."""


def copied(table: str, columns: Mapping[str, str], batch: ChunkGroup, source: str) -> Iterator[str]:
    """Yield statements that copy chunks in Parquet into columns of a table, with the partition of each row.

    `columns` has the table's column and its type for each column of the files, and `source` where the files are.
    """
    cells = [f"c{number}" for number in range(len(columns))]
    types = [*map(_type, batch.types)]
    yield f"CREATE TEMP TABLE {_FILE} ({', '.join(f'{cell} {kind}' for cell, kind in zip(cells, types, strict=True))})"
    yield f"COPY {_FILE} {source} FORMAT AS PARQUET MANIFEST STATUPDATE OFF"
    values = [_value(*each) for each in zip(cells, types, columns.values(), strict=True)]
    names = ", ".join(map(quoted, columns))
    yield f"INSERT INTO {table} ({names}, {PARTITION}) SELECT {', '.join(values)}, {batch.partition} FROM {_FILE}"
    yield f"DROP TABLE {_FILE}"


def _type(arrow: str) -> str:
    if digits := re.fullmatch(r"decimal128\((\d+), (\d+)\)", arrow):
        return f"numeric({digits[1]}, {digits[2]})"
    return _TYPES[arrow]


def _value(cell: str, was: str, kind: str) -> str:
    """Return SQL for a value of the files as a staged value, such as COPY of CSV would stage it."""
    if was == kind or (was.startswith("varchar") and kind.startswith("varchar")):  # A cast would cut a long text.
        return cell
    if was.startswith("varbyte"):
        return f"TO_HEX({cell})"
    if was == "boolean":  # Redshift cannot cast a boolean to a text.
        return f"CASE WHEN {cell} THEN 'true' WHEN NOT {cell} THEN 'false' END"
    return f"CAST({cell} AS {kind})"
