"""Facts about a feed that are inferred from sample files."""

from dataclasses import dataclass

from feed_assets.core.csv_dialect import RFC_4180, CsvDialect
from feed_assets.core.file_checks import Format
from feed_assets.infer.columns import InferredColumn


@dataclass(frozen=True)
class Sample:
    """Everything inferred from sample files, except the partitions.

    Attributes:
        records: The number of read records; None for Parquet, whose rows are not read.
        rejects: The number of these records that a run would reject with this declaration.
    """

    format: Format
    columns: tuple[InferredColumn, ...]
    dialect: CsvDialect = RFC_4180
    notes: tuple[str, ...] = ()
    records: int | None = None
    rejects: int = 0

    @property
    def schema(self) -> str:
        """Return the columns in Spark's DDL."""
        return ", ".join(column.ddl for column in self.columns)


@dataclass
class RejectedRecords:
    """Records that a run would reject: their number, and the place and reason of the first one."""

    count: int = 0
    first: str = ""

    def add(self, place: str, why: str, *, count: int = 1) -> None:
        """Count records that would be rejected for the same reason. `place` is the place of the first one."""
        self.first = self.first or f"{place}: {why}"
        self.count += count

    def notes(self, records: int) -> list[str]:
        """Return a note on these records, or an empty list if there are none."""
        if not self.count:
            return []
        return [f"a run rejects {self.count} of {records} records, the first at {self.first}"]
