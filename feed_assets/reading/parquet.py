"""Rows of Parquet files on any blackboard. A file that differs from its listing is refused.

pyarrow only decodes. The blackboard does all requests, so its endpoint, credentials and rules about links apply.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]
import pyarrow.parquet  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import File, Update
from feed_assets.core.file_checks import Format, check_readable, format_of, formats_of
from feed_assets.core.message_words import excerpt, sentence, shortened
from feed_assets.core.parquet_values import NO_TEXT, TOO_FINE, too_long
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import NoFooter, metadata_in, metadata_of
from feed_assets.feeds.parquet_columns import FileColumns, columns_of
from feed_assets.feeds.read import check_served
from feed_assets.reading.calendar import check_years, in_todays_calendar
from feed_assets.reading.joint_schema import Found, fitted, unified, with_column
from feed_assets.reading.row_stream import opened_stream, rows_by_batch

pa: Any = pyarrow  # pyarrow has no type hints.
pq: Any = pyarrow.parquet

_AT_A_TIME = 8


def schema_of(board: Blackboard, updates: Sequence[Update], *, union_by_name: bool) -> Any:
    """Return the joint columns of all files, by their footers.

    Raise UnreadableUpdate, UpdateChanged or BlackboardError.
    """
    for update in updates:
        check_readable(update, _format_of(update))
    files = [file for update in updates for file in update.files]
    if not files:
        raise UnreadableUpdate(
            f"{shortened([update.path for update in updates], 3)}: there is no file, so the columns are unknown: "
            "expected at least one Parquet file. Have the producer publish one, which may have no rows."
        )
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        file_columns = [*pool.map(partial(_columns, board), files)]
    return unified(file_columns, union_by_name=union_by_name)


def rows_of(board: Blackboard, updates: Sequence[Update], schema: Any, column: str | None, keys: Sequence[str]) -> Any:
    """Return all rows with the columns of `schema`. `column` is the name of an additional column for partition keys.

    Raise UnreadableUpdate, UpdateChanged or BlackboardError.
    """
    files = [file for update in updates for file in update.files]
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        tables = [*pool.map(partial(_rows, board, schema), files)]
    if column:
        of_files = (key for update, key in zip(updates, keys, strict=True) for _ in update.files)
        keyed = zip(tables, of_files, strict=True)
        tables = [with_column(table, column, key) for table, key in keyed]
    return pa.concat_tables(tables)


def stream_of(
    board: Blackboard, updates: Sequence[Update], schema: Any, column: str | None, keys: Sequence[str]
) -> Any:
    """Return the rows of `rows_of` as a `pyarrow.RecordBatchReader`. Reading from it raises the errors of `rows_of`."""
    key_fields = [pa.field(column, pa.string())] if column else []
    batches = (
        batch
        for update, key in zip(updates, keys, strict=True)
        for file in update.files
        for table in _stream(board, schema, file)
        for batch in (with_column(table, column, key) if column else table).to_batches()
    )
    return pa.RecordBatchReader.from_batches(pa.schema([*schema, *key_fields]), batches)


def to_pandas(table: Any) -> Any:
    """Convert rows to pandas with nullable integers. Otherwise one NULL would turn a column's integers into floats."""
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

    names = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    integers: Mapping[Any, Any] = {pa.type_for_alias(name.lower()): getattr(pd, f"{name}Dtype")() for name in names}
    frame = table.to_pandas(types_mapper=integers.get)
    for each in (each for each in table.schema if pa.types.is_nested(each.type)):
        # Inside of lists and structs a NULL would also turn integers into floats. So lists and structs become Python
        # objects.
        frame[each.name] = pd.Series(table.column(each.name).to_pylist(), dtype=object, index=frame.index)
    return frame


def _format_of(update: Update) -> Format:
    """Return the format that the names of an update's files show. The format decides whether empty files are allowed.

    Return Parquet if the names show no format.
    """
    return (*formats_of(update.files), "parquet")[0]


