"""Writing parts: exactly one job's files, statistics of exactly their rows, and no leftovers after a failure."""

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from pyspark.sql import functions as sf

from feed_assets.core.errors import InvalidDefinition, UpdateAbandoned
from feed_assets.core.feeds import Feed, File, Partition, Update
from feed_assets.feeds.read import latest
from feed_assets.feeds.write import claim, seal
from feed_assets.settings import Settings
from feed_assets.spark.input_frames import read_own
from feed_assets.spark.preview import first_rows, markdown, with_shown
from feed_assets.spark.spark_errors import SPARK_ERRORS
from feed_assets.spark.written_frame import write

SHOWN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men + more")
ROWS = """select * from values
  (1, 'a', timestamp'2019-11-24 00:01:03.979311'), (2, 'b', timestamp'2019-11-24 23:59:59.999999'), (3, null, null)
  as t(id, name, at)"""
_IDS = (f"20191124.{second:06d}" for second in count(1))


@pytest.fixture(params=["local", "s3"])
def board(request):
    """Return the target of Spark's writes: a folder with a space in its name, and a real S3 server."""
    if Settings().spark_remote and request.param == "local":
        pytest.skip("the Connect server is configured for a blackboard on S3")
    return request.getfixturevalue(f"{request.param}_board")


@pytest.fixture
def update_id():
    return next(_IDS)


@pytest.mark.connect
def test_the_reported_write_result_matches_the_written_files(spark, board, update_id):
    frame = spark.sql(ROWS)
    written = write(frame.repartition(2), board, SHOWN, update_id, event_time="at", files=2)
    assert written.files == board.files(f"{SHOWN.path}/{update_id}")
    assert (len(written.files), written.records) == (2, 3)
    assert written.bytes == sum(file.size for file in written.files) > 0
    assert written.first == datetime(2019, 11, 24, 0, 1, 3, 979311, UTC)
    assert written.last == datetime(2019, 11, 24, 23, 59, 59, 999999, UTC)
    assert written.first.utcoffset() == timedelta(0)
    update = Update(SHOWN, update_id, written.files)
    for schema in (frame.schema, None):
        assert sorted(row["id"] for row in read_own(spark, board, update, schema).collect()) == [1, 2, 3]


@pytest.mark.connect
def test_the_version_is_that_of_the_rows_and_not_of_their_files(spark, s3_board):
    frame = spark.sql(ROWS)
    frames = [frame, frame.orderBy("id", ascending=False).coalesce(1), frame.repartition(4)]
    written = [write(each, s3_board, SHOWN, next(_IDS), event_time="at") for each in frames]
    assert len({each.data_version for each in written}) == 1
    assert len({each.files for each in written}) == 3
    back = read_own(spark, s3_board, Update(SHOWN, _id(written[2]), written[2].files))
    assert write(back, s3_board, SHOWN, next(_IDS)).data_version == written[0].data_version
    changed = write(frame.where("id < 3"), s3_board, SHOWN, next(_IDS), event_time="at")
    assert changed.data_version != written[0].data_version


def _id(written):
    return written.files[0].key.removeprefix(f"{SHOWN.path}/").split("/")[0]


@pytest.mark.connect
def test_an_update_is_valid_once_its_manifest_counts_the_parts(spark, s3_board):
    claimed = claim(s3_board, SHOWN, b"this test", datetime(2019, 11, 25, tzinfo=UTC))
    written = write(spark.sql(ROWS), s3_board, SHOWN, claimed)
    assert latest(s3_board, SHOWN).update is None
    sealed = seal(s3_board, SHOWN, claimed, written.files)
    assert latest(s3_board, SHOWN).update == sealed


