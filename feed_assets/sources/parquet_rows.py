"""Rows of Parquet files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from feed_assets.core.errors import SourceUnavailable
from feed_assets.core.feeds import File
from feed_assets.core.limits import READ_BYTES, REJECT_BYTES, ROW_BYTES, as_text
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.parquet_metadata import check_columns
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.records import FilePosition, Record, Unfinished, check_header, gone, shrunk

GROUP_BYTES = 268_435_456
"""The most uncompressed bytes of a row group's needed columns. A larger group is rejected as a whole."""

_ROWS_PER_BATCH = 1000
_BATCH_BYTES = READ_BYTES
_DELTA = "DELTA_BYTE_ARRAY"


def parquet_records(
    board: Blackboard, file: File, place: FilePosition, columns: Columns, _may_grow: bool
) -> Iterator[Record | Unfinished]:
    """Yield each row after a position. For Parquet, the line and offset of a position are numbers of rows.

    If the file was rewritten, it is read from its beginning; a file with fewer rows than before is an error. The whole
    file is downloaded for each batch.
    """
    # Imported here: a source without Parquet files does not need pyarrow.
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    read_metadata: Any = pq.read_metadata  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    with TemporaryDirectory() as folder:
        served = board.download(file.key, path := Path(folder, "rows"))
        if served is None:
            raise gone(file.key)
        try:
            check_columns(metadata := read_metadata(path))
            with pq.ParquetFile(path, metadata=metadata, read_dictionary=_texts(metadata)) as opened:
                yield from _records(opened, served, place, columns)
        # pyarrow's own errors are of these classes.
        except (ValueError, LookupError, NotImplementedError, OSError) as error:
            raise SourceUnavailable(
                f"{file.key} cannot be read as Parquet: {str(error).splitlines()[0]} Have it corrected or removed."
            ) from error


def _records(opened: Any, served: File, place: FilePosition, columns: Columns) -> Iterator[Record]:
    total: int = opened.metadata.num_rows
    if total < place.offset:
        raise shrunk(served.key, total, place.offset, "rows")
    check_header(served.key, opened.schema_arrow.names, columns.named)
    names = _names(opened.schema_arrow, served.key, columns)
    first = place.offset if served.etag and served.etag == place.etag else 0
    end = 0
    for number in range(opened.num_row_groups):
        group = _Group(opened, number, names, end)
        end += group.rows
        if end <= first:
            continue
        records = group.read(first) if group.size <= GROUP_BYTES else [group.too_large(first)]
        for at, line, row, size, reason in records:
            position = FilePosition(served.key, served.etag, at, at, ended=at == total)
            yield Record(position, line, row, size=size) if not reason else _rejected(position, line, row, reason)


def _rejected(place: FilePosition, line: int, row: Mapping[str, Any], reason: str) -> Record:
    return Record(place, line, None, raw=as_text(row), reason=reason, size=REJECT_BYTES)


def _names(schema: Any, file: str, columns: Columns) -> list[str]:
    """Return the columns of a Parquet file to read.

    Raise SourceUnavailable if a needed column has lists, because a few bytes can stand for huge lists.
    """
    lists = [field.name for field in schema if _has_lists(field.type)]
    if wrong := [name for name in columns.named if name in lists]:
        raise SourceUnavailable(
            f"{file} has lists in {', '.join(wrong)}: expected texts, numbers, moments or structs. Have it corrected."
        )
    needed = schema.names if columns.others_in_context else columns.named
    return [name for name in needed if name not in lists]


def _has_lists(kind: Any) -> bool:
    text = str(kind)  # A struct's text contains its fields' texts.
    return "list<" in text or "list_view<" in text or "map<" in text


def _texts(metadata: Any) -> list[str]:
    """Return the text columns to read as dictionaries, in which a repeated value is stored once."""
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = (group.column(at) for group in groups for at in range(metadata.num_columns))
    delta = {chunk.path_in_schema for chunk in chunks if _DELTA in chunk.encodings}
    kinds = {field.name: str(field.type).removeprefix("large_") for field in metadata.schema.to_arrow_schema()}
    return [name for name, kind in kinds.items() if kind in ("string", "binary") and name not in delta]


