"""The tables that each pipeline writes, read from a table or file that others own.

Source: "Data Orchestration via Events" (2024), "More complex systems".
"""

from collections.abc import Collection, Iterable, Iterator
from io import BytesIO

import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.limits import READ_BYTES, ROW_BYTES
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.cells import cut, memory
from feed_assets.sources.databases import columns_of, reading, rows_alone
from feed_assets.sources.text_rows import json_object

Lineage = dict[str, frozenset[str]]
"""The table names of each pipeline."""


def read_lineage(url: str, table: str, pipeline: str, table_name: str, schema: str | None = None) -> Lineage:
    """Read lineage from a table or view with one row per table. Raise SourceUnavailable on failure."""
    source, names = f"{schema}.{table}" if schema else table, (pipeline, table_name)
    with reading(url) as connection:
        types, backend = columns_of(connection, table, schema, names), connection.dialect.name
        cells = [cut(sa.column(each), types[each], backend).label(f"cell_{at}") for at, each in enumerate(names)]
        with rows_alone(connection, sa.select(*cells).select_from(sa.table(table, schema=schema))) as rows:
            return _by_pipeline(source, ((row["cell_0"], row["cell_1"]) for row in rows))


def read_lineage_file(board: Blackboard, key: str, pipeline: str, table_name: str) -> Lineage:
    """Read lineage from JSON lines with one object per table. Raise SourceUnavailable or Blackboard* on failure."""
    rows = rows_of_file(board, key, (pipeline, table_name))
    if rows is None:
        raise SourceUnavailable(f"{board.title} has no file {key}: correct its name, or have its owner publish it.")
    return _by_pipeline(key, ((row[pipeline], row[table_name]) for row in rows))


def rows_of_file(board: Blackboard, key: str, needed: Collection[str]) -> Iterator[dict[str, str]] | None:
    """Return the objects in a file of JSON lines, each with the `needed` texts; None if the file is missing.

    Raise SourceUnavailable if a line lacks one of these texts, or if a line or the file is too long. Raise Blackboard*
    if the file cannot be read.
    """
    content = board.get(key, READ_BYTES + 1)
    if content and len(content) > READ_BYTES:
        raise _too_long(key, "bytes", READ_BYTES)
    return None if content is None else (_row(key, at, line, needed) for at, line in enumerate(BytesIO(content), 1))


def _row(key: str, number: int, line: bytes, needed: Collection[str]) -> dict[str, str]:
    if len(line) > ROW_BYTES:
        raise _too_long(f"{key} line {number}", "bytes", ROW_BYTES)
    row = json_object(line.decode(errors="replace"))
    if isinstance(row, str) or not all(isinstance(row.get(name), str) for name in needed):
        raise SourceUnavailable(
            f"{key} line {number}: found {line[:200].decode(errors='replace')!r}, expected a JSON object with the "
            f"texts {', '.join(needed)}. Have its owner correct it."
        )
    return row


def _by_pipeline(source: str, rows: Iterable[tuple[str, str]]) -> Lineage:
    """Return the tables by pipeline. Raise SourceUnavailable if the rows are too large for the memory of a tick."""
    size, tables_by_pipeline = 0, dict[str, set[str]]()
    for name, table in rows:
        size += memory((name, table))
        if max(len(str(name)), len(str(table))) > ROW_BYTES:
            raise _too_long(f"a name in {source}", "characters", ROW_BYTES)
        if size > READ_BYTES:
            raise _too_long(f"the names in {source}", "bytes", READ_BYTES)
        tables_by_pipeline.setdefault(name, set()).add(table)
    return {name: frozenset(tables) for name, tables in tables_by_pipeline.items()}


def _too_long(place: str, unit: str, most: int) -> SourceUnavailable:
    return SourceUnavailable(
        f"{place}: found more than {most:,} {unit}, expected at most that many. Have its owner remove what is not "
        "lineage."
    )
