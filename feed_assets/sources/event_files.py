"""Event files in a folder on the blackboard: CSV, JSON lines or Parquet."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Literal

from feed_assets.core.errors import BlackboardError, InvalidName, SourceUnavailable
from feed_assets.core.events import Rejected, WriteEvent
from feed_assets.core.feeds import File
from feed_assets.core.limits import READ_BYTES
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.sources.contract import EventBatch, Positions, batch_of
from feed_assets.sources.event_rows import Columns
from feed_assets.sources.parquet_rows import parquet_records
from feed_assets.sources.records import Blank, FilePosition, Record, Unfinished
from feed_assets.sources.text_rows import csv_records, json_records

_Reader = Callable[[Blackboard, File, FilePosition, Columns, bool], Iterator[Record | Blank | Unfinished]]
_READERS: Mapping[str, _Reader] = {"csv": csv_records, "jsonl": json_records, "parquet": parquet_records}


@dataclass(frozen=True)
class FileEvents:
    """The events in the files below a prefix of the blackboard, in the order of the file names.

    The name of a new file must sort after the existing names. Only the last file may grow, at its end. Names that begin
    with '_' or '.' are ignored. If a file arrives later with an earlier name, it is read only when the source is read
    from the beginning.
    """

    board: Blackboard = field(repr=False)
    prefix: str
    format: Literal["csv", "jsonl", "parquet"]
    columns: Columns = field(default_factory=Columns)

    def read(self, after: str | None, limit: int, _seconds: float = 0, /) -> EventBatch:
        """Return up to `limit` rows after a position. Raise SourceUnavailable if the files cannot be read."""
        place = FilePosition(**fields) if (fields := self._positions.load(after)) else FilePosition()
        with closing(self._records(place)) as records:
            rows, last, waits, is_complete = self._take(records, limit)
        position = self._positions.dump(asdict(last)) if last else after
        return batch_of(rows, position, is_complete, waits)

    def _take(
        self, records: Iterator[Record | Blank | Unfinished], limit: int
    ) -> tuple[list[WriteEvent | Rejected], FilePosition | None, str | None, bool]:
        """Return up to `limit` rows, the position after them, why later rows must wait, and whether no rows remain.

        A run of blank lines counts as one row. Otherwise a file with only blank lines would never reach the limit.
        """
        rows: list[WriteEvent | Rejected] = []
        last, waits, count, size = None, None, 0, 0
        try:
            for record in records:
                if isinstance(record, Unfinished):
                    waits = record.reason
                elif count == limit or size > READ_BYTES:
                    return rows, last, waits, False
                else:
                    rows += [self._row(record)] if isinstance(record, Record) else []
                    last, count, size = record.place, count + 1, size + record.size
        except SourceUnavailable as error:
            if not last:  # Otherwise return the rows before the broken file. The next read raises the error.
                raise
            return rows, last, str(error), False
        return rows, last, waits, True

    def _records(self, place: FilePosition) -> Generator[Record | Blank | Unfinished]:
        with _translated():
            files = [file for file in self.board.files_from(self.prefix, place.file) if _is_event_file(file)]
            for number, file in enumerate(files, 1):
                at = place if file.key == place.file else FilePosition(file.key)
                if not (at.ended and file.etag and file.etag == at.etag):
                    yield from _READERS[self.format](self.board, file, at, self.columns, number == len(files))

    def _row(self, record: Record) -> WriteEvent | Rejected:
        row = self.columns.read(record.row) if record.row is not None else Rejected(record.raw, record.reason)
        if isinstance(row, Rejected):
            return Rejected(row.raw, f"{record.place.file} line {record.line}: {row.reason}")
        return row

    @property
    def _positions(self) -> Positions:
        return Positions(self.prefix, self.format, self.columns)


def _is_event_file(file: File) -> bool:
    return not file.key.rpartition("/")[2].startswith(("_", "."))


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except (BlackboardError, InvalidName) as error:
        raise SourceUnavailable(str(error)) from error