def _columns(board: Blackboard, file: File) -> Found:
    readable_file = _readable(board, file)
    return file.key, readable_file.types


def _readable(board: Blackboard, file: File) -> FileColumns:
    """Return the columns of a file. Raise UnreadableUpdate if it is not Parquet that all readers support."""
    try:
        return columns_of(file.key, metadata_of(board, file))
    except NoFooter as error:
        if error.end == b"PAR1":
            raise
        raise UnreadableUpdate(_no_parquet(file)) from error


def _rows(board: Blackboard, schema: Any, file: File) -> Any:
    data, how = _bytes(board, file, 0), {"coerce_int96_timestamp_unit": "us", "page_checksum_verification": True}
    metadata = metadata_in(file, data)
    columns = _whole_columns(file, metadata)
    with _decoding(file), pq.ParquetFile(pa.BufferReader(data), metadata=metadata, **how) as opened:
        fit = in_todays_calendar(fitted(opened.read(), schema, partial(_misfit, file)), columns)
    if columns.int96:
        with pq.ParquetFile(pa.BufferReader(data), metadata=metadata, coerce_int96_timestamp_unit="s") as opened:
            check_years(opened.read([*columns.int96]), file.key)
    return fit


def _stream(board: Blackboard, schema: Any, file: File) -> Iterator[Any]:
    """Yield the rows of a file in batches, as tables with the columns of `schema`."""
    metadata = metadata_of(board, file)
    columns, misfit = _whole_columns(file, metadata), partial(_misfit, file)
    if columns.int96:
        with _decoding(file), opened_stream(board, file, metadata, "s") as opened:
            for batch in rows_by_batch(opened, [*columns.int96]):
                check_years(batch, file.key)
    with _decoding(file), opened_stream(board, file, metadata) as opened:
        for batch in rows_by_batch(opened):
            yield in_todays_calendar(fitted(pa.Table.from_batches([batch]), schema, misfit), columns)


def _whole_columns(file: File, metadata: Any) -> FileColumns:
    """Return the columns of a file. Raise UnreadableUpdate for a variant that is stored in several columns."""
    columns = columns_of(file.key, metadata)
    if shredded := sorted(name for name in columns.variants if _is_shredded(columns.types.field(name).type)):
        raise UnreadableUpdate(
            f"{file.key} has a variant in several columns, {shredded[0]}: expected only metadata and value. "
            "`.to_spark(session)` reads it."
        )
    return columns


def _is_shredded(kind: Any) -> bool:
    return kind.get_field_index("typed_value") >= 0


def _misfit(file: File, name: str, kind: Any) -> str:
    """Return the message for a column whose values do not fit its type."""
    if pa.types.is_decimal(kind):
        why = too_long(kind.precision, kind.scale)
    else:
        why = TOO_FINE if pa.types.is_timestamp(kind) else NO_TEXT
    return f"{file.key}: column {name} {why}"


def _bytes(board: Blackboard, file: File, start: int) -> bytes:
    """Return the bytes of a file from `start` on. Raise UpdateChanged if it differs from the listing."""
    served, chunks = board.stream(file.key, start) or (None, ())
    check_served(file, served)
    return b"".join(chunks)


@contextmanager
def _decoding(file: File) -> Generator[None]:
    try:
        yield
    except (ValueError, LookupError, NotImplementedError, OSError) as error:  # These are pyarrow's own errors.
        raise UnreadableUpdate(
            f"{file.key} cannot be read as Parquet: {sentence(excerpt(str(error)))} Have it published again."
        ) from error


def _no_parquet(file: File) -> str:
    format_name = {"csv": "CSV", "json": "JSON"}.get(format_of(file.key) or "", "not Parquet, by its last bytes")
    return (
        f"{file.key} is {format_name}: expected Parquet, because text has no types. Read its `.paths` with a library "
        "such as DuckDB or Polars, or read it by `.to_spark(session, schema=…)` with the columns of its declaration."
    )
