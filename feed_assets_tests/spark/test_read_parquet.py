"""Reading Parquet: each file has exactly the declared columns, or the update is refused."""

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feed_assets.core.errors import UnreadableUpdate, UpdateChanged
from feed_assets.core.feeds import Update
from feed_assets.spark.input_frames import clean, read, read_own
from feed_assets.spark.spark_errors import reading
from feed_assets.spark.urls import spark_path
from feed_assets_tests.support.spark_updates import PARTITION, put_update

SCHEMA = "id int, name string"


def _parquet(spark, board, update_id, *frames):
    """Write an update with files of several jobs, as a foreign writer may do."""
    path = f"{PARTITION.path}/{update_id}"
    for frame in frames:
        frame.coalesce(1).write.mode("append").parquet(spark_path(board.url, path))
    return Update(PARTITION, update_id, tuple(file for file in board.files(path) if "/part-" in file.key))


@pytest.mark.connect
def test_rows_are_read_as_they_are(spark, local_board):
    update = _parquet(
        spark, local_board, "20200101.000000", spark.sql("select 'a' name, 1 id union all select null, 2")
    )
    tagged = read(spark, local_board, [update], "parquet", SCHEMA, required=["name"])
    assert sorted(tuple(row) for row in tagged.collect()) == [
        (1, "a", '{"id":1,"name":"a"}', update.files[0].key, []),
        (2, None, '{"id":2,"name":null}', update.files[0].key, ["name: missing"]),
    ]
    assert clean(tagged).collect() == [(1, "a")]


@pytest.mark.connect
def test_a_filter_finds_rows_that_the_statistics_of_the_footer_deny(spark, local_board):
    file = io.BytesIO()
    pq.write_table(pa.table({"x": [-5.0, 7.0]}), file, use_dictionary=False, compression="none")
    footer = len(file.getvalue()) - 8 - struct.unpack("<I", file.getvalue()[-8:-4])[0]
    lying = file.getvalue()[footer:].replace(struct.pack("<d", -5.0), struct.pack("<d", 1.0))
    update = put_update(local_board, {"lying.parquet": file.getvalue()[:footer] + lying})
    tagged = read(spark, local_board, [update], "parquet", "x double")
    assert clean(tagged).where("x < 0").collect() == [(-5.0,)]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        pytest.param("select 1 id", "name: found no such column, expected string", marks=pytest.mark.connect),
        ("select 1 id, 'a' name, 2 more", "more: found int, expected no such column"),
        ("select 1L id, 'a' name", "id: found bigint, expected int"),
        ("select '1' id, 'a' name", "id: found string, expected int"),
        ("select 1 ID, 'a' name", "ID: found int, expected no such column; id: found no such column, expected int"),
    ],
)
def test_a_file_with_other_columns_is_refused_and_named(spark, local_board, query, says):
    good = spark.sql("select 1 id, 'a' name")
    first = _parquet(spark, local_board, "20200102.000000", good)
    both = _parquet(spark, local_board, "20200102.000000", spark.sql(query))
    (culprit,) = {file.key for file in both.files} - {file.key for file in first.files}
    with pytest.raises(UnreadableUpdate) as refused:
        read(spark, local_board, [both], "parquet", SCHEMA)
    assert str(refused.value).startswith(f"{culprit} has another schema than declared: {says}.")


def test_promises_about_nulls_are_no_difference(spark, local_board):
    frame = spark.sql("select 1 id, array(struct('a' as x, map('k', 1) as m)) name")
    update = _parquet(spark, local_board, "20200103.000000", frame)
    schema = "id int not null, name array<struct<x: string not null, m: map<string, int>>>"
    assert read(spark, local_board, [update], "parquet", schema).count() == 1


@pytest.mark.parametrize("content", ["", "no parquet at all", "PAR1PAR1"])
def test_spark_refuses_files_that_are_no_parquet(spark, local_board, content):
    update = put_update(local_board, {"part.parquet": content})
    with pytest.raises(UnreadableUpdate, match=r"part\.parquet .*(is empty|is not a Parquet file)"):
        read(spark, local_board, [update], "parquet", SCHEMA)


@pytest.mark.connect
def test_a_file_that_vanished_is_no_missing_data(spark, local_board):
    update = _parquet(spark, local_board, "20200104.000000", spark.sql("select 1 id, 'a' name"))
    tagged = read(spark, local_board, [update], "parquet", SCHEMA)
    local_board.sweep(update.path)
    with pytest.raises(UpdateChanged), reading([update]):
        tagged.collect()
    with pytest.raises(UpdateChanged):
        read(spark, local_board, [update], "parquet", SCHEMA)


def test_an_own_update_without_files_is_refused(spark, local_board):
    with pytest.raises(UnreadableUpdate, match="has no files"):
        read_own(spark, local_board, Update(PARTITION, "20200105.000000", ()))


@pytest.mark.parametrize(("files", "shuffled"), [(1, False), (2, True)])
def test_one_small_part_of_ours_is_not_shuffled_to_find_equal_rows(spark, local_board, capsys, files, shuffled):
    """It is one task, and the tests' shuffles have one partition."""
    frames = [spark.sql("select 1 id, 'a' name")] * files
    rows = read_own(spark, local_board, _parquet(spark, local_board, f"20200107.00000{files}", *frames))
    rows.groupBy("id").count().explain()
    assert ("Exchange" in capsys.readouterr().out) is shuffled
