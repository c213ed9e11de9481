"""Rows by a Spark session: Parquet as its footers say, CSV and JSON by a declared schema, as runs read them."""

from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from feed_assets.core.csv_dialect import CsvDialect
from feed_assets.core.errors import InvalidDefinition, UnreadableUpdate
from feed_assets.core.feeds import Feed, Update
from feed_assets.core.file_checks import Format, formats_of
from feed_assets.core.schemas import check_schema
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.spark.input_frames import read, read_parts


def rows(
    session: SparkSession,
    *,
    board: Blackboard,
    feed: Feed,
    updates: Sequence[Update],
    columns: Callable[[], Any],
    schema: str | None,
    form: Format | None,
    dialect: CsvDialect,
) -> DataFrame:
    """Return the frame; with a schema a tagged one, else with the `pyarrow.Schema` that `columns` returns.

    Raise InvalidDefinition, UnreadableUpdate and UpdateChanged.
    """
    updates = [update for update in updates if update.files]  # The others are valid, and have no rows.
    form = form or _format_of(feed, updates)
    dialect.check(feed, form)
    if schema is not None:
        check_schema(feed, schema, form)
    if schema is not None and updates:
        return read(session, board, updates, form, schema, dialect=dialect)
    if form != "parquet" and schema is None:
        raise InvalidDefinition(
            f"{feed} is {form.upper()}, whose columns have no types: expected the schema that it is declared by. "
            "Give it: to_spark(session, schema='id string, at timestamp')."
        )
    return read_parts(session, board, updates, columns())


def _format_of(feed: Feed, updates: Sequence[Update]) -> Format:
    """Return the format by the names of the files; Parquet if they show none. Raise UnreadableUpdate if they differ."""
    forms = formats_of(file for update in updates for file in update.files)
    if len(forms) > 1:
        raise UnreadableUpdate(
            f"{feed}: files of {' and '.join(sorted(forms))} by their names: expected one format. "
            "Give format='csv', 'json' or 'parquet' if the names are wrong."
        )
    return forms[0] if forms else "parquet"
