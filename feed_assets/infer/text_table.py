"""A DuckDB table of the texts of records, from which types are inferred."""

from collections.abc import Sequence
from typing import Any

import pyarrow  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import InvalidName

pa: Any = pyarrow  # pyarrow has no type hints.

BATCH = 20_000
"""Number of records that are buffered before they are put into the table."""


MOST_COLUMNS = 4_000
"""The most columns of the table. Time and memory grow with records times columns, and a JSON field has two."""


class TextTable:
    """The table `texts` in an in-memory DuckDB database, with text columns. NULL means no value."""

    def __init__(self) -> None:
        import duckdb

        config: Any = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        self.database: Any = duckdb.connect(config=config)
        self.records = 0
        self._columns = ["place"]
        self._rows: list[dict[str, str | None]] = []
        self._made = 0

    def __enter__(self) -> "TextTable":
        return self

    def __exit__(self, *_: object) -> None:
        self.database.close()

    def require(self, columns: Sequence[str]) -> None:
        """Register new columns. The next `flush` adds them to the table. Raise InvalidName if there are too many."""
        self._columns += columns
        if len(self._columns) > MOST_COLUMNS:
            raise InvalidName(
                "the files have more fields than `feed infer` reads: expected at most 1,999 in JSON, and "
                f"{MOST_COLUMNS - 1:,} in CSV. Check the delimiter, or declare the feed by hand."
            )

    def add(self, place: str, row: dict[str, str | None]) -> None:
        """Add a record with its place, such as a line of a file. Missing columns are NULL."""
        self._rows.append({"place": place, **row})
        self.records += 1
        if len(self._rows) == BATCH:
            self.flush()

    def flush(self) -> None:
        """Add the registered columns to the table, and insert the buffered records."""
        self._add_columns()
        if self._rows:
            arrays = {name: pa.array([row.get(name) for row in self._rows], pa.string()) for name in self._columns}
            self.database.register("batch", pa.table(arrays))
            self.database.execute("INSERT INTO texts BY NAME SELECT * FROM batch")
            self.database.unregister("batch")
        self._rows = []

    def _add_columns(self) -> None:
        """Create the table with all columns registered so far. Add columns that are registered later one by one.

        Adding a column gets slower the more columns the table has.
        """
        new = self._columns[self._made :]
        if not self._made:
            self.database.execute(f"CREATE TABLE texts ({', '.join(f'{each} VARCHAR' for each in new)})")
        else:
            for each in new:
                self.database.execute(f"ALTER TABLE texts ADD COLUMN {each} VARCHAR")
        self._made = len(self._columns)
