"""Complete reading of an update, to check all bytes against checksums and footers. No rows are kept.

Memory is bounded for any file size: pages are read one after the other, rows in batches.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import File, Update
from feed_assets.core.file_checks import format_of
from feed_assets.core.message_words import excerpt, sentence
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import metadata_of
from feed_assets.feeds.read import check_served
from feed_assets.reading.row_digest import RowDigest
from feed_assets.reading.row_stream import opened_stream, rows_by_batch

_UNPACKED = 4 << 20
"""Number of bytes of a gzip file that are unpacked at a time."""

_GZIP = 31
"""The `wbits` argument by which zlib expects the header and the checksum of gzip."""

_PIECE = 65_536
"""Number of bytes that are unpacked at once. zlib copies what is left of them at the end of each gzip member."""


class OutOfTime(Exception):
    """Time ran out before the whole update was read."""


@dataclass(frozen=True)
class Pages:
    """Number of files that were read, and number of rows in Parquet files."""

    files: int
    rows: int


def read_pages(
    board: Blackboard, update: Update, digest: RowDigest | None = None, out_of_time: Callable[[], bool] | None = None
) -> Pages:
    """Read all files of an update, and add the rows of Parquet files to a digest.

    Raises:
        UnreadableUpdate: A file is damaged: a checksum, its footer, or its number of rows is wrong.
        UpdateChanged: A file is gone or altered since it was listed.
        OutOfTime: `out_of_time`, which is called for each batch, returned True.
        BlackboardError: The store refuses, or does not answer.
    """
    rows = 0
    for file in update.files:
        if is_parquet(board, file):
            rows += _parquet(board, file, digest, out_of_time)
        else:
            _bytes(board, file, out_of_time)
    return Pages(len(update.files), rows)


def is_parquet(board: Blackboard, file: File) -> bool:
    """Return whether a file is Parquet, by its name or, without a known ending, by its last bytes."""
    form = format_of(file.key)
    if form or file.size < len(b"PAR1"):
        return form == "parquet"
    served, end = board.part(file.key, file.size - 4, 4) or (None, b"")
    check_served(file, served)
    return end == b"PAR1"


def _parquet(board: Blackboard, file: File, digest: RowDigest | None, out_of_time: Callable[[], bool] | None) -> int:
    """Read every page of a Parquet file. Return the number of rows."""
    metadata = metadata_of(board, file)
    _check_start(board, file)
    rows = 0
    try:
        with opened_stream(board, file, metadata) as opened:
            for batch in rows_by_batch(opened):
                if out_of_time and out_of_time():
                    raise OutOfTime
                rows += batch.num_rows
                if digest:
                    digest.add(batch)
    except (ValueError, LookupError, NotImplementedError, OSError) as error:  # These are pyarrow's own errors.
        raise UnreadableUpdate(
            f"{file.key} is damaged: {sentence(excerpt(str(error)))} Invalidate the update, and have it published "
            "or built again."
        ) from error
    return rows


def _check_start(board: Blackboard, file: File) -> None:
    served, start = board.part(file.key, 0, 4) or (None, b"")
    check_served(file, served)
    if start != b"PAR1":
        raise UnreadableUpdate(
            f"{file.key} is damaged: expected a Parquet file to begin with b'PAR1', found {start!r}. Invalidate the "
            "update, and have it published or built again."
        )


def _bytes(board: Blackboard, file: File, out_of_time: Callable[[], bool] | None) -> None:
    """Read all bytes of a file that is not Parquet. For a .gz file, check the checksums."""
    served, chunks = board.stream(file.key) or (None, ())
    check_served(file, served)
    size, packed = 0, _Packed(file) if file.key.endswith(".gz") else None
    for chunk in chunks:
        if out_of_time and out_of_time():
            raise OutOfTime
        size += len(chunk)
        if packed:
            packed.add(chunk)
    if packed:
        packed.end()
    if size != file.size:
        raise UnreadableUpdate(f"{file.key} is damaged: {size:,} bytes were read of {file.size:,}. Read it again.")


class _Packed:
    """A checker of gzip files, which unpacks their members and drops the data."""

    def __init__(self, file: File) -> None:
        self._key = file.key
        self._member: Any = zlib.decompressobj(_GZIP)

    def add(self, chunk: bytes) -> None:
        for start in range(0, len(chunk), _PIECE):
            self._add(chunk[start : start + _PIECE])

    def _add(self, data: bytes) -> None:
        try:
            while data:
                if self._member.eof:
                    data = data.lstrip(b"\0")  # Zeros may pad a file to a block size.
                    self._member = zlib.decompressobj(_GZIP) if data else self._member
                    continue
                self._member.decompress(data, _UNPACKED)
                data = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise UnreadableUpdate(
                f"{self._key} is damaged: {error}. Invalidate the update, and have it published again."
            ) from error

    def end(self) -> None:
        while not self._member.eof and self._member.decompress(b"", _UNPACKED):
            pass
        if not self._member.eof:
            raise UnreadableUpdate(
                f"{self._key} is damaged: it ends within a gzip member. Invalidate the update, and have it published "
                "again."
            )
