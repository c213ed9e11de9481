"""Tagged frames: rejected rows, the kept one of duplicates, and no row lost between clean and rejected ones."""

import pytest
from pyspark.sql import functions as sf

from feed_assets.core.errors import UnstableRejects, UpdateAbandoned
from feed_assets.core.feeds import Feed, File, Partition, Update
from feed_assets.settings import Settings
from feed_assets.spark import rejects
from feed_assets.spark.input_frames import clean, read_own
from feed_assets.spark.rejects import (
    REJECTS,
    RejectedRows,
    is_tagged,
    reject,
    reject_duplicates,
    rejected_rows,
    write_rejects,
)
from feed_assets.spark.written_frame import write

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


def test_reasons_add_up_and_stay_in_order(tagged):
    frame = reject(reject(tagged(("a", -1, "r")), sf.col("at") < 0, "negative"), sf.col("id") == "a", "is a")
    assert rejected_rows(frame).collect() == [("negative; is a", "f", "r")]
    assert rejected_rows(frame).schema.simpleString() == REJECTS.simpleString()


def test_several_in_a_row_are_one_expression(tagged, capsys):
    """Each would be a step of its own, if it named the reasons of the one before twice."""
    frame = tagged(("a", -1, "r"))
    for number in range(5):
        frame = reject(frame, sf.col("at") < number, f"below {number}")
    frame.explain()
    assert capsys.readouterr().out.count("Project [") == 1
    assert _reasons(frame) == {"r": [f"below {number}" for number in range(5)]}


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
    good, rejects = clean(frame), rejected_rows(frame)
    assert [row["id"] for row in good.orderBy("id").collect()] == [1, 3]
    assert rejects.collect() == [("x", "f", "r2")]
    assert is_tagged(frame)
    assert not is_tagged(good)
    assert not is_tagged(rejects)


TURNED_AWAY = Partition(Feed.parse("ads/shown_rejects/v1.0"), "2019-11-24/men")


@pytest.fixture(params=["local", "s3"])
def board(request):
    """Return the target of rejects: a folder, and a real S3 server."""
    if Settings().spark_remote and request.param == "local":
        pytest.skip("the Connect server is configured for a blackboard on S3")
    return request.getfixturevalue(f"{request.param}_board")


@pytest.mark.connect
def test_empty_rejects_are_written_as_spark_would(spark, board):
    by_spark = write(spark.createDataFrame([], REJECTS), board, TURNED_AWAY, "20191124.000001")
    ours = write_rejects([], board, TURNED_AWAY, "20191124.000002")
    assert (ours.records, ours.data_version, ours.columns) == (0, by_spark.data_version, by_spark.columns)
    assert ours.data_version == "bfed50877fe7e9d49c547ad62ea51de8"  # a literal: it is the same in every release
    assert ours.files == board.files(f"{TURNED_AWAY.path}/20191124.000002")
    assert (len(ours.files), ours.bytes, ours.preview) == (1, ours.files[0].size, by_spark.preview)
    found = [
        read_own(spark, board, Update(TURNED_AWAY, f"20191124.00000{n}", w.files))
        for n, w in ((1, by_spark), (2, ours))
    ]
    assert [frame.schema for frame in found] == [REJECTS, REJECTS]
    assert [frame.collect() for frame in found] == [[], []]


@pytest.mark.connect
def test_writing_clean_rows_counts_the_rejected_ones(spark, board, tagged):
    frame = reject(tagged(("a", 1, "r1"), ("b", -1, "r2"), ("c", -1, "r3")), sf.col("at") < 0, "negative")
    for number, (some, count) in enumerate(((frame, 2), (frame.where("at > 0"), 0)), 3):
        good, rejected = RejectedRows.on_the_way(some)
        assert write(good, board, TURNED_AWAY, f"20191124.00000{number}").records == 1
        assert (rejected.counts()["_records"] or 0) == count
        assert write_rejects([rejected], board, TURNED_AWAY, f"20191124.00001{number}").records == count


