"""Merge of an increment's rows into the existing rows, by key.

The increment's rows are evaluated once and kept, because a second read of the source table may return other rows. If
one read replaced a row and the other read did not have the new row, the row would be lost.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from feed_assets.core.errors import InvalidDefinition
from feed_assets.spark.parse import column

SMALL = 500_000
"""Greatest number of changes that each task holds in memory, so that Spark need not sort the existing rows."""

_AT, _DELETED, _ROWS = "_merge_at", "_merge_deleted", "_merge_rows"


def merge_by_key(
    previous: DataFrame | None,
    new: DataFrame,
    key: str | Sequence[str],
    *,
    deletes: DataFrame | None = None,
    newest_by: str | None = None,
) -> DataFrame:
    """Merge the rows of an increment into the dataset's previous rows: an upsert, with deletes.

    A row of `new` replaces the existing row with its key. Equal rows count once. Merging the same rows again changes
    nothing. In a key of several columns, NULL is a value like any other.

    Args:
        previous: The existing rows, as the function gets them in its parameter `previous`. None in a run that loads the
            whole dataset anew.
        new: The rows of the increment, with the columns of `previous`.
        key: The column or columns of the key.
        deletes: A frame with one row for each deleted key. It has the key's columns. If `newest_by` is given, it also
            has that column, with the time of the delete. Without `newest_by`, a deleted key that is also in `new`
            stays.
        newest_by: The column that orders the rows of a key, such as a time or an offset; NULL comes first. The row
            with the greatest value stays, so that a row read late or again replaces nothing newer. Among equal
            values, `new` wins over `previous`, and a delete over both. A delete leaves no trace: an older row that is
            merged later is added again.

    Returns:
        The merged rows, in any order.

    Raises:
        InvalidDefinition: An argument is not a DataFrame, `previous` has other columns than `new`, `deletes` has other
            types, or a named column is missing.
        SparkRuntimeException: All key columns of a row are NULL; or two different rows of `new` have the same key, and
            `newest_by` does not order them. If `previous` is None, this is raised when the rows are written.
    """
    keys = [key] if isinstance(key, str) else [*key]
    named = [*keys, newest_by] if newest_by else keys
    _check(previous, new, deletes, named if keys else [])
    changes = _changes(new, deletes, keys, newest_by)
    if previous is None:
        return _rows(changes, new)
    changes = changes.localCheckpoint()
    inserted = _rows(changes, new)
    held = sf.broadcast if changes.count() <= SMALL else _as_it_is
    is_same = _same_key(keys)
    existing, change = previous.alias("known"), held(changes).alias("change")
    is_replaced = is_same & _comes_later(newest_by)
    kept = existing.join(change, is_replaced, "left_anti")
    if newest_by:
        newer = existing.join(change, is_same & ~_comes_later(newest_by)).select(*(_of("known", each) for each in keys))
        inserted = inserted.alias("change").join(held(newer).alias("known"), is_same, "left_anti")
    return kept.unionByName(inserted)


def _rows(changes: DataFrame, new: DataFrame) -> DataFrame:
    """Return the changes that add or replace a row, without the deletes."""
    return changes.where(~column(_DELETED)).select(*map(column, new.columns))


def _as_it_is(frame: DataFrame) -> DataFrame:
    return frame


def _changes(new: DataFrame, deletes: DataFrame | None, keys: Sequence[str], newest_by: str | None) -> DataFrame:
    """Return the last change of each key: a row or a delete. The other columns of a delete are NULL."""
    at = column(newest_by) if newest_by else sf.lit(None)
    changes = new.dropDuplicates().withColumns({_AT: at, _DELETED: sf.expr("false")})
    if deletes is not None:
        gone = deletes.select(*map(column, keys), at.alias(_AT), sf.expr("true").alias(_DELETED))
        changes = changes.unionByName(gone.dropDuplicates(), allowMissingColumns=True)
    is_over = column(_DELETED).desc() if newest_by else column(_DELETED).asc()
    of_key = Window.partitionBy(*map(column, keys)).orderBy(column(_AT).desc_nulls_last(), is_over)
    first = changes.withColumn("_merge_rank", sf.rank().over(of_key)).where("_merge_rank = 1").drop("_merge_rank")
    counted = first.withColumn(_ROWS, sf.count(sf.lit(1)).over(Window.partitionBy(*map(column, keys))))
    return counted.where(_is_one(keys, newest_by)).drop(_ROWS)


def _is_one(keys: Sequence[str], newest_by: str | None) -> Column:
    """Return a condition that is true if a key has exactly one change, or was deleted.

    Otherwise it fails with an error that names the key.
    """
    key_text = sf.to_json(sf.struct(*map(column, keys)))
    lacks = f"{newest_by} does not order them" if newest_by else "newest_by=… would order them"
    message = sf.concat(
        sf.lit("merge_by_key: different rows of an increment have the key "), key_text, sf.lit(f": {lacks}.")
    )
    lost = sf.lit(
        f"merge_by_key: {' and '.join(keys)} of a row of the increment are NULL: expected a key. Leave such rows out, "
        "or reject them."
    )
    is_null = reduce(Column.__and__, (column(each).isNull() for each in keys))
    is_one = (column(_ROWS) == 1) | column(_DELETED)
    return sf.when(is_null, sf.raise_error(lost)).when(is_one, sf.expr("true")).otherwise(sf.raise_error(message))


def _same_key(keys: Sequence[str]) -> Column:
    condition = sf.expr("true")
    for name in keys:
        condition &= _of("known", name).eqNullSafe(_of("change", name))
    return condition


def _comes_later(newest_by: str | None) -> Column:
    """Return whether a change is as new as the existing row, or newer."""
    if newest_by is None:
        return sf.expr("true")
    existing = _of("known", newest_by)
    return sf.coalesce(existing <= _of("change", _AT), existing.isNull())


def _of(frame: str, name: str) -> Column:
    return sf.col(f"{frame}.`{name.replace('`', '``')}`")


def _check(previous: DataFrame | None, new: DataFrame, deletes: DataFrame | None, named: Sequence[str]) -> None:
    """Raise InvalidDefinition for arguments that are not DataFrames, and for columns that do not match."""
    if not named:
        raise InvalidDefinition("merge_by_key: the key has no column: expected one or more. Name the key's columns.")
    for argument, frame in (("previous", previous), ("new", new), ("deletes", deletes)):
        if not isinstance(frame, DataFrame) and (frame is not None or argument == "new"):
            raise InvalidDefinition(
                f"merge_by_key: {argument} is {frame if frame is None else type(frame).__name__}: expected a "
                "DataFrame. The order is merge_by_key(previous, new, key)."
            )
    for argument, frame in (("new", new), ("deletes", deletes)):
        if frame is not None and (missing := [name for name in named if name not in frame.columns]):
            raise InvalidDefinition(
                f"merge_by_key: {argument} has no column {missing[0]!r}: expected {', '.join(named)}; it has "
                f"{', '.join(frame.columns)}."
            )
    new_types = dict(new.dtypes)
    gone = {name: dtype for name, dtype in deletes.dtypes if name in named} if deletes is not None else {}
    if gone and (differences := _differences({name: new_types[name] for name in named}, "new", gone, "deleted")):
        raise InvalidDefinition(
            f"merge_by_key: the columns of `deletes` have other types than those of the increment ({differences}): "
            "expected the same. Cast them."
        )
    if previous is not None and (differences := _differences(dict(previous.dtypes), "there", new_types, "new")):
        raise InvalidDefinition(
            f"merge_by_key: the increment's columns differ from those of the existing rows ({differences}): expected "
            "the same. Cast them, or materialize the partition by hand, which loads all rows anew."
        )


def _differences(types: Mapping[str, str], side: str, other_types: Mapping[str, str], other_side: str) -> str:
    """Return a text with the columns that differ between two frames and their types. Return '' if none differ."""
    names = sorted(name for name in types.keys() | other_types.keys() if types.get(name) != other_types.get(name))
    return "; ".join(
        f"{each}: {types.get(each, 'none')} {side}, {other_types.get(each, 'none')} {other_side}" for each in names
    )
