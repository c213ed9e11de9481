"""Data that a check may read, and rows that a failed check shows in place of the written rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from feed_assets.core.errors import InvalidDefinition
from feed_assets.core.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
else:
    DataFrame = Any  # These types are evaluated when a dataset is declared, which must not load Spark.

REASONS = 3
"""Greatest number of reasons for rejects that a message of `not_empty` names."""

KEYS = 5
"""Greatest number of keys without a counterpart that a message of `references` names."""

COLUMNS = 20
"""Greatest number of columns that a message names."""

LONGEST = 40
"""Greatest length of a value in a message. The sample has the whole value."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Audited:
    """The data that a check may read.

    Attributes:
        written: The written rows, read back.
        records: The number of written rows.
        rejected: The number of rejected records.
        inputs: The inputs of the function, by name.
        read: The same inputs, but including records that do not parse.
        rejects: A function that reads the rejected records, with the columns `reason`, `file` and `raw`; None if the
            dataset rejects none.
        records_read: A function that counts the records of all inputs, including those that do not parse; None if they
            were not counted while reading.
    """

    written: "DataFrame"
    records: int
    rejected: int
    inputs: "Mapping[str, DataFrame]"
    read: "Mapping[str, DataFrame]"
    rejects: "Callable[[], DataFrame] | None" = None
    records_read: Callable[[], int] | None = None


@dataclass(frozen=True)
class Evidence:
    """Rows, other than the rows of the dataset, that show why a check failed.

    Attributes:
        rows: A function from the audited data to a few rows. They are sorted, so that equal data give equal rows. It
            returns None if there is nothing to show.
        told: A function from the audited data and these rows to the text at the end of the message.
    """

    rows: "Callable[[Audited], DataFrame | None]"
    told: Callable[[Audited, Rows], str]


def _reasons(audited: Audited) -> "DataFrame | None":
    """Return the most frequent reject reasons with their record counts. Return None if there are no rejects."""
    if not (audited.rejects and audited.rejected):
        return None
    each = audited.rejects().selectExpr("explode(split(reason, '; ')) AS reason").groupBy("reason")
    counted = each.agg({"*": "count"}).withColumnRenamed("count(1)", "records")
    return counted.orderBy("records", "reason", ascending=[False, True]).limit(REASONS)


def _rejected(audited: Audited, rows: Rows) -> str:
    if audited.rejects is None:
        return ""
    if not audited.rejected:
        return "no record was rejected"
    reasons = ", ".join(f"{in_short(row['reason'])!r} ({row['records']})" for row in rows)
    return f"{audited.rejected} rejected, most often for {reasons}"


REJECTED = Evidence(_reasons, _rejected)
"""Evidence with the number of rejected records and the most frequent reasons."""


def known_keys(audited: Audited, child: str, parent: str, on: str) -> "DataFrame":
    """Return the keys of two inputs, each with its number of rows in the child, and whether the parent has the key.

    NULL matches nothing. Rows are grouped by key, not joined: a join takes Spark twice as long on small data.
    """
    rows = audited.inputs[child].selectExpr(f"{quoted(on)} AS key", "1L AS rows", "false AS known")
    keys = audited.inputs[parent].selectExpr(f"{quoted(on)} AS key", "0L AS rows", f"{quoted(on)} IS NOT NULL")
    by_key = rows.union(keys).groupBy("key").agg({"rows": "sum", "known": "max"})
    return by_key.selectExpr("key", "`sum(rows)` AS rows", "`max(known)` AS known")


def shares(audited: Audited, keys: Mapping[str, tuple[str, str, str]]) -> dict[str, float]:
    """Return for each named (child, parent, column) the share of the child's rows whose key the parent has.

    One job computes all shares. For a child without rows the share is 1.
    """
    for name, (child, parent, on) in keys.items():
        _refuse_other_keys(audited, name, (child, parent), on)
    counts = "sum(rows) AS all", "sum(if(known, rows, 0)) AS known"
    frames = [
        known_keys(audited, *each).selectExpr(f"{number} AS number", *counts)
        for number, each in enumerate(keys.values())
    ]
    rows = reduce(lambda frame, other: frame.union(other), frames).collect() if frames else []
    share_by_number = {row["number"]: row["known"] / row["all"] if row["all"] else 1.0 for row in rows}
    return {name: share_by_number[number] for number, name in enumerate(keys)}


def _refuse_other_keys(audited: Audited, name: str, inputs: Sequence[str], on: str) -> None:
    """Raise InvalidDefinition if an input lacks the key column, or if the column is text in only one of the inputs."""
    kinds: dict[str, str] = {}
    for each in inputs:
        schema = audited.inputs[each].schema
        if on not in schema.names:
            columns = ", ".join(schema.names[:COLUMNS])
            raise InvalidDefinition(
                f"check {name}: input {each!r} has no column {on!r}: expected one of {columns}. Correct `checks`."
            )
        kinds[each] = schema[on].dataType.simpleString()
    if len({kind == "string" for kind in kinds.values()}) > 1:
        types = ", ".join(f"{kind} in {each!r}" for each, kind in kinds.items())
        raise InvalidDefinition(f"check {name}: {on!r} is {types}: expected one type. Cast one of them.")


def missing(child: str, parent: str, on: str) -> Evidence:
    """Return evidence with the keys that the parent lacks. Keys with the most rows are first."""

    def rows(audited: Audited) -> "DataFrame":
        lost = known_keys(audited, child, parent, on).where("rows > 0 AND NOT known").drop("known")
        return lost.orderBy("rows", "key", ascending=[False, True]).limit(KEYS).withColumnRenamed("key", on)

    def message(_: Audited, rows: Rows) -> str:
        keys = ", ".join(f"{in_short(row[on])} ({row['rows']} row{'s' * (row['rows'] != 1)})" for row in rows)
        return f"not in {parent}, such as: {keys}"

    return Evidence(rows, message)


def in_short(value: object) -> str:
    """Return a value as text for a message, in one line. Shorten a long text."""
    text = "NULL" if value is None else " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
