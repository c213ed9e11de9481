"""Checks of Parquet footers against their files, before a reader trusts them.

Spark gives each row group to the task whose part of the file contains the group's middle, according to the footer. If
the middle lies outside of the file, no task reads the group, and its rows are missing without an error.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import Any

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import File, Update
from feed_assets.core.message_words import excerpt, sentence
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footer_paths import check_paths
from feed_assets.feeds.parquet_metadata import check_columns
from feed_assets.feeds.read import check_served

_AT_A_TIME = 8
_TAIL = 65_536
"""Number of bytes at a file's end that the first request reads. Most footers are shorter."""

FOOTER_BYTES = 64 << 20
"""Maximum length of a footer. Parsing takes several times its length in memory."""

_LARGE = 1 << 20
_one_large = Lock()
"""A lock for footers of more than `_LARGE` bytes, which are read one at a time."""

_END = 8
"""Number of bytes of the footer's length and the magic number after it."""

_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""The key of a footer under which Spark writes its own schema."""

_START = 4
"""Number of bytes of the magic number at the beginning of a file."""


class NoFooter(UnreadableUpdate):
    """A file does not end like Parquet. `end` has its last four bytes."""

    def __init__(self, why: str, end: bytes) -> None:
        super().__init__(why)
        self.end = end


def check_footers(board: Blackboard, updates: Sequence[Update]) -> dict[str, int]:
    """Check the footer of each file against the file.

    Return the number of rows that each footer announces, by the file's key. This costs one request of at most 64 KiB
    for each file, rarely two.

    Raises:
        UnreadableUpdate: A file has no footer, or its footer does not fit the file.
        UpdateChanged: A file is gone or altered since it was listed.
        BlackboardError: The store refuses, or does not answer.
    """
    return {key: each.num_rows for key, each in _checked(board, updates).items()}


def spark_schemas(board: Blackboard, updates: Sequence[Update]) -> dict[str, str | None]:
    """Check the footers as `check_footers` does. Return the schema of each file, by key, as Spark's JSON.

    A file that Spark did not write has None.
    """
    notes: dict[str, Mapping[bytes, bytes]] = {
        key: each.metadata or {} for key, each in _checked(board, updates).items()
    }
    return {key: each[_SCHEMA].decode() if _SCHEMA in each else None for key, each in notes.items()}


def _checked(board: Blackboard, updates: Sequence[Update]) -> dict[str, Any]:
    files = {file.key: file for update in updates for file in update.files}
    if len(files) == 1:
        return {key: metadata_of(board, file) for key, file in files.items()}
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return dict(zip(files, pool.map(partial(metadata_of, board), files.values()), strict=True))


def check_footer(file: File, metadata: Any, end: int) -> int:
    """Check a footer against its file. Return the announced number of rows. `end` is the byte where the footer begins.

    Raise UnreadableUpdate if row groups or columns lie outside of the file, overlap, or do not add up.
    """
    flat = [metadata.schema.column(number).max_repetition_level == 0 for number in range(metadata.num_columns)]
    rows, column_spans = 0, list[tuple[int, int]]()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_rows == 0:  # Nobody reads an empty row group, and some writers omit its offsets.
            continue
        spans = [_span(group.column(each)) for each in range(group.num_columns)]
        values = [group.column(each).num_values for each in range(group.num_columns)]
        if wrong := _wrong(group.num_rows, spans, list(zip(values, flat, strict=True)), file.size, end):
            raise UnreadableUpdate(_refused(file, f"row group {number} of {metadata.num_row_groups}: {wrong}"))
        rows += group.num_rows
        column_spans += spans
    if rows != metadata.num_rows:
        raise UnreadableUpdate(_refused(file, f"it announces {metadata.num_rows} rows, its row groups hold {rows}"))
    ordered = sorted(span for span in column_spans if span[1])
    for (start, size), (following, _) in pairwise(ordered):
        if start + size > following:
            why = f"a column is at bytes {start:,} to {start + size:,}, and another begins at {following:,}"
            raise UnreadableUpdate(_refused(file, why))
    return rows


def metadata_of(board: Blackboard, file: File) -> Any:
    """Return the checked footer of a file, as pyarrow's metadata.

    Raise UnreadableUpdate, UpdateChanged or BlackboardError if the footer does not fit the file, or cannot be read.
    """
    end = _tail(board, file)
    if _length(end) <= _LARGE:
        return metadata_in(file, footer_of(board, file, end))
    with _one_large:
        return metadata_in(file, footer_of(board, file, end))


def metadata_in(file: File, end: bytes) -> Any:
    """Parse and check the footer at the end of a file. Foreign footers are parsed only here.

    `end` has the file's last bytes, at least from the footer on. Raise UnreadableUpdate if the footer does not fit.
    """
    # Import here, because readers of CSV and JSON do not need pyarrow.
    import pyarrow  # pyright: ignore[reportMissingTypeStubs]
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]

    pa, pq = (pyarrow, parquet)  # pyarrow has no type hints.
    size = _length(end)
    _check_length(file, size)
    try:
        if size > _TAIL:  # A shorter footer has too few names and columns for long paths.
            check_paths(end[-size - _END : -_END])
        metadata = pq.read_metadata(pa.BufferReader(end))
        # If columns are encrypted, a signature follows the plain footer.
        if size != metadata.serialized_size:
            raise UnreadableUpdate(
                f"{file.key} has {size - metadata.serialized_size:,} bytes after its footer, as with encrypted "
                "columns: expected Parquet in the clear. Have it published without encryption."
            )
        check_columns(metadata)
    except (ValueError, KeyError, NotImplementedError, OSError) as error:  # pyarrow's own errors are of these classes.
        raise UnreadableUpdate(
            f"{file.key} has a footer that cannot be read: {sentence(excerpt(str(error)))} Have it published again."
        ) from error
    check_footer(file, metadata, file.size - size - _END)
    return metadata


def footer_of(board: Blackboard, file: File, tail: bytes | None = None) -> bytes:
    """Return the end of a file, from its footer on. `tail` has its last bytes, if they have been read.

    Raises:
        UnreadableUpdate: The file is encrypted, or its footer is too long.
        NoFooter: The file does not end like Parquet.
        UpdateChanged: The file is not the one that was listed.
        BlackboardError: The store refuses, or does not answer.
    """
    tail = _tail(board, file) if tail is None else tail
    size = _length(tail) + _END
    if tail[-_START:] == b"PARE":
        raise UnreadableUpdate(
            f"{file.key} is encrypted Parquet: expected it in the clear. Have it published without encryption, or "
            "read its `feed_assets.read(…).paths` with a program that has the key."
        )
    if tail[-_START:] != b"PAR1" or not _END < size <= file.size - _START:
        raise NoFooter(
            f"{file.key} is not a Parquet file: expected a footer at its end, found {file.size:,} bytes that end in "
            f"{tail[-_START:]!r}. Have it published again, or correct the format.",
            tail[-_START:],
        )
    _check_length(file, size)
    return tail[-size:] if size <= len(tail) else _bytes(board, file, file.size - size)


def _tail(board: Blackboard, file: File) -> bytes:
    return _bytes(board, file, max(file.size - _TAIL, 0)) if file.size else b""


def _length(tail: bytes) -> int:
    return int.from_bytes(tail[-_END:-_START], "little")


def _check_length(file: File, size: int) -> None:
    if size > FOOTER_BYTES:
        raise UnreadableUpdate(
            f"{file.key} has a footer of {size:,} bytes: expected at most {FOOTER_BYTES:,}. Have it published with "
            "fewer columns or row groups in a file."
        )


def _bytes(board: Blackboard, file: File, start: int) -> bytes:
    served, chunks = board.stream(file.key, start) or (None, ())
    check_served(file, served)
    return b"".join(chunks)


def _span(column: Any) -> tuple[int, int]:
    """Return the start of a column, by Spark's rule, and its length in bytes."""
    start, dictionary = column.data_page_offset, column.dictionary_page_offset
    return min(start, dictionary) if dictionary else start, column.total_compressed_size


def _wrong(
    rows: int, spans: Sequence[tuple[int, int]], values: Sequence[tuple[int, bool]], size: int, end: int
) -> str | None:
    """Return why a row group cannot be read completely. Return None if it can."""
    if rows < 0 or any(length < 0 for _, length in spans):
        return f"it announces {rows} rows in {[length for _, length in spans]} bytes"
    for number, (start, length) in enumerate(spans):
        if length and not _START <= start <= start + length <= end:
            return f"column {number} is at bytes {start:,} to {start + length:,} of {size:,}, the footer at {end:,}"
    middle = spans[0][0] + sum(length for _, length in spans) // 2 if spans else 0
    if not 0 <= middle < size:
        return f"its middle is at byte {middle:,} of {size:,}: Spark would skip the row group"
    for number, (count, is_flat) in enumerate(values):
        if count != rows if is_flat else count < rows:
            return f"it announces {rows} rows, and {count} values of column {number}"
    return None


def _refused(file: File, why: str) -> str:
    return (
        f"{file.key} cannot be read whole ({why}): expected {file.size:,} bytes with everything that the footer "
        "lists. Part of the file is missing: invalidate the update, and have it published again."
    )