def test_a_plain_listing_of_s3_shows_the_parts_and_nothing_else(spark, s3_board, seaweedfs, update_id):
    """Remove Hadoop's empty folder objects, which other readers would count as files."""
    written = write(spark.sql(ROWS), s3_board, SHOWN, update_id)
    bucket, _, prefix = s3_board.url.removeprefix("s3://").partition("/")
    listed = seaweedfs.client().list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/{SHOWN.path}/{update_id}/")
    assert [item["Key"].removeprefix(f"{prefix}/") for item in listed["Contents"]] == [f.key for f in written.files]


def test_a_plain_listing_of_a_folder_shows_the_parts_and_nothing_else(spark, local_board, tmp_path, update_id):
    written = write(spark.sql(ROWS), local_board, SHOWN, update_id)
    folder = tmp_path / "black board" / SHOWN.path / update_id
    assert sorted(path.name for path in folder.rglob("*")) == [file.key.rsplit("/", 1)[1] for file in written.files]


@pytest.mark.connect
def test_an_empty_frame_is_one_part_with_its_schema(spark, s3_board, update_id):
    written = write(spark.sql(ROWS).where("id > 9"), s3_board, SHOWN, update_id, event_time="at")
    assert (len(written.files), written.records, written.first, written.last) == (1, 0, None, None)
    back = read_own(spark, s3_board, Update(SHOWN, update_id, written.files))
    assert (back.dtypes, back.count()) == ([("id", "int"), ("name", "string"), ("at", "timestamp")], 0)


def test_files_is_how_many_parts_there_are_at_most(spark, local_board):
    frame = spark.range(1000).repartition(4)
    assert len(write(frame, local_board, SHOWN, next(_IDS)).files) == 4
    assert len(write(frame, local_board, SHOWN, next(_IDS), files=1).files) == 1
    assert len(write(frame, local_board, SHOWN, next(_IDS), files=9).files) == 4


@pytest.mark.connect
def test_a_prefix_that_holds_anything_is_refused_and_left_as_it_was(spark, board, update_id):
    board.put(f"{SHOWN.path}/{update_id}/part-of-another", b"x")
    with pytest.raises(UpdateAbandoned, match=rf"{update_id} exists already: expected a new id"):
        write(spark.sql(ROWS), board, SHOWN, update_id)
    assert [file.key for file in board.files(f"{SHOWN.path}/{update_id}")] == [
        f"{SHOWN.path}/{update_id}/part-of-another"
    ]


@pytest.mark.connect
def test_a_write_that_fails_leaves_nothing_that_is_counted(spark, board, update_id):
    """Fail one task after others have finished: algorithm 2 would leave their parts, which look final."""
    failing = spark.range(0, 400, 1, 4).select(
        "id", sf.when(sf.col("id") < 399, 1).otherwise(sf.raise_error(sf.lit("on purpose"))).alias("x")
    )
    with pytest.raises(SPARK_ERRORS, match="on purpose"):
        write(failing, board, SHOWN, update_id)
    # A task that is just being committed may leave its part in `_temporary`, which no manifest can count.
    left = [file.key for file in board.files(f"{SHOWN.path}/{update_id}")]
    assert [key for key in left if "/_temporary/" not in key] == []
    assert latest(board, SHOWN).update is None


LEFTOVERS = [
    "_temporary/0/task_1/part-00000-x.parquet",
    ".part-00000.crc",
    "_SUCCESS.bak",
    "part-00000-0a1b2c3d-0000-4000-8000-00000000000a-c000.snappy.parquet#1",
    "notes.txt",
]


class Seen:
    """A blackboard whose listing differs from Spark's: one more object, or none."""

    def __init__(self, board, more=None):
        self._board, self._more, self.url = board, more, board.url

    def files(self, prefix):
        return (*self._board.files(prefix), File(f"{prefix}/{self._more}", 1)) if self._more else ()


@pytest.mark.parametrize("name", LEFTOVERS)
def test_unfinished_or_foreign_files_abandon_the_update(spark, local_board, update_id, name):
    with pytest.raises(UpdateAbandoned, match="which are not part files of a finished job"):
        write(spark.sql(ROWS), Seen(local_board, name), SHOWN, update_id)


