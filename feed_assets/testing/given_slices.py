"""Slices of SQL tables for functions that a Harness drives. The tables must be in a database of the test."""

import os
from typing import TYPE_CHECKING

from feed_assets.core.errors import SourceNotGiven
from feed_assets.core.secrets import masked
from feed_assets.core.slices import Slice
from feed_assets.settings import declared_text
from feed_assets.testing.environment import is_of_the_test

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_of_the_test(
    piece: Slice, spark: "SparkSession", url: str, table: str, *, by: str, schema: str | None = None
) -> "DataFrame":
    """Return the rows of a slice. Raise SourceNotGiven unless the test has set a variable to the database's URL."""
    if declared_text(url) not in {value for name, value in os.environ.items() if is_of_the_test(name)}:
        raise SourceNotGiven(
            f"a Harness reads only what the test gives, and not the SQL table {table} at {masked(url)}, where the "
            f"function reads a slice of {piece.partition.feed}. Let the function read `env:NAME`, and set that "
            "variable within `with fresh_home(…):`, for example by `monkeypatch.setenv`."
        )
    from feed_assets.sources.slice_rows import rows_of  # imported here: PySpark takes a second to load

    return rows_of(piece, spark, url, table, by=by, schema=schema)
