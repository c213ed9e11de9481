"""Rows of an event file, and the positions where they end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.limits import REASON_BYTES, excerpt


@dataclass(frozen=True)
class FilePosition:
    """A position in a file: `offset` bytes (for Parquet, rows) and `line` lines were read.

    `etag` is the file's etag when it was read. `crc` is the checksum of the bytes read. `ended` is True at the file's
    end.
    """

    file: str = ""
    etag: str = ""
    offset: int = 0
    line: int = 0
    crc: int = 0
    ended: bool = False
    header: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Record:
    """A row of a file, and the position after it.

    If the row is invalid, `row` is None, `raw` has its JSON text, and `reason` says why it is invalid.
    """

    place: FilePosition
    line: int
    row: Mapping[str, Any] | None
    raw: str = ""
    reason: str = ""
    size: int = 0
    """The row's approximate size in bytes."""


@dataclass(frozen=True)
class Blank:
    """A run of blank lines, and the position after it."""

    place: FilePosition
    size: int


@dataclass(frozen=True)
class Unfinished:
    """The last line of a file, which is not complete yet. `reason` says how this was recognised."""

    reason: str


def check_header(file: str, header: Iterable[str], needed: Iterable[str]) -> None:
    """Raise SourceUnavailable if a needed column is missing, or if a column occurs twice."""
    columns = tuple(header)
    missing = [column for column in needed if column not in columns]
    if missing or len({*columns}) < len(columns):
        column_text = excerpt(", ".join(columns), REASON_BYTES // 2)
        raise SourceUnavailable(
            f"{file} has the columns {column_text!a}: expected each column once, and "
            f"{', '.join(missing) or 'no more'}. Declare the names of its columns, and None for missing facts; or "
            "have the file corrected or removed."
        )


def shrunk(file: str, size: int, read: int, unit: str) -> SourceUnavailable:
    """Return the error for a file that is shorter than the part read before."""
    return SourceUnavailable(
        f"{file} has {size} {unit}, but {read} were read before: expected a file that only grows. Have the file "
        "restored; if its present content is right, read the source from the beginning."
    )


def gone(file: str) -> SourceUnavailable:
    """Return the error for a file that was listed, but is missing."""
    return SourceUnavailable(
        f"{file} was removed while it was read: nothing is lost, and the next read lists the files again."
    )
