"""Rows of Parquet files."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.feeds import File
from feed_assets.core.limits import REJECT_BYTES, ROW_BYTES, as_text
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

    read_schema: Any = pq.read_schema  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    with TemporaryDirectory() as folder:
        served = board.download(file.key, path := Path(folder, "rows"))
        if served is None:
            raise gone(file.key)
        try:
            with pq.ParquetFile(path, read_dictionary=_texts(read_schema(path))) as opened:
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
    for number, row, size in _rows(opened, start):
        at = Place(served.key, served.etag, number, number, ended=number == total)
        if size > ROW_BYTES:
            reason = f"it has {size} bytes: expected at most {ROW_BYTES}"
            yield Record(at, number, None, as_text(row), reason, REJECT_BYTES)
        else:
            yield Record(at, number, row, size=size)


def _texts(schema: Any) -> list[str]:
    """The columns of texts, of which a value that comes again and again is held once."""
    return [field.name for field in schema if str(field.type).removeprefix("large_") in ("string", "binary")]


def _rows(opened: Any, start: int) -> Iterator[tuple[int, dict[str, Any], int]]:
    """The rows after the first `start` ones, with their numbers from 1 on and the bytes of their texts.

    Of a row that has too many the texts are cut.
    """
    number = 0
    for group in range(opened.num_row_groups):
        size: int = opened.metadata.row_group(group).num_rows
        if number + size <= start:
            number += size
            continue
        for batch in opened.iter_batches(_ROWS_PER_BATCH, row_groups=[group]):
            columns = {name: batch.column(name) for name in batch.schema.names}
            for at in range(batch.num_rows):
                number += 1
                if number > start:
                    yield number, *_row({name: column[at] for name, column in columns.items()})


def _row(cells: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """A row and the bytes of its texts; one by one, as each row has a copy of what the file may hold once."""
    found = {name: cell for name, cell in cells.items() if hasattr(cell, "dictionary") and cell.is_valid}
    texts = {name: cell.value.as_buffer() for name, cell in found.items()}
    size = sum(text.size for text in texts.values())
    if size <= ROW_BYTES:
        return {name: cell.as_py() for name, cell in cells.items()}, size
    return {name: bytes(text[:REJECT_BYTES]).decode(errors="replace") for name, text in texts.items()}, size
