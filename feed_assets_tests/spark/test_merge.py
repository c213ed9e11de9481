"""Rows of an increment merged by key: replaced rows, deleted rows, and no repeated reads."""

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import functions as sf

from feed_assets import merge_by_key
from feed_assets.core.errors import InvalidDefinition
from feed_assets.spark.merge import SMALL

ROWS, GONE = "k string, at int, v string", "k string, at int"
THERE = [("a", 1, "old"), ("b", 5, "old"), ("c", None, "old")]


@pytest.fixture
def frame(spark):
    return lambda rows, schema=ROWS: spark.createDataFrame(rows, schema)


@pytest.fixture
def merged(frame):
    """Return a function that merges an increment, and returns the rows in order."""

    def merge(new, deletes=None, *, previous=THERE, key="k", newest_by=None):
        there = None if previous is None else frame(previous)
        gone = None if deletes is None else frame(deletes, GONE)
        return found(merge_by_key(there, frame(new), key, deletes=gone, newest_by=newest_by))

    return merge


def found(frame):
    return sorted(map(tuple, frame.collect()), key=str)


def changed(*rows):
    """Return THERE with other rows for these keys."""
    keys = {row[0] for row in rows}
    return sorted([*(row for row in THERE if row[0] not in keys), *(row for row in rows if len(row) > 1)], key=str)


def test_the_first_merge_returns_all_new_rows(merged):
    assert merged([("a", 1, "x"), ("b", 2, "y")], previous=None) == [("a", 1, "x"), ("b", 2, "y")]


def test_the_first_merge_excludes_deleted_rows(merged):
    assert merged([("a", 1, "x"), ("b", 2, "y")], [("b", 3)], previous=None, newest_by="at") == [("a", 1, "x")]


def test_a_row_takes_the_place_of_the_one_with_its_key_and_others_stay(merged):
    assert merged([("a", 0, "new"), ("d", 0, "new")]) == changed(("a", 0, "new"), ("d", 0, "new"))


def test_a_merge_into_no_rows_returns_the_new_rows(merged):
    assert merged([("a", 1, "x")], previous=[]) == [("a", 1, "x")]


@pytest.mark.parametrize("newest_by", [None, "at"])
def test_a_merge_without_new_rows_changes_nothing(merged, newest_by):
    assert merged([], [], newest_by=newest_by) == sorted(THERE, key=str)


@pytest.mark.parametrize("newest_by", [None, "at"])
def test_merging_the_same_rows_again_changes_nothing(merged, newest_by):
    new, gone = [("a", 7, "new"), ("d", 7, "new")], [("b", 7), ("e", 7)]
    once = merged(new, gone, newest_by=newest_by)
    assert once == [("a", 7, "new"), ("c", None, "old"), ("d", 7, "new")]
    assert merged(new, gone, previous=once, newest_by=newest_by) == once


def test_a_composite_key_compares_all_its_columns(merged):
    assert merged([("a", 2, "new"), ("b", 5, "new")], key=["k", "at"]) == [
        ("a", 1, "old"),
        ("a", 2, "new"),
        ("b", 5, "new"),
        ("c", None, "old"),
    ]


def test_null_in_one_column_of_a_key_is_a_value_as_any_other(merged):
    there = [(None, 1, "old"), ("x", None, "old"), ("a", 1, "old")]
    found = merged([("x", None, "new")], [(None, 1)], previous=there, key=["k", "at"])
    assert found == [("a", 1, "old"), ("x", None, "new")]


@pytest.mark.parametrize("key", ["k", ["k", "at"]])
@pytest.mark.parametrize("there", [None, THERE])
def test_a_row_without_a_key_ends_the_run(merged, key, there):
    with pytest.raises(SparkRuntimeException, match="of a row of the increment are NULL: expected a key"):
        merged([(None, None, "x"), ("d", 1, "y")], previous=there, key=key)


def test_merge_refuses_other_types_and_keys_without_columns(frame):
    with pytest.raises(InvalidDefinition, match="previous is list: expected a DataFrame"):
        merge_by_key([], frame(THERE), "k")
    with pytest.raises(InvalidDefinition, match="new is None: expected a DataFrame"):
        merge_by_key(frame(THERE), None, "k")
    with pytest.raises(InvalidDefinition, match="the key has no column"):
        merge_by_key(None, frame(THERE), ())


