"""Lengths of the texts in chunks, for a warehouse with limits. DuckDB measures them in local copies of the chunks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import duckdb

from feed_assets.warehouse.chunk_rows import text_rows_of
from feed_assets.warehouse.duck import opened_at, translated
from feed_assets.warehouse.engines import Findings, RefusedRow
from feed_assets.warehouse.load_files import Copy
from feed_assets.warehouse.shapes import OFFSET


class _Measure(NamedTuple):
    """A size to check: the SQL for the bytes of a column's value or of a whole line, and the most bytes allowed."""

    name: str
    size: str
    most: int


def look(copies: Sequence[Copy], longest_text: int, longest_line: int, of_bytes: Collection[str]) -> Findings:
    """Return the length of each column's longest text, and the rows with a text or line above these limits.

    In columns `of_bytes`, a text has two digits for each byte. `longest_text` limits the digits, so such a
    column has at most half as many bytes. The chunks are read once for the lengths. They are read again only if
    something is too long, to find its rows.
    """
    lengths, refused = dict[str, int](), dict[Copy, list[RefusedRow]]()
    with translated(), opened_at(":memory:") as opened:
        for (columns, _), group in groupby(sorted(copies, key=_columns), _columns):
            chunks, measures = [*group], _measures(columns, longest_text, longest_line, of_bytes)
            measured = _lengths(opened, chunks, measures)
            for each, (longest, length) in zip(measures, measured, strict=True):
                lengths[each.name] = max(length, lengths.get(each.name, 0))
                if longest > each.most:
                    for copy, row in _refused(opened, chunks, each):
                        refused.setdefault(copy, []).append(row)
    return Findings(lengths, {copy: _each_once(rows) for copy, rows in refused.items()})


def _columns(copy: Copy) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return copy.columns, copy.types


def _measures(
    columns: Sequence[str], longest_text: int, longest_line: int, of_bytes: Collection[str]
) -> list[_Measure]:
    cells = [f"c{number}" for number in range(len(columns))]
    line = " + ".join(f"""coalesce(strlen(replace({each}, '"', '""')), 0) + 3""" for each in cells)
    texts = [
        _Measure(name, f"strlen({cell}) // 2", longest_text // 2)
        if name in of_bytes
        else _Measure(name, f"strlen({cell})", longest_text)
        for name, cell in zip(columns, cells, strict=True)
    ]
    return [*texts, _Measure("its line", line, longest_line)]


def _lengths(
    opened: duckdb.DuckDBPyConnection, chunks: Sequence[Copy], measures: Sequence[_Measure]
) -> list[tuple[int, int]]:
    """Return for each measure the greatest size, and the greatest size within its limit."""
    expressions = [
        f"coalesce(max({size}), 0), coalesce(max({size}) FILTER ({size} <= {most}), 0)" for _, size, most in measures
    ]
    [row] = opened.execute(f"SELECT {', '.join(expressions)} FROM {text_rows_of(chunks)}").fetchall()
    return [*zip(row[::2], row[1::2], strict=True)]


def _refused(
    opened: duckdb.DuckDBPyConnection, chunks: Sequence[Copy], measure: _Measure
) -> Iterator[tuple[Copy, RefusedRow]]:
    name, size, most = measure
    by_path: Mapping[str, Copy] = {str(each.path): each for each in chunks}
    offset = f"CAST(c{chunks[0].columns.index(OFFSET)} AS bigint)"
    rows = f"SELECT filename, {offset}, {size} FROM {text_rows_of(chunks, has_path=True)} WHERE {size} > {most}"
    for path, at, byte_count in opened.execute(rows).fetchall():
        copy = by_path[path]
        yield copy, RefusedRow(copy.partition, at, f"{name} has {byte_count} bytes: expected at most {most}")


def _each_once(rows: Sequence[RefusedRow]) -> list[RefusedRow]:
    """Return each refused row once, with its first reason."""
    return [*{(each.partition, each.offset): each for each in reversed(rows)}.values()]
