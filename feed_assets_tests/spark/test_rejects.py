"""Tagged frames: what is rejected when, which duplicate stays, and that no row is lost between the two halves."""

import pytest
from pyspark.sql import functions as sf

from feed_assets.spark.read import ddl
from feed_assets.spark.rejects import REJECT_COLUMNS, is_tagged, reject, reject_duplicates, split

SCHEMA = "id string, at int, _raw string, _file string, _reasons array<string>"


@pytest.fixture
def tagged(spark):
    return lambda *rows: spark.createDataFrame(
        [(*row, "f") if len(row) == 3 else row for row in rows], "id string, at int, _raw string, _file string"
    ).withColumn("_reasons", sf.array().cast("array<string>"))


def _reasons(frame):
    return {row["_raw"]: row["_reasons"] for row in frame.collect()}


def test_a_null_condition_rejects_nothing(tagged):
    frame = tagged(("a", 1, "r1"), ("b", None, "r2"), ("c", -1, "r3"))
    found = reject(frame, sf.col("at") < 0, "at: negative")
    assert _reasons(found) == {"r1": [], "r2": [], "r3": ["at: negative"]}


def test_reasons_add_up_and_stay_in_order(spark, tagged):
    frame = reject(reject(tagged(("a", -1, "r")), sf.col("at") < 0, "negative"), sf.col("id") == "a", "is a")
    assert split(frame)[1].collect() == [("negative; is a", "f", "r")]
    assert split(frame)[1].schema.simpleString() == ddl(spark, REJECT_COLUMNS).simpleString()


DUPLICATES = [
    (("a", 2, "r1"), ["duplicate of id"]),
    (("a", 1, "r3"), ["duplicate of id"]),
    (("a", 1, "r2"), []),
    (("b", -5, "r4"), ["negative"]),
    (("b", 9, "r5"), []),
    ((None, 1, "r6"), []),
    ((None, 1, "r7"), []),
    (("c", 1, "r8", "g"), []),
    (("c", 1, "r9", "f"), ["duplicate of id"]),
]


@pytest.mark.connect
def test_the_first_of_each_key_stays_and_only_good_rows_compete(tagged):
    frame = reject(tagged(*[row for row, _ in DUPLICATES]), sf.col("at") < 0, "negative")
    found = reject_duplicates(frame, ["id"], [sf.col("at")])
    assert _reasons(found) == {row[2]: reasons for row, reasons in DUPLICATES}
    assert found.columns == frame.columns


def test_equal_records_of_two_files_are_told_apart_by_the_file(tagged):
    found = reject_duplicates(tagged(("a", 1, "r", "g"), ("a", 1, "r", "f")), ["id", "at"], [])
    assert [(row["_file"], row["_reasons"]) for row in found.orderBy("_file").collect()] == [
        ("f", []),
        ("g", ["duplicate of id, at"]),
    ]


def test_rows_in_are_clean_and_rejected_rows_even_without_reasons_at_all(spark):
    rows = [(1, "r1", "f", []), (2, "r2", "f", ["x"]), (3, "r3", "f", None)]
    frame = spark.createDataFrame(rows, "id int, _raw string, _file string, _reasons array<string>")
    clean, rejects = split(frame)
    assert [row["id"] for row in clean.orderBy("id").collect()] == [1, 3]
    assert rejects.collect() == [("x", "f", "r2")]
    assert is_tagged(frame)
    assert not is_tagged(clean)
    assert not is_tagged(rejects)
