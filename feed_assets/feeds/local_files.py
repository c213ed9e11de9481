"""Files on this machine before they are published, plain or compressed by gzip."""

import gzip
from collections.abc import Sequence
from gzip import GzipFile
from io import BufferedReader
from pathlib import Path
from typing import IO

from feed_assets.core.csv_dialect import CsvDialect, beginning_of, first_bytes


def open_bytes(file: Path) -> GzipFile | BufferedReader:
    """Open a file for reading. A .gz file is decompressed."""
    return gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb")


def open_text(file: Path, encoding: str, errors: str = "strict") -> IO[str]:
    """Open a text file for reading, with unchanged line ends. A .gz file is decompressed."""
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding=encoding, errors=errors, newline="")
    return file.open(encoding=encoding, errors=errors, newline="")


def csv_problem(file: Path, names: Sequence[str], dialect: CsvDialect) -> str | None:
    """Return why a run would refuse a CSV file with these columns, judged by its first bytes. Return None otherwise."""

    def read(size: int) -> bytes:
        with open_bytes(file) as data:
            return data.read(size)

    return beginning_of(first_bytes(read), names, dialect).problem
