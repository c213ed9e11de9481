"""Schemas of Parquet files, as a feed of them declares them."""

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import Update
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.parquet_columns import read_columns
from feed_assets.spark.parquet_files import types_of

_DATA = "x bigint"


def schema_of(board: Blackboard, update: Update) -> str:
    """Return the columns of an update's file as DDL. For a refused file, return any valid schema."""
    try:
        columns = next(iter(read_columns(board, update.files).values()))
    except UnreadableUpdate:
        return _DATA
    return ", ".join(f"`{name}` {kind.simpleString()}" for name, kind in types_of(columns).items())
