"""Reading of one Parquet file in bounded batches, by requests for parts of the file."""

from collections.abc import Iterator
from typing import Any

import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.feeds import File
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read_only import RangedFile

pq: Any = pyarrow.parquet  # pyarrow has no type hints.

_BUFFERS = 64 << 20
"""Number of bytes that are read in advance, for all columns of a file together."""

_LEAST_BUFFER, _MOST_BUFFER = 64 << 10, 4 << 20
_BATCH = 32 << 20
"""Maximum number of bytes of rows that are decoded at a time, according to the sizes in the footer."""

_ROWS = 16_384
"""Maximum number of rows that are decoded at a time."""


def opened_stream(board: Blackboard, file: File, metadata: Any, unit: str = "us") -> Any:
    """Open a file to be read in pieces. INT96 moments are returned in the time unit `unit`."""
    buffer = min(max(_BUFFERS // max(metadata.num_columns, 1), _LEAST_BUFFER), _MOST_BUFFER)
    how = {"page_checksum_verification": True, "buffer_size": buffer, "coerce_int96_timestamp_unit": unit}
    return pq.ParquetFile(RangedFile(board, file), metadata=metadata, pre_buffer=False, **how)


def rows_by_batch(opened: Any, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of a file, row group by row group, in batches of at most `_ROWS` rows and about `_BATCH` bytes.

    Raise OSError, as pyarrow does, if the number of rows of a group differs from the footer.
    """
    for number in range(opened.metadata.num_row_groups):
        group = opened.metadata.row_group(number)
        width = group.total_byte_size // max(group.num_rows, 1)
        size = min(max(_BATCH // max(width, 1), 1), _ROWS)
        rows = 0
        for batch in opened.iter_batches(size, row_groups=[number], columns=columns, use_threads=False):
            rows += batch.num_rows
            yield batch
        if rows != group.num_rows:
            raise OSError(f"Its footer announces {group.num_rows:,} rows of a row group, but its pages hold {rows:,}.")