_Found = tuple[int, int, dict[str, Any], int, str]
"""A row, or a row group that is rejected as a whole.

The first two elements are the numbers, from 1, of the last and the first file row that it stands for. Then follow the
values, their size in bytes, and the reason for a rejection, or ''.
"""


class _Group:
    """A row group with only the columns to read. `start` rows of the file precede it."""

    def __init__(self, opened: Any, number: int, names: Sequence[str], start: int) -> None:
        self._opened, self._number, self._names, self._start = opened, number, names, start
        metadata = opened.metadata.row_group(number)
        self.rows: int = metadata.num_rows
        chunks = [metadata.column(at) for at in range(metadata.num_columns)]
        self._chunks = [each for each in chunks if _is_of(each.path_in_schema, names)]

    @property
    def size(self) -> int:
        """Return the group's uncompressed bytes."""
        return sum(chunk.total_uncompressed_size for chunk in self._chunks)

    def too_large(self, first: int) -> _Found:
        """Return one rejected row that stands for all rows of the group after the `first` rows of the file."""
        begin, end = max(first, self._start) + 1, self._start + self.rows
        reason = f"rows {begin} to {end}, row group {self._number}, have {self.size} bytes uncompressed"
        reason += f": expected at most {GROUP_BYTES} in a row group. Have the file written with smaller row groups."
        return end, begin, {"rows": [begin, end], "bytes": self.size}, 0, reason

    def read(self, first: int) -> Iterator[_Found]:
        """Yield the group's rows after the `first` rows of the file. Cut the texts of a row with too many bytes."""
        number = self._start
        for batch in self._opened.iter_batches(self._rows_per_batch, row_groups=[self._number], columns=self._names):
            columns = {name: batch.column(name) for name in batch.schema.names}
            for at in range(max(first - number, 0), batch.num_rows):
                row, size = _row({name: column[at] for name, column in columns.items()})
                reason = f"it has {size} bytes: expected at most {ROW_BYTES}" if size > ROW_BYTES else ""
                yield number + at + 1, number + at + 1, row, size, reason
            number += batch.num_rows

    @property
    def _rows_per_batch(self) -> int:
        """Return how many rows to read at a time, so that they fit in memory.

        Each value of a text column may be as large as its whole column chunk.
        """
        expanding = sum(chunk.total_uncompressed_size for chunk in self._chunks if _expands(chunk))
        mean = self.size // max(self.rows, 1)
        return min(_ROWS_PER_BATCH, max(1, _BATCH_BYTES // max(expanding, mean, 1)))


def _is_of(path: str, names: Sequence[str]) -> bool:
    """Return whether a Parquet column path is one of these columns, or a field of a struct column among them."""
    return any(path == name or path.startswith(f"{name}.") for name in names)


def _expands(chunk: Any) -> bool:
    """Return whether a column chunk's values may need more bytes in memory than in the file.

    Top-level texts without delta encoding need no more, because they are read as dictionaries.
    """
    if chunk.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return False
    in_dictionary = "." in chunk.path_in_schema or chunk.physical_type == "FIXED_LEN_BYTE_ARRAY"
    return _DELTA in chunk.encodings or in_dictionary


def _row(cells: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return a row and the bytes of its texts. A text that the file stores once counts in each row that has it."""
    values = {name: cell.value if hasattr(cell, "dictionary") else cell for name, cell in cells.items()}
    texts = {name: each.as_buffer() for name, each in values.items() if hasattr(each, "as_buffer") and each.is_valid}
    size = sum(text.size for text in texts.values())
    if size <= ROW_BYTES:
        row = {name: _value(cell) for name, cell in cells.items()}
        return row, size + sum(len(str(row[name])) for name, cell in cells.items() if hasattr(cell, "keys"))
    return {name: bytes(text[:REJECT_BYTES]).decode(errors="replace") for name, text in texts.items()}, size


def _value(cell: Any) -> Any:
    """Return a cell's value, or a text if Python cannot represent it, such as a moment after the year 9999."""
    try:
        return cell.as_py()
    except (OverflowError, ValueError, KeyError):
        inner = cell.value if hasattr(cell, "dictionary") else cell
        if hasattr(inner, "as_buffer"):
            return bytes(inner.as_buffer()).decode(errors="surrogateescape")
        return f"a {cell.type} outside the years 1 to 9999"
