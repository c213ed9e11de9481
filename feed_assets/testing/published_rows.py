"""Rows of a published update, for a test to check."""

from typing import Any

from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.testing.plain import rows_of


def published_rows(board: Blackboard, update: Update) -> list[dict[str, Any]]:
    """Return the rows of an update: Parquet as `feed_assets.read` reads it, or JSON lines of a `PlainMaker`."""
    if not update.files or not all(file.key.endswith(".parquet") for file in update.files):
        return rows_of(board, update)
    from feed_assets.reading import parquet  # imported here, because only tests with Parquet need this module

    schema = parquet.schema_of(board, [update], union_by_name=False)
    return parquet.rows_of(board, [update], schema, None, []).to_pylist()
