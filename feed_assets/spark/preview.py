"""The first rows of a written update, observed during the write: a Markdown table for the UI."""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, StructField, StructType

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.markdown import as_text, table
from feed_assets.core.schemas import quoted

ROWS = 5
"""Rows that are shown at most."""
SHOWN = "_feed_assets_shown"
"""A column with the number and the texts of each task's first rows, else NULL; dropped once it was observed."""
_ROWS_OF_A_TASK = 1 << 33
_LONGEST, _FETCHED = 60, 500
"""Most characters of a text that are shown, and that Spark returns: white space in it is shown as one blank."""


def with_shown(frame: DataFrame) -> DataFrame:
    """Return the frame with the column SHOWN: computed before an observation, which would not compile it.

    Raises InvalidDefinition for a frame that has a column of that name.
    """
    if SHOWN in map(str.lower, frame.columns):
        raise InvalidDefinition(f"column {SHOWN!r} is ours: expected data without it. Rename it.")
    numbered = frame.select("*", sf.expr(f"monotonically_increasing_id() AS {SHOWN}"))
    return numbered.withColumn(SHOWN, sf.expr(_row_sql(frame.schema)))


def first_rows() -> Column:
    """Return the first rows of each task as one value, which an observation can take."""
    return sf.collect_list(SHOWN)


def _row_sql(schema: StructType) -> str:
    """Return SQL, which is one call to the JVM in place of ten for each column.

    Spark makes the texts: Python would show timestamps in its own process's time zone.
    """
    texts = ", ".join(map(_text, schema))
    struct = f"named_struct('number', {SHOWN}, 'texts', array({texts}))"
    return f"CASE WHEN pmod({SHOWN}, {_ROWS_OF_A_TASK}) < {ROWS} THEN {struct} END"


def markdown(schema: StructType, numbered: Sequence[Any]) -> str:
    """Return the first of all these rows as a Markdown table; long values are cut."""
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
