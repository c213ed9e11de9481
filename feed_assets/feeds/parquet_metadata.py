"""Checks of Parquet column metadata, before Python reads any of it.

pyarrow's `RowGroupMetaData.column` ends the process, without an exception, if the metadata of a column are encrypted or
contradict the schema. pyarrow's readers raise an exception instead.
"""

from collections.abc import Iterator
from typing import Any

from feed_assets.feeds.read_only import ReadOnlyFile

CODECS = {each: each for each in ("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD")} | {"LZ4": "LZ4_RAW", "UNKNOWN": "LZ4"}
"""Codecs that every reader supports: pyarrow's name and Parquet's. pyarrow calls LZ4 with Hadoop frames UNKNOWN."""

_WITHOUT_FRAMES = ("fastparquet", "parquet-cpp version")
"""Writers that write LZ4 without Hadoop frames, now or in older versions. pyarrow reads it, Spark cannot."""

_SIZE = 1 << 62
"""The size of the fake file, larger than any position of a column in a footer."""


def check_columns(metadata: Any) -> None:
    """Raise OSError for column metadata that would end the process, or whose columns are in another order.

    One of pyarrow's readers checks all columns, and the codecs of the first row group, before it reads the first page.
    Then it is stopped: no page is read.
    """
    groups = [*range(metadata.num_row_groups)]
    for number in groups:
        if (count := metadata.row_group(number).num_columns) != metadata.num_columns:
            raise OSError(f"Row group {number} has {count} columns: expected {metadata.num_columns}, as in the schema.")
    _open(metadata, groups, pre_buffer=True)
    _open(metadata, groups[:1], pre_buffer=False, buffer_size=4096)
    _check_order(metadata, groups)


def wrong_codecs(metadata: Any) -> Iterator[tuple[str, str]]:
    """Yield the columns of the first row group whose codec Spark lacks, each with the problem."""
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


def _check_order(metadata: Any, groups: list[int]) -> None:
    """Raise OSError if the columns of a row group have other names than in the schema.

    pyarrow and DuckDB find a column by its position, and Spark by its name: they would read different values.
    """
    expected = [metadata.schema.column(each).path for each in range(metadata.num_columns)]
    for number in groups:
        group = metadata.row_group(number)
        for index, expected_path in enumerate(expected):
            if (path := group.column(index).path_in_schema) != expected_path:
                raise OSError(f"Row group {number} has the column {path}: expected {expected_path}, as in the schema.")


def _open(metadata: Any, groups: list[int], **how: Any) -> None:
    """Let pyarrow begin to read row groups, up to the first page, to find damage without reading the data."""
    from pyarrow import parquet  # pyright: ignore[reportMissingTypeStubs]

    pq: Any = parquet  # pyarrow has no type hints.
    opened = pq.ParquetFile(_NoPages(), metadata=metadata, **how)
    try:
        opened.reader.read_row_groups(groups, column_indices=[*range(metadata.num_columns)], use_threads=False)
    except _PageReached:
        return


class _PageReached(Exception):
    """The signal that pyarrow has checked all metadata and would read a page."""


class _NoPages(ReadOnlyFile):
    """A file that raises `_PageReached` on any read."""

    def read(self, _size: int = -1) -> bytes:
        raise _PageReached

    def seek(self, offset: int, whence: int = 0) -> int:
        return offset + (_SIZE if whence else 0)  # By `whence` pyarrow seeks only from the end.

    def tell(self) -> int:
        return _SIZE
