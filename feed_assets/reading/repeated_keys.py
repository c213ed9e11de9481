"""Counts of rows that repeat a key. DuckDB counts them in the written files, eight times as fast as Spark.

Keys may only have types on whose equality DuckDB and Spark agree (`feed_assets_tests/reading/test_repeated_keys.py`).
"""

from collections.abc import Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow  # pyright: ignore[reportMissingTypeStubs]

from feed_assets.core.errors import DiskFull
from feed_assets.core.feeds import Update
from feed_assets.core.message_words import excerpt, sentence
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.footers import metadata_of
from feed_assets.reading.row_stream import opened_stream, plain_schema, rows_by_batch

pa: Any = pyarrow  # pyarrow has no type hints.

_MEMORY = "1GB"
"""Memory that DuckDB may use. Data beyond it spill to a temporary folder."""

_ALIKE = ("boolean", "tinyint", "smallint", "int", "bigint", "string", "binary", "date", "timestamp", "timestamp_ntz")
_ALIKE_WITH_ARGUMENTS = ("decimal(",)


def is_judged_alike(kind: str) -> bool:
    """Return whether DuckDB and Spark agree on equality for a type. `kind` is Spark's `simpleString`."""
    return kind in _ALIKE or kind.startswith(_ALIKE_WITH_ARGUMENTS)


def repeated_rows(board: Blackboard, update: Update, columns: Sequence[str]) -> int:
    """Return the number of rows whose key occurred in an earlier row. NULL equals NULL.

    Memory is bounded for any number of rows. Raise DiskFull if the temporary folder is full.
    """
    files = [opened_stream(board, file, metadata_of(board, file)) for file in update.files]
    with TemporaryDirectory(prefix="feed-assets-") as folder:
        config: Any = {"memory_limit": _MEMORY, "temp_directory": folder, "preserve_insertion_order": False}
        try:
            with duckdb.connect(config=config) as connection:
                connection.register("rows", _keys(files, columns))
                ((keys,),) = connection.execute("SELECT count(*) FROM (SELECT DISTINCT * FROM rows)").fetchall()
        except (duckdb.IOException, duckdb.OutOfMemoryException) as error:
            why = sentence(excerpt(str(error)))
            raise DiskFull(
                f"keys of {update.path} cannot be kept in {folder}: {why} Make room, or set TMPDIR."
            ) from error
    return sum(file.metadata.num_rows for file in files) - keys


def _keys(files: Sequence[Any], columns: Sequence[str]) -> Any:
    """Return a reader of these columns of all files, under new names, because two names may differ only in case."""
    fields = [plain_schema(files[0]).field(name).with_name(f"c{n}") for n, name in enumerate(columns)]

    def batches() -> Iterator[Any]:
        for file in files:
            for batch in rows_by_batch(file, [*columns]):
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in columns], schema=pa.schema(fields))

    return pa.RecordBatchReader.from_batches(pa.schema(fields), batches())
