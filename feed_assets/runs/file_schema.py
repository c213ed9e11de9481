"""Checks of a file before it is published as part of a declared feed, as far as possible without Spark."""

import json
import zlib
from collections.abc import Iterator, Sequence
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import IO, Any

from feed_assets.core.csv_dialect import RFC_4180, CsvDialect
from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import PACKED
from feed_assets.core.file_checks import Format
from feed_assets.core.limits import READ_BYTES
from feed_assets.core.packed import BZIP2_END, MAGIC_BYTES, end_problem, packing_problem
from feed_assets.core.schemas import column_names
from feed_assets.feeds.local_files import csv_problem, open_text

LINES = 10
"""Number of JSON lines that are checked.

Some of these lines may be invalid, because a run rejects single records. If all are invalid, the file is refused.
"""


def check_file(file: Path, form: Format, schema: str, dialect: CsvDialect = RFC_4180) -> None:
    """Raise UnreadableUpdate if no run could read the file in this format with these columns (Spark DDL).

    The check covers encoding and header of CSV, objects in the first lines of JSON, and column names of Parquet.
    """
    names = column_names(schema)
    if form != "parquet" and (problem := _packing(file)):
        raise UnreadableUpdate(f"{file}: {problem}. Nothing is published. Correct the file, or the declaration.")
    try:
        check_by_format = {"json": _json, "parquet": _parquet}
        problem = _csv(file, names, dialect) if form == "csv" else check_by_format[form](file, names)
    except (ValueError, NotImplementedError, OSError, EOFError, zlib.error) as error:  # pyarrow raises these, too
        problem = f"it cannot be read as {form}: {' '.join(str(error).split())}"
    if problem:
        raise UnreadableUpdate(f"{file}: {problem}. Nothing is published. Correct the file, or the declaration.")


def _packing(file: Path) -> str | None:
    size = file.stat().st_size
    with file.open("rb") as data:
        head = data.read(MAGIC_BYTES)
        data.seek(max(size - BZIP2_END, 0))
        return (packing_problem(file.name, head, size) or end_problem(file.name, data.read())) if size else None


def _csv(file: Path, names: Sequence[str], dialect: CsvDialect) -> str | None:
    if file.suffix in PACKED and file.suffix != ".gz":
        return None
    return csv_problem(file, names, dialect)


def _json(file: Path, names: Sequence[str]) -> str | None:
    with _text(file) as lines:
        first = [*islice((line for line in _short(lines) if line.strip()), LINES)]
    if not first or any(map(_is_object, first)):
        return None
    return f"its first line is {first[0].strip()[:60]!r}: expected a JSON object with {names[0]!r} and so on"


def _short(lines: IO[str]) -> Iterator[str]:
    """Yield the lines of a file. Raise ValueError if a line is too long to check, as in some compressed files."""
    while line := lines.readline(READ_BYTES + 1):
        if len(line) > READ_BYTES:
            raise ValueError(f"a line has more than {READ_BYTES} characters: expected no more")
        yield line


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _parquet(file: Path, names: Sequence[str]) -> str | None:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    read: Any = pq.read_schema  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    columns: list[str] = read(file).names
    if {*columns} == {*names}:
        return None
    return f"its columns are {', '.join(sorted(columns))}: expected {', '.join(sorted(names))}"


def _text(file: Path) -> IO[str]:
    """Open a text file, plain or compressed by gzip. Return an empty text for other compressions."""
    if file.suffix in PACKED and file.suffix != ".gz":
        return StringIO()
    return open_text(file, "utf-8-sig")
