"""Rows of a published update, for a test to look at."""

from io import BytesIO
from typing import Any

from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.testing.plain import rows_of


def published_rows(board: Blackboard, update: Update) -> list[dict[str, Any]]:
    """The rows of an update of ours: Parquet as Spark writes it, or JSON lines as a `PlainMaker` does."""
    if not all(file.key.endswith(".parquet") for file in update.files):
        return rows_of(board, update)
    return [row for file in update.files for row in _parquet_rows(board.get(file.key) or b"")]


def _parquet_rows(data: bytes) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq  # pyright: ignore[reportMissingTypeStubs]

    opened: Any = pq.ParquetFile(BytesIO(data))
    return opened.read().to_pylist()