def test_parts_of_two_jobs_make_the_update_abandoned(spark, local_board, update_id):
    other = "part-00000-0a1b2c3d-0000-4000-8000-00000000000a-c000.snappy.parquet"
    with pytest.raises(UpdateAbandoned, match="contains parts of 2 jobs: expected one"):
        write(spark.sql(ROWS), Seen(local_board, other), SHOWN, update_id)


def test_a_write_to_another_store_than_the_blackboard_is_refused(spark, local_board, update_id):
    with pytest.raises(UpdateAbandoned, match="Spark and the blackboard use different stores"):
        write(spark.sql(ROWS), Seen(local_board), SHOWN, update_id)


@pytest.mark.parametrize("event_time", ["id", "name", "nothing"])
def test_the_event_time_is_a_timestamp_column(spark, local_board, update_id, event_time):
    with pytest.raises(InvalidDefinition, match=f"event time '{event_time}' is not a timestamp column"):
        write(spark.sql(ROWS), local_board, SHOWN, update_id, event_time=event_time)
    assert local_board.files(SHOWN.path) == ()


def test_the_footer_holds_the_least_and_greatest_timestamp(spark, local_board, tmp_path, update_id):
    """Avoid INT96, Spark's default, which has no statistics."""
    parquet = pytest.importorskip("pyarrow.parquet")
    written = write(spark.sql(ROWS), local_board, SHOWN, update_id, files=1)
    footer = parquet.read_metadata(tmp_path / "black board" / written.files[0].key)
    statistics = footer.row_group(0).column(2).statistics
    assert (statistics.min.isoformat(), statistics.has_min_max) == ("2019-11-24T00:01:03.979311+00:00", True)


@pytest.mark.connect
def test_a_preview_is_a_small_markdown_table_in_utc(spark, s3_board, update_id):
    frame = spark.sql(
        "select 1 id, 'a|b\nc' name, timestamp'2019-11-24 00:00:00.5' at, x'ff' b, repeat('x', 99) l, string(null) n"
    )
    assert write(frame, s3_board, SHOWN, update_id).preview.splitlines() == [
        "| id | name | at | b | l | n |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| 1 | a\\|b c | 2019-11-24 00:00:00.5 | FF | {'x' * 59}… | NULL |",
    ]


@pytest.mark.connect
def test_a_preview_of_long_values_leaves_most_of_them_where_they_are(spark):
    """Limit the rows for a preview, as there may be thousands of tasks."""
    frame = spark.range(0, 4, 1, 2).selectExpr("repeat('ä', 100000) a", "cast(repeat('b', 100000) AS binary) b")
    found = with_shown(frame).select(first_rows().alias("rows")).first()["rows"]
    assert [[len(text) for text in row["texts"]] for row in found] == [[500, 1000]] * 4
    assert markdown(frame.schema, found).splitlines()[-1] == f"| {'ä' * 59}… | {'62' * 29}6… |"


def test_a_column_that_has_our_name_is_refused_and_not_lost(spark, local_board, update_id):
    with pytest.raises(InvalidDefinition, match="column '_feed_assets_shown' is reserved: expected data without it"):
        write(spark.range(3).toDF("_Feed_Assets_Shown"), local_board, SHOWN, update_id)


def test_a_preview_holds_the_first_rows_of_the_first_parts(spark, s3_board):
    """Write four tasks, which end in any order; some parts are empty."""
    frame = spark.range(0, 40, 1, 4).where("id >= 17")
    written = write(frame, s3_board, SHOWN, next(_IDS))
    assert written.preview.splitlines()[2:] == ["| 17 |", "| 18 |", "| 19 |", "| 20 |", "| 21 |"]
    assert read_own(spark, s3_board, Update(SHOWN, _id(written), written.files)).columns == ["id"]
    assert len(write(frame.where("id > 99"), s3_board, SHOWN, next(_IDS)).preview.splitlines()) == 2