@pytest.mark.parametrize("name", ["a.b", "a`b", "a b"])
def test_merged_columns_may_have_any_name(frame, name):
    columns = [name, f"{name}2", "v"]
    there, new, gone = (frame([(key, 1, key) for key in keys]).toDF(*columns) for keys in ("ab", "bc", "a"))
    merged = merge_by_key(there, new, name, deletes=gone, newest_by=f"{name}2")
    assert merged.columns == columns
    assert found(merged) == [("b", 1, "b"), ("c", 1, "c")]


def test_the_columns_stay_in_their_order(frame):
    there, new = frame([("a", 1, "x")]), frame([("y", "b", 2)], "v string, k string, at int")
    merged = merge_by_key(there, new, "k")
    assert merged.columns == ["k", "at", "v"]
    assert found(merged) == [("a", 1, "x"), ("b", 2, "y")]


def test_equal_rows_are_one(merged):
    assert merged([("a", 2, "x"), ("a", 2, "x")]) == changed(("a", 2, "x"))


def test_different_rows_of_one_key_are_an_error_that_names_it(merged):
    with pytest.raises(SparkRuntimeException, match=r'have the key {"k":"a"}: newest_by=… would order them'):
        merged([("a", 1, "x"), ("b", 1, "x"), ("a", 2, "x")])


def test_a_tie_is_an_error_that_names_the_key(merged):
    with pytest.raises(SparkRuntimeException, match=r'have the key {"k":"a"}: at does not order them'):
        merged([("a", 1, "x"), ("a", 2, "x"), ("a", 2, "y")], newest_by="at")


def test_a_tie_among_older_rows_is_no_error(merged):
    assert merged([("a", 3, "x"), ("a", 2, "x"), ("a", 2, "y")], newest_by="at") == changed(("a", 3, "x"))


def test_a_tie_among_deleted_rows_is_no_error(merged):
    assert merged([("a", 2, "x"), ("a", 2, "y")], [("a", 3)], newest_by="at") == changed(("a",))


NEWEST = [
    ("a newer row", 5, 6, "new"),
    ("one that is as new", 5, 5, "new"),
    ("an older one", 5, 4, "old"),
    ("NULL is older than all", 5, None, "old"),
    ("all is newer than NULL", None, 0, "new"),
    ("NULL is as new as NULL", None, None, "new"),
]
"""Case: time of the existing row, time of the change, and which row remains."""


def test_a_merge_keeps_the_newest_row(merged):
    there, new = [(key, at, "old") for key, at, *_ in NEWEST], [(key, at, "new") for key, _, at, _ in NEWEST]
    found = {key: value for key, _, value in merged(new, previous=there, newest_by="at")}
    assert found == {key: stays for key, *_, stays in NEWEST}


def test_and_so_of_a_delete(merged):
    there, gone = [(key, at, "old") for key, at, *_ in NEWEST], [(key, at) for key, _, at, _ in NEWEST]
    found = {key for key, *_ in merged([], gone, previous=there, newest_by="at")}
    assert found == {key for key, *_, stays in NEWEST if stays == "old"}


def test_a_merge_takes_the_newest_new_row_of_each_key(merged):
    new = [("a", 2, "x"), ("a", 4, "y"), ("a", None, "z"), ("b", 1, "x"), ("b", 2, "y")]
    assert merged(new, newest_by="at") == changed(("a", 4, "y"))


def test_deletes_remove_rows_and_deletes_of_missing_keys_are_no_error(merged):
    assert merged([("d", 1, "new")], [("a", 1), ("e", 1), ("a", 1)]) == changed(("a",), ("d", 1, "new"))


def test_a_key_both_new_and_deleted_stays_without_an_order(merged):
    assert merged([("a", 2, "new")], [("a", 3)]) == changed(("a", 2, "new"))


DELETES = [
    ("made again after it", 1, [9], [8], 9),
    ("gone after it", 1, [8], [9], None),
    ("gone in the same moment", 1, [8], [8], None),
    ("gone, made again, gone", 1, [8], [7, 9], None),
    ("gone twice, and made again", 1, [9], [7, 8], 9),
    ("gone before what is there", 5, [], [4], 5),
    ("both before what is there", 5, [3], [4], 5),
    ("never there", None, [], [4], None),
    ("made and gone", None, [3], [4], None),
]
"""Case: times of the existing row, of new rows, of deletes, and of the remaining row."""


