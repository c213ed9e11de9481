"""Metadata of Parquet's columns, checked before Python looks at one.

pyarrow ends the process, without an exception, where the metadata of a column are encrypted or contradict the schema:
its `RowGroupMetaData.column` catches nothing that its C++ library throws, its readers do.
"""

from collections.abc import Iterator
from typing import Any

from feed_assets.feeds.read_only import ReadOnlyFile

CODECS = {each: each for each in ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD")} | {"LZ4": "LZ4_RAW", "UNKNOWN": "LZ4"}
"""Codecs that every reader has: pyarrow's name, and Parquet's own. pyarrow has no name for LZ4 with Hadoop's frames."""

_WITHOUT_FRAMES = ("fastparquet", "parquet-cpp version")
"""Writers whose LZ4 has no Hadoop frames, or had none for years: pyarrow reads it, Spark cannot."""

_SIZE = 1 << 62
"""Bytes of a file that has every column, wherever a footer says that it is."""


def check_columns(metadata: Any) -> None:
    """Raise OSError, as pyarrow's readers do, for a footer with columns that would end the process.

    pyarrow looks at all columns before it reads the first page, and at the codecs of the first row group. No page is
    read.
    """
    groups = [*range(metadata.num_row_groups)]
    for number in groups:
        if (count := metadata.row_group(number).num_columns) != metadata.num_columns:
            raise OSError(f"Row group {number} has {count} columns: expected {metadata.num_columns}, as in the schema.")
    _open(metadata, groups, pre_buffer=True)
    _open(metadata, groups[:1], pre_buffer=False, buffer_size=4096)


def wrong_codecs(metadata: Any) -> Iterator[tuple[str, str]]:
    """Yield the columns of the first row group that are packed by a codec that Spark lacks, and what is expected."""
    if not metadata.num_row_groups:
        return
    group = metadata.row_group(0)
    for number in range(group.num_columns):
        chunk = group.column(number)
        codec = CODECS.get(chunk.compression)
        if codec is None:
            codecs = ", ".join(sorted(CODECS.values()))
            yield chunk.path_in_schema, f"found the codec {chunk.compression}, expected one of {codecs}"
        elif codec == "LZ4" and (metadata.created_by or "").startswith(_WITHOUT_FRAMES):
            yield chunk.path_in_schema, f"found LZ4 as {metadata.created_by} writes it, expected LZ4_RAW"


def _open(metadata: Any, groups: list[int], **how: Any) -> None:
    """Let pyarrow begin to read some row groups, up to the first page."""
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]

    pq: Any = parquet  # It has no types.
    opened = pq.ParquetFile(_NoPages(), metadata=metadata, **how)
    try:
        opened.reader.read_row_groups(groups, column_indices=[*range(metadata.num_columns)], use_threads=False)
    except _PageReached:
        return


class _PageReached(Exception):
    """The signal that pyarrow has checked all metadata, and reads a page."""


class _NoPages(ReadOnlyFile):
    """A file of which nothing can be read."""

    def read(self, _size: int = -1) -> bytes:
        raise _PageReached

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset + (_SIZE if whence else 0)  # pyarrow looks for the end alone, by `whence`.

    def tell(self) -> int:
        return _SIZE
