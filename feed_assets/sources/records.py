"""Rows of an event file, and the places where they end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.limits import REASON_BYTES, excerpt


@dataclass(frozen=True)
class FilePosition:
    """A position in a file: the `offset` (bytes; rows of Parquet) and the line that were read last.

    `etag` is the file's, `crc` the checksum of what was read of it, `ended` whether that was all.
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
    """A row of a file, or its JSON text and the reason why it is no row; and the place after it."""

    place: FilePosition
    line: int
    row: Mapping[str, Any] | None
    raw: str = ""
    reason: str = ""
    size: int = 0
    """Its approximate size in bytes."""


@dataclass(frozen=True)
class Blank:
    """Lines of a file without content, as many as were found together, and the place after them."""

    place: FilePosition
    size: int


@dataclass(frozen=True)
class Unfinished:
    """The end of a file that is not yet whole."""

    reason: str


def check_header(file: str, header: Iterable[str], needed: Iterable[str]) -> None:
    """Raise SourceUnavailable unless every needed column is there, and none twice."""
    columns = tuple(header)
    missing = [column for column in needed if column not in columns]
    if missing or len({*columns}) < len(columns):
        column_text = excerpt(", ".join(columns), REASON_BYTES // 2)
        raise SourceUnavailable(
            f"{file} has the columns {column_text!a}: expected each once, and {', '.join(missing) or 'no more'}. "
            "Declare what their columns are called, None for what they do not have; or have the file put right, or "
            "removed."
        )


def shrunk(file: str, size: int, read: int, unit: str) -> SourceUnavailable:
    """Return the error of a file that is shorter than what was read of it."""
    return SourceUnavailable(
        f"{file} has {size} {unit}, and {read} were read: expected that it only grows. Have it put back whole; if "
        "what it is now is right, read the source from the beginning."
    )


def gone(file: str) -> SourceUnavailable:
    """Return the error of a file that is listed, but missing."""
    return SourceUnavailable(f"{file} was removed while it was read: nothing is lost, the next read looks again.")
