"""Parquet is read completely, with its checksums, or refused; Spark alone would skip or alter rows silently."""

import pytest

from feed_assets.core.errors import UnreadableUpdate
from feed_assets.core.feeds import Update
from feed_assets.settings import Settings
from feed_assets.spark.input_frames import read, read_own, read_parts
from feed_assets.spark.row_counts import check_counts
from feed_assets.spark.spark_errors import SPARK_ERRORS, reading
from feed_assets.spark.written_frame import write
from feed_assets_tests.support import damaged_parquet as damaged
from feed_assets_tests.support.spark_updates import PARTITION, put_update

SCHEMA = "id bigint"
GOOD = damaged.parquet(damaged.numbers())


def _collected(spark, board, data: bytes) -> int:
    update = put_update(board, {"part.parquet": data, "other.parquet": damaged.parquet(damaged.numbers(7))})
    with reading([update]):
        return len(read(spark, board, [update], "parquet", SCHEMA).collect())


@pytest.mark.connect
def test_a_whole_file_is_read(spark, local_board):
    assert _collected(spark, local_board, GOOD) == 20_007


@pytest.mark.connect
@pytest.mark.parametrize(
    ("data", "says"),
    [
        (damaged.without_second_group(), "row group 1 of 2: column 0 is at bytes"),
        (damaged.without_middle(GOOD, 0.2, 0.25), "row group 0 of 1: column 0 is at bytes"),
        (damaged.with_group_that_spark_leaves_out(), "its footer declares 20,000 rows, but Spark read 10,000"),
    ],
)
def test_a_file_that_spark_would_read_in_part_is_refused(spark, local_board, data, says):
    with pytest.raises(UnreadableUpdate, match=rf"part\.parquet cannot be read whole.*{says}"):
        _collected(spark, local_board, data)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_a_page_with_another_checksum_is_refused(spark, local_board, version, codec):
    data = damaged.parquet(damaged.numbers(), data_page_version=version, compression=codec)
    assert _collected(spark, local_board, data) == 20_007
    with pytest.raises(UnreadableUpdate, match=r"part\.parquet is damaged: .*checksum"):
        _collected(spark, local_board, damaged.with_flipped_bit(data))


@pytest.mark.connect
def test_a_dictionary_with_another_checksum_is_refused(spark, local_board):
    data = damaged.parquet(damaged.pa.table({"id": [number % 50 for number in range(20_000)]}), use_dictionary=True)
    start = damaged.pq.read_metadata(damaged.io.BytesIO(data)).row_group(0).column(0).dictionary_page_offset
    with pytest.raises(UnreadableUpdate, match=r"part\.parquet is damaged: .*checksum"):
        _collected(spark, local_board, data[: start + 100] + bytes([data[start + 100] ^ 1]) + data[start + 101 :])


@pytest.mark.connect
def test_our_own_files_have_checksums_and_a_session_cannot_be_told_otherwise(spark, request):
    """Set the session's options as a user or a server could; our reads and writes must not change.

    The Connect server is configured for a blackboard on S3.
    """
    board = request.getfixturevalue("s3_board" if Settings().spark_remote else "local_board")
    switches = ("parquet.page.write-checksum.enabled", "parquet.page.verify-checksum.enabled")
    for name in switches:
        spark.conf.set(name, "false")
    try:
        written = write(spark.range(20_000), board, PARTITION, "20210201.000000", files=1)
        (file,) = written.files
        data = board.get(file.key)
        board.put(file.key, damaged.with_flipped_bit(data))
        update = Update(PARTITION, "20210201.000000", board.files(f"{PARTITION.path}/20210201.000000"))
        for rows in (read_own, lambda *all_of: read_parts(*all_of[:2], [all_of[2]], damaged.numbers(0).schema)):
            with pytest.raises(UnreadableUpdate, match=r"is damaged: .*checksum"), reading([update]):
                rows(spark, board, update).collect()
    finally:
        for name in switches:
            spark.conf.unset(name)


@pytest.mark.connect
def test_a_session_verifies_what_a_function_reads_itself_and_blames_no_input(spark, local_board, tmp_path):
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(damaged.with_flipped_bit(GOOD))
    update = put_update(local_board, {"a": "b"})
    with pytest.raises(SPARK_ERRORS, match="CRC checksum verification failed"), reading([update]):
        spark.read.parquet(str(bad)).collect()
    with pytest.raises(SPARK_ERRORS, match="PATH_NOT_FOUND"), reading([update]):
        spark.read.parquet(str(tmp_path / "gone")).collect()


def test_files_with_fewer_rows_than_announced_are_refused():
    check_counts({"a": 2, "b": 0}, {"a": 2})
    with pytest.raises(UnreadableUpdate, match=r"^b cannot be read whole: .* 3 rows, but Spark read 1\."):
        check_counts({"a": 2, "b": 3}, {"a": 2, "b": 1})
    with pytest.raises(UnreadableUpdate, match=r"^a .* read 2 \(1 more files differ, too\)"):
        check_counts({"a": 5, "b": 3}, {"a": 2, "b": 1})


def test_more_rows_than_a_footer_announces_are_refused():
    with pytest.raises(UnreadableUpdate, match="declares 1 rows, but Spark read 2"):
        check_counts({"a": 1}, {"a": 2})
