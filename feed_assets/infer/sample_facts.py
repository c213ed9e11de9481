"""Facts about a feed that sample files show."""

from dataclasses import dataclass

from feed_assets.core.csv_dialect import RFC_4180, CsvDialect
from feed_assets.core.file_checks import Format
from feed_assets.infer.columns import InferredColumn


@dataclass(frozen=True)
class Sample:
    """Everything that sample files show of a feed, but for its partitions.

    Attributes:
        records: The number of records that were read; None for Parquet, whose rows are not read.
        rejects: The number of these that a run rejects by this declaration.
    """

    format: Format
    columns: tuple[InferredColumn, ...]
    dialect: CsvDialect = RFC_4180
    notes: tuple[str, ...] = ()
    records: int | None = None
    rejects: int = 0

    @property
    def schema(self) -> str:
        """Return the columns as Spark's DDL."""
        return ", ".join(column.ddl for column in self.columns)


@dataclass
class RejectedRecords:
    """Records that a run rejects: their number, and where the first one stands, with the reason."""

    count: int = 0
    first: str = ""

    def add(self, place: str, why: str, *, count: int = 1) -> None:
        """Count records, the first of which stands at this place."""
        self.first = self.first or f"{place}: {why}"
        self.count += count

    def notes(self, records: int) -> list[str]:
        """Return a note on these records; nothing if there are none."""
        if not self.count:
            return []
        return [f"a run rejects {self.count} of {records} records, the first at {self.first}"]
