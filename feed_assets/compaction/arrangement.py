"""The arrangement of rows in files: few files, and sorted rows if wanted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from feed_assets.core.compact import check_sort_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


ROWS = "rows"
"""The name of the input whose rows are arranged."""


@dataclass(frozen=True)
class Arrangement:
    """A function that puts the rows of a frame into `files` parts, sorted by columns if there are any.

    Raise InvalidDefinition for a column that the rows do not have.
    """

    sort_by: tuple[str, ...]
    files: int

    def __call__(self, rows: "DataFrame") -> "DataFrame":
        """Return the rows in their new order and parts."""
        if not self.sort_by:
            return rows.coalesce(self.files)
        from feed_assets.spark.parse import column  # PySpark takes a second to load

        check_sort_by(self.sort_by, rows.columns)
        keys = [column(name) for name in self.sort_by]
        return rows.repartitionByRange(self.files, *keys).sortWithinPartitions(*keys)
