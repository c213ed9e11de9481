"""Rows of Parquet files."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.feeds import File
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.records import Place, Record, Unfinished, check_header, gone, shrunk

_ROWS_PER_BATCH = 1000


def parquet_records(
    board: Blackboard, file: File, place: Place, needed: tuple[str, ...], _may_grow: bool
) -> Iterator[Record | Unfinished]:
    """Each row after a place, or every row of a file that was written anew and is no shorter. Lines are rows here.

    The file is fetched whole for each batch.
    """
    # Imported here: a source without Parquet files does not pay for it.
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    with TemporaryDirectory() as folder:
        served = board.download(file.key, path := Path(folder, "rows"))
        if served is None:
            raise gone(file.key)
        try:
            with pq.ParquetFile(path) as opened:
                yield from _records(opened, served, place, needed)
        except (ValueError, NotImplementedError, OSError) as error:  # What pyarrow's own errors are.
            raise SourceUnavailable(
                f"{file.key} cannot be read as Parquet: {str(error).splitlines()[0]} Have it put right, or removed."
            ) from error


def _records(opened: Any, served: File, place: Place, needed: tuple[str, ...]) -> Iterator[Record]:
    total: int = opened.metadata.num_rows
    if total < place.offset:
        raise shrunk(served.key, total, place.offset, "rows")
    check_header(served.key, opened.schema_arrow.names, needed)
    start = place.offset if served.etag and served.etag == place.etag else 0
    for number, row in _rows(opened, start):
        yield Record(Place(served.key, served.etag, number, number, ended=number == total), number, row)


def _rows(opened: Any, start: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows after the first `start` ones, with their numbers from 1 on."""
    number = 0
    for group in range(opened.num_row_groups):
        size: int = opened.metadata.row_group(group).num_rows
        if number + size <= start:
            number += size
            continue
        for batch in opened.iter_batches(_ROWS_PER_BATCH, row_groups=[group]):
            for row in batch.to_pylist():
                number += 1
                if number > start:
                    yield number, row