def test_a_delete_is_a_change_like_others(merged):
    there = [(key, at, "old") for key, at, *_ in DELETES if at]
    new = [(key, at, "new") for key, _, some, *_ in DELETES for at in some]
    gone = [(key, at) for key, _, _, some, _ in DELETES for at in some]
    found = {key: at for key, at, _ in merged(new, gone, previous=there, newest_by="at")}
    assert found == {key: at for key, *_, at in DELETES if at}


def test_a_delete_leaves_nothing_that_older_rows_would_be_held_against(merged):
    without = merged([], [("a", 9)], newest_by="at")
    assert merged([("a", 1, "late")], previous=without, newest_by="at") == changed(("a", 1, "late"))


OTHERS = [
    ("a column more", "k string, at int, v string, w int", "w: none there, int new"),
    ("one less", "k string, at int", "v: string there, none new"),
    ("another type", "k string, at bigint, v string", "at: int there, bigint new"),
]


@pytest.mark.parametrize(("schema", "said"), [pytest.param(*case, id=name) for name, *case in OTHERS])
def test_other_columns_than_those_that_are_there_are_refused(frame, schema, said):
    with pytest.raises(InvalidDefinition, match=rf"\({said}\): expected the same"):
        merge_by_key(frame(THERE), frame([], schema), "k")


LACKING = [
    ("of the key", "k", None, "at int, v string", GONE, "new has no column 'k': expected k"),
    ("of the order", "k", "at", "k string, v string", GONE, "new has no column 'at': expected k, at"),
    ("of a delete's key", "k", None, ROWS, "at int", "deletes has no column 'k': expected k; it has at"),
    ("of a delete's order", "k", "at", ROWS, "k string", "deletes has no column 'at': expected k, at; it has k"),
]


@pytest.mark.parametrize(
    ("key", "newest_by", "schema", "gone", "said"), [pytest.param(*case, id=name) for name, *case in LACKING]
)
def test_a_column_that_is_not_there_is_refused(frame, key, newest_by, schema, gone, said):
    with pytest.raises(InvalidDefinition, match=said):
        merge_by_key(None, frame([], schema), key, deletes=frame([], gone), newest_by=newest_by)


@pytest.mark.parametrize("key", ["k", "at"])
def test_deletes_of_other_types_are_refused(frame, key):
    """Keep the column types: a union would widen them, and the next increment would have other columns."""
    with pytest.raises(InvalidDefinition, match=r"\(at: int new, bigint deleted\): expected the same"):
        merge_by_key(frame([]), frame([]), key, deletes=frame([], "k string, at bigint"), newest_by="at")


def test_deletes_are_compared_by_key_and_order_columns_only(frame):
    gone = frame([("a", "x", 9)], "k string, why string, at bigint")
    assert found(merge_by_key(frame(THERE), frame([]), "k", deletes=gone)) == changed(("a",))


@pytest.mark.parametrize("newest_by", [None, "at"])
def test_a_merge_reads_each_source_once(spark, frame, tmp_path, newest_by):
    """Use a source that changes on the second read: the row of 'a' would be replaced by that of 'b'."""
    answer, calls = tmp_path / "answer", spark.sparkContext.accumulator(0)
    answer.write_text("a")

    @sf.udf("string")
    def ask(_number):
        calls.add(1)
        return answer.read_text()

    new = spark.range(3).select(ask("id").alias("k"), sf.lit(9).alias("at"), sf.lit("new").alias("v"))
    merged = merge_by_key(frame(THERE), new, "k", newest_by=newest_by)
    answer.write_text("b")
    assert found(merged) == found(merged) == changed(("a", 9, "new"))
    assert calls.value == 3


def test_a_large_increment_is_merged_as_a_small_one_and_not_broadcast(spark, capsys):
    """Merge where a third of the existing rows is newer and stays, and every tenth key of the others is deleted."""
    new = spark.range(0, SMALL + 10, 1, 2).withColumn("at", sf.lit(2))
    there = spark.range(0, 3000, 1, 2).withColumn("at", sf.when(sf.col("id") % 3 == 0, 3).otherwise(1))
    merged = merge_by_key(there, new, "id", deletes=new.where("id % 10 = 0"), newest_by="at").persist()
    merged.explain()
    assert "Broadcast" not in capsys.readouterr().out
    counts = {row["at"]: row["count"] for row in merged.groupBy("at").count().collect()}
    gone = sum(1 for key in range(0, SMALL + 10, 10) if key >= 3000 or key % 3)
    assert counts == {3: 1000, 2: SMALL + 10 - 1000 - gone}
    assert merged.select("id").distinct().count() == sum(counts.values())
    merged.unpersist()
