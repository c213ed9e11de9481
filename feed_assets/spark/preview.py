"""The first rows of a written update, observed during the write, as a Markdown table for the UI."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StructField, StructType

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.markdown import as_text, table
from feed_assets.core.schemas import quoted

ROWS = 5
"""Greatest number of rows in the table."""
SHOWN = "_feed_assets_shown"
"""The name of a column with the row's number and texts for the first rows of each task, and NULL for all other rows.

The column is dropped after the observation.
"""
_ROWS_OF_A_TASK = 1 << 33
_LONGEST, _FETCHED = 60, 500
"""Greatest numbers of characters of a text in the table, and in Spark's result.

The second is greater, because the table shows any white space as one blank.
"""


def with_shown(frame: DataFrame) -> DataFrame:
    """Return the frame with the column SHOWN.

    The column is computed before the observation, because Spark does not compile the code of observations. Raise
    InvalidDefinition if the frame already has a column of this name.
    """
    if SHOWN in map(str.lower, frame.columns):
        raise InvalidDefinition(f"column {SHOWN!r} is reserved: expected data without it. Rename it.")
    numbered = frame.select("*", sf.expr(f"monotonically_increasing_id() AS {SHOWN}"))
    return numbered.withColumn(SHOWN, sf.expr(_row_sql(frame.schema)))


def first_rows() -> Column:
    """Return an aggregate that collects the first rows of each task while the rows are written."""
    return sf.collect_list(SHOWN)


def _row_sql(schema: StructType) -> str:
    """Return the SQL of the column SHOWN: for the first rows of each task, the row's number and its values as texts.

    Spark makes the texts, because Python would show timestamps in its own time zone. One SQL text costs one call to the
    JVM instead of ten for each column.
    """
    texts = ", ".join(map(_text, schema))
    struct = f"named_struct('number', {SHOWN}, 'texts', array({texts}))"
    return f"CASE WHEN pmod({SHOWN}, {_ROWS_OF_A_TASK}) < {ROWS} THEN {struct} END"


def markdown(schema: StructType, numbered: Sequence[Any]) -> str:
    """Return the first rows, by row number, as a Markdown table. Long values are cut."""
    rows = [each["texts"] for each in sorted(numbered, key=lambda each: each["number"])[:ROWS]]
    return table([*map(as_text, schema.names)], ([_cell(text) for text in row] for row in rows))


def _text(field: StructField) -> str:
    name = quoted(field.name)
    if isinstance(field.dataType, BinaryType):
        return f"hex(substring({name}, 1, {_FETCHED}))"
    return f"substring(CAST({name} AS STRING), 1, {_FETCHED})"


def _cell(text: str | None) -> str:
    text = "NULL" if text is None else " ".join(text.split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return as_text(text)
