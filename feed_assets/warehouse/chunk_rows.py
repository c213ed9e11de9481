"""SQL by which DuckDB reads chunks in local files: lines, or Parquet."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from feed_assets.core.sql_text import literal, quoted
from feed_assets.warehouse.load_files import Copy

_LINE_BYTES = 2 << 20
"""The line limit for small files.

For a larger file, the limit is the file's size, because no line is longer than the file.
"""

_DIALECT = r"""header=false, auto_detect=false, delim=',', quote='"', escape='"', nullstr='\N',
    allow_quoted_nulls=false, new_line='\n', parallel=false"""

_GLOB = re.compile(r"[*?[]")


def rows_of(copies: Sequence[Copy], columns: Mapping[str, str], *, has_path: bool = False) -> str:
    """Return a table expression that reads chunks in local files. `columns` has their column names and types.

    The chunks have one format. With `has_path`, the last column is `filename`.
    """
    if copies[0].types:
        return _parquet_rows(copies, columns, has_path=has_path)
    longest = max(_LINE_BYTES, *(each.path.stat().st_size for each in copies))
    paths = file_list([each.path for each in copies])
    types = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in columns.items())
    options = ", filename=true" if has_path else ""
    return f"read_csv([{paths}], {_DIALECT}, max_line_size={longest}, columns={{{types}}}{options})"


def text_rows_of(copies: Sequence[Copy], *, has_path: bool = False) -> str:
    """Return a table expression that reads chunks in local files, with each column as a text: c0, c1 and so on."""
    texts = {f"c{number}": "varchar" for number in range(len(copies[0].columns))}
    return rows_of(copies, texts, has_path=has_path)


def _parquet_rows(copies: Sequence[Copy], columns: Mapping[str, str], *, has_path: bool) -> str:
    """Return a table expression for Parquet.

    Columns of the files are named by their position, because DuckDB would mix up names that differ only in case.
    """
    cells = [f"c{number}" for number in range(len(columns))]
    paths, path = file_list([each.path for each in copies]), ["filename"] if has_path else []
    values = [
        f"{_cast(cell, was, kind)} AS {quoted(name)}"
        for cell, was, (name, kind) in zip(cells, copies[0].types, columns.items(), strict=True)
    ]
    read = f"read_parquet([{paths}], hive_partitioning=false, filename={str(has_path).lower()})"
    return f"(SELECT {', '.join([*values, *path])} FROM {read} AS t({', '.join([*cells, *path])})) AS chunks"


def _cast(cell: str, was: str, kind: str) -> str:
    """Return SQL for a value of Parquet, such as its text in CSV would give."""
    if was == "binary":
        return f"lower(hex({cell}))"
    exact = f"CAST({cell} AS double)" if was == "float" else cell  # As a text, a float has fewer digits than in CSV.
    return f"CAST({exact} AS {kind})"


def file_list(paths: Sequence[Path]) -> str:
    """Return files as a list in SQL. DuckDB reads each path as a glob pattern, which could match other files, too."""
    return ", ".join(literal(_GLOB.sub(r"[\g<0>]", str(each))) for each in paths)