def test_rejects_of_several_frames_are_one_update(local_board, tagged):
    def split(number, *rows):
        good, rejected = RejectedRows.on_the_way(reject(tagged(*rows), sf.col("at") < 0, "negative"))
        write(good, local_board, TURNED_AWAY, f"20191124.00000{number}")
        return rejected

    some = [split(1, ("a", -1, "r1"), ("a", 1, "r2")), split(2, ("b", 1, "r3")), split(3, ("c", -1, "r1"))]
    assert write_rejects(some, local_board, TURNED_AWAY, "20191124.000009").records == 2


OTHERS = {
    "fewer": (("a", 1, "r1"), ("b", 1, "r2")),
    "more": (("a", -1, "r1"), ("b", -1, "r2")),
    "as many": (("a", 1, "r1"), ("b", -1, "r2")),
}


@pytest.mark.parametrize("others", OTHERS)
def test_a_function_that_rejects_others_when_it_runs_again_loses_nothing(local_board, tagged, others):
    """Check the records themselves: one could be in neither or in both halves with equal counts."""
    first, second = (
        reject(tagged(*rows), sf.col("at") < 0, "negative")
        for rows in ((("a", -1, "r1"), ("b", 1, "r2")), OTHERS[others])
    )
    good, rejected = RejectedRows.on_the_way(first)
    write(good, local_board, TURNED_AWAY, "20191124.000001")
    unstable = RejectedRows(rejected_rows(second), lambda: {**rejected.counts(), "_some": None})
    with pytest.raises(UnstableRejects, match="1 records were rejected while the dataset was written, but "):
        write_rejects([unstable], local_board, TURNED_AWAY, "20191124.000002")


@pytest.mark.parametrize(("kept", "longest"), [(10, 100), (2, 100), (10, 50)], ids=["all", "too many", "too long"])
def test_rejects_that_came_along_are_not_made_again(local_board, tagged, monkeypatch, kept, longest):
    """Make other rejects again: both updates are the same."""
    monkeypatch.setattr(rejects, "_LONGEST", longest)
    monkeypatch.setattr(rejects, "reject_counts", rejects.reject_counts.__wrapped__)  # of another limit
    rows = (("a", -1, "r1"), ("b", 1, "r2"), ("c", -1, "é" * 40), ("d", -1, "\0\u2028\n\"'"))
    good, rejected = RejectedRows.on_the_way(reject(tagged(*rows), sf.col("at") < 0, "negative"), kept)
    write(good, local_board, TURNED_AWAY, "20191124.000001")
    assert (rejected.written() is rejected.rows) == ((kept, longest) != (10, 100))
    found = write_rejects([rejected], local_board, TURNED_AWAY, "20191124.000002")
    read = read_own(good.sparkSession, local_board, Update(TURNED_AWAY, "20191124.000002", found.files))
    assert sorted(read.collect()) == [("negative", "f", raw) for raw in sorted([rows[0][2], rows[2][2], rows[3][2]])]
    assert found.data_version == "0f529a77a8f5428714abb090f0d6da60"


def test_a_frame_whose_rows_are_all_rejected_is_counted_apart(local_board, tagged):
    """Count despite the optimizer, which removes the observation if a constant condition leaves no clean row."""
    good, rejected = RejectedRows.on_the_way(reject(tagged(("a", 1, "r1"), ("b", 2, "r2")), sf.lit(True), "no"))
    assert write(good, local_board, TURNED_AWAY, "20191124.000001").records == 0
    assert write_rejects([rejected], local_board, TURNED_AWAY, "20191124.000002").records == 2


@pytest.mark.parametrize(
    ("files", "size", "kept"), [(1, 100, 10_000), (9, 100, 10_000), (60, 1 << 20, 1639), (9, 1 << 40, 6)]
)
def test_the_more_tasks_there_are_the_fewer_rejects_come_along_from_each(files, size, kept):
    update = Update(TURNED_AWAY, "20191124.000001", tuple(File(f"f{n}", size // files) for n in range(files)))
    assert rejects.kept_of([update]) == kept


def test_foreign_parts_beside_empty_rejects_abandon_the_update(local_board):
    other = "part-00000-0a1b2c3d-0000-4000-8000-00000000000a-c000.snappy.parquet"
    local_board.put(f"{TURNED_AWAY.path}/20191124.000001/{other}", b"x")
    with pytest.raises(UpdateAbandoned, match="contains parts of 2 jobs"):
        write_rejects([], local_board, TURNED_AWAY, "20191124.000001")
