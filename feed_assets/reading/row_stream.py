"""Reading of one Parquet file in bounded batches, by requests for parts of the file."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.compute  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.feeds import File
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read_only import RangedFile

pa: Any = pyarrow  # pyarrow has no type hints.
pc: Any = pyarrow.compute
pq: Any = pyarrow.parquet

_BUFFERS = 64 << 20
"""Number of bytes that are read in advance, for all columns of a file together."""

_LEAST_BUFFER, _MOST_BUFFER = 64 << 10, 4 << 20
_BATCH = 32 << 20
"""Maximum number of bytes of rows that are decoded at a time, but at least one row."""

_ROWS = 16_384
"""Maximum number of rows that are decoded at a time."""

_SHARED_ROWS = 256
"""Minimum number of rows that are decoded at a time if values share bytes in the file, and so need more in memory."""

_SHORT = 64
"""Maximum number of bytes of a value of fixed length whose repetition needs no care, such as a decimal."""

_DELTA = "DELTA_BYTE_ARRAY"
_DICTIONARIES = {"RLE_DICTIONARY", "PLAIN_DICTIONARY"}


def opened_stream(board: Blackboard, file: File, metadata: Any, unit: str = "us") -> Any:
    """Open a file to be read in pieces. INT96 moments are returned in the time unit `unit`.

    Texts that the file has in dictionaries are read as dictionaries: a few bytes may stand for a long text in each row.
    """
    buffer = min(max(_BUFFERS // max(metadata.num_columns, 1), _LEAST_BUFFER), _MOST_BUFFER)
    how = {"page_checksum_verification": True, "buffer_size": buffer, "coerce_int96_timestamp_unit": unit}
    texts = _texts_in_dictionaries(metadata)
    return pq.ParquetFile(RangedFile(board, file), metadata=metadata, pre_buffer=False, read_dictionary=texts, **how)


def plain_schema(opened: Any) -> Any:
    """Return the schema of the rows of `rows_by_batch`, which have no dictionaries."""
    return pa.schema([field.with_type(_plain_type(field.type)) for field in opened.schema_arrow])


def rows_by_batch(opened: Any, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of a file, row group by row group, in batches of at most `_ROWS` rows and about `_BATCH` bytes.

    Raise OSError, as pyarrow does, if the number of rows of a group differs from the footer.
    """
    for number in range(opened.metadata.num_row_groups):
        group = opened.metadata.row_group(number)
        rows, size = 0, _size(opened.metadata.schema, group)
        for batch in opened.iter_batches(size, row_groups=[number], columns=columns, use_threads=False):
            rows += batch.num_rows
            yield from _plain_parts(batch)
        if rows != group.num_rows:
            raise OSError(f"Its footer announces {group.num_rows:,} rows of a row group, but its pages hold {rows:,}.")


def _size(schema: Any, group: Any) -> int:
    """Return how many rows of a row group to decode at a time.

    The footer has the sizes in the file. Values that share bytes there may each be as large as the column.
    """
    width = group.total_byte_size // max(group.num_rows, 1)
    chunks = [(schema.column(number), group.column(number)) for number in range(group.num_columns)]
    shared = sum(chunk.total_uncompressed_size for column, chunk in chunks if _shares_bytes(column, chunk))
    size = min(max(_BATCH // max(width, 1), 1), _ROWS)
    return min(size, max(_BATCH // max(shared, 1), _SHARED_ROWS))


def _shares_bytes(column: Any, chunk: Any) -> bool:
    """Return whether values of a column share bytes, other than in a dictionary that is read as a dictionary."""
    is_in_dictionary = not _DICTIONARIES.isdisjoint(chunk.encodings)
    if chunk.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return column.length > _SHORT and (is_in_dictionary or _DELTA in chunk.encodings)
    is_nested = "." in chunk.path_in_schema
    return chunk.physical_type == "BYTE_ARRAY" and (_DELTA in chunk.encodings or (is_in_dictionary and is_nested))


def _texts_in_dictionaries(metadata: Any) -> list[str]:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = [group.column(number) for group in groups for number in range(metadata.num_columns)]
    delta = {chunk.path_in_schema for chunk in chunks if _DELTA in chunk.encodings}  # pyarrow cannot.
    names = {chunk.path_in_schema for chunk in chunks if not _DICTIONARIES.isdisjoint(chunk.encodings)} - delta
    return [field.name for field in metadata.schema.to_arrow_schema() if field.name in names and _is_text(field.type)]


def _is_text(kind: Any) -> bool:
    types = pa.types
    return any(
        is_one(kind) for is_one in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)
    )


def _plain_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _plain_parts(batch: Any) -> Iterator[Any]:
    """Yield the rows of a batch with values in place of dictionaries, in parts of about `_BATCH` bytes of texts."""
    encoded = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    if not encoded:
        yield batch
        return
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for column in (each for each in encoded if _is_text(each.type.value_type)):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
        sizes += np.asarray(pc.fill_null(lengths, 0)).astype(np.int64)
    starts = [0, *(np.flatnonzero(np.diff(np.cumsum(sizes) // _BATCH)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(starts):
        part = batch.slice(start, end - start)
        columns = [each.cast(_plain_type(each.type)) for each in part.columns]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
