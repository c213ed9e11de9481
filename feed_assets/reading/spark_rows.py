"""Reading of rows with a Spark session: Parquet by its footers, CSV and JSON by a declared schema."""

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
    """Return a frame of the rows. With a schema, it also has `_raw`, `_file` and `_reasons`, as in a run.

    Without a schema, the files must be Parquet, and `columns` returns the schema of the files. Raise InvalidDefinition,
    UnreadableUpdate or UpdateChanged.
    """
    updates = [update for update in updates if update.files]  # Updates without files are valid, and have no rows.
    form = form or _format_of(feed, updates)
    dialect.check(feed, form)
    if schema is not None:
        check_schema(feed, schema, form)
    if schema is not None and updates:
        return read(session, board, updates, form, schema, dialect=dialect)
    if form != "parquet" and schema is None:
        raise InvalidDefinition(
            f"{feed} is {form.upper()}, whose columns have no types: expected the schema of its declaration. "
            "Give it: to_spark(session, schema='id string, at timestamp')."
        )
    return read_parts(session, board, updates, columns())


def _format_of(feed: Feed, updates: Sequence[Update]) -> Format:
    """Return the format that the names of the files show, by default Parquet. Raise UnreadableUpdate if they differ."""
    forms = formats_of(file for update in updates for file in update.files)
    if len(forms) > 1:
        raise UnreadableUpdate(
            f"{feed}: files of {' and '.join(sorted(forms))} by their names: expected one format. "
            "Give format='csv', 'json' or 'parquet' if the names are wrong."
        )
    return forms[0] if forms else "parquet"
