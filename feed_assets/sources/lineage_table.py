"""The tables that each pipeline writes, read from a table or file that others own.

Source: "Data Orchestration via Events" (2024), "More complex systems".
"""

from collections.abc import Collection, Iterable

import sqlalchemy as sa

from feed_assets.core.errors import SourceUnavailable
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.databases import columns_of, reading
from feed_assets.sources.text_rows import json_object

Lineage = dict[str, frozenset[str]]
"""The table names of each pipeline."""


def read_lineage(url: str, table: str, pipeline: str, table_name: str, schema: str | None = None) -> Lineage:
    """Read lineage from a table or view with one row per table. Raise SourceUnavailable on failure."""
    names = sa.column(pipeline, sa.String), sa.column(table_name, sa.String)
    with reading(url) as connection:
        columns_of(connection, table, schema, (pipeline, table_name))
        rows = connection.execute(sa.select(*names).select_from(sa.table(table, schema=schema)))
        return _by_pipeline((name, each) for name, each in rows)


def read_lineage_file(board: Blackboard, key: str, pipeline: str, table_name: str) -> Lineage:
    """Read lineage from JSON lines with one object per table. Raise SourceUnavailable or Blackboard* on failure."""
    rows = rows_of_file(board, key, (pipeline, table_name))
    if rows is None:
        raise SourceUnavailable(f"{board.title} has no file {key}: correct its name, or have its owner publish it.")
    return _by_pipeline((row[pipeline], row[table_name]) for row in rows)


def rows_of_file(board: Blackboard, key: str, needed: Collection[str]) -> list[dict[str, str]] | None:
    """Return the objects in a file of JSON lines, each with the `needed` texts; None if the file is missing.

    Raise SourceUnavailable if a line lacks one of these texts, and Blackboard* if the file cannot be read.
    """
    content = board.get(key)
    return None if content is None else [_row(key, at, line, needed) for at, line in enumerate(content.splitlines(), 1)]


def _row(key: str, number: int, line: bytes, needed: Collection[str]) -> dict[str, str]:
    row = json_object(line.decode(errors="replace"))
    if isinstance(row, str) or not all(isinstance(row.get(name), str) for name in needed):
        raise SourceUnavailable(
            f"{key} line {number}: found {line[:200].decode(errors='replace')!r}, expected a JSON object with the "
            f"texts {', '.join(needed)}. Have its owner correct it."
        )
    return row


def _by_pipeline(rows: Iterable[tuple[str, str]]) -> Lineage:
    tables_by_pipeline: dict[str, set[str]] = {}
    for name, each in rows:
        tables_by_pipeline.setdefault(name, set()).add(each)
    return {name: frozenset(tables) for name, tables in tables_by_pipeline.items()}
