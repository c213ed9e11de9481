"""Reading all batches of a partition, the same on every store."""

from datetime import UTC, datetime

import pytest

from feed_assets.core.errors import NoValidUpdate, TargetNotEmpty
from feed_assets.core.feeds import Partition, Skipped
from feed_assets.feeds import batch_set, read
from feed_assets.feeds.write import invalidate, publish
from feed_assets_tests.support.counted_blackboards import FEED, NEW, OLD, Counting, tree, write

DAY = Partition(FEED, "2019-11-24")
NO_MANIFEST = "it has no manifest: still being written, refused by its audit, abandoned or invalidated"
MOMENT = datetime(2019, 11, 26, 12, tzinfo=UTC)


def put(board, name, update_id, manifest=b"1", parent=DAY):
    write(board, update_id, manifest, files=("part.csv",), partition=parent.batch(name))


def found(reading):
    return [(update.partition.name, update.id) for update in reading.updates]


def test_a_partition_is_the_newest_valid_update_of_every_batch(board):
    for name, update_id in (("b", OLD), ("a", OLD), ("a", NEW), ("c", NEW)):
        put(board, name, update_id)
    reading = batch_set.latest(board, DAY)
    assert (found(reading), reading.left_out) == ([("a", NEW), ("b", OLD), ("c", NEW)], ())
    assert [file.key for update in reading.updates for file in update.files] == [
        f"{DAY.path}/a/{NEW}/part.csv",
        f"{DAY.path}/b/{OLD}/part.csv",
        f"{DAY.path}/c/{NEW}/part.csv",
    ]


def test_the_set_has_the_newest_valid_update_of_each_batch(board):
    put(board, "a", OLD)
    put(board, "a", NEW, b"7")
    (batch,) = batch_set.latest(board, DAY).batches
    assert batch.update.id == OLD
    assert batch.skipped == (Skipped(NEW, "its manifest says 7 files and there are 1"),)


def test_a_batch_without_a_valid_update_is_left_out_with_the_reason(board):
    put(board, "a", OLD)
    put(board, "b", OLD, b"two")
    put(board, "b", NEW, None)
    reading = batch_set.latest(board, DAY)
    assert found(reading) == [("a", OLD)]
    not_a_number = "its manifest is b'two': expected a decimal number alone"
    assert reading.left_out == (Skipped("b", f"{NEW}: {NO_MANIFEST}; {OLD}: {not_a_number}"),)


def test_invalid_batch_names_are_reported_and_hide_no_batch(board):
    put(board, "a", OLD)
    write(board, NEW, b"2", partition=DAY)
    board.put(f"{DAY.path}/_temporary/x", b"")
    board.put(f"{DAY.path}/empty/x/y", b"")
    reading = batch_set.latest(board, DAY)
    assert found(reading) == [("a", OLD)]
    reasons = {left.id: left.reason for left in reading.left_out}
    assert reasons[NEW] == "an update id: expected the name of a batch, because the feed is appendable"
    assert reasons["_temporary"].startswith("partition key '_temporary' cannot be a path segment")
    assert reasons["empty"] == "x: 'x' is not an update id: expected YYYYMMDD.HHMMSS, a moment that exists"


def test_the_set_as_of_a_time_has_the_updates_of_then(board):
    for name, update_id in (("a", OLD), ("a", NEW), ("b", "20191127.000000")):
        put(board, name, update_id)
    reading = batch_set.latest(board, DAY, datetime(2019, 11, 25, 12, tzinfo=UTC))
    assert (found(reading), reading.left_out) == ([("a", OLD)], (Skipped("b", "it has no update"),))


def test_an_update_of_a_batch_is_published_read_by_name_and_invalidated_as_any_other(board):
    first = publish(board, DAY.batch("a"), {"part.csv": b"1"}, MOMENT)
    second = publish(board, DAY.batch("a"), {"part.csv": b"22"}, MOMENT)
    other = publish(board, DAY.batch("b"), {"part.csv": b"3"}, MOMENT)
    assert first.id < second.id
    assert batch_set.latest(board, DAY).updates == (second, other)
    assert read.named(board, DAY.batch("a"), first.id) == first
    invalidate(board, DAY.batch("a"), second.id)
    assert batch_set.latest(board, DAY).updates == (first, other)


def test_a_feed_without_partitions_may_have_batches(board):
    put(board, "a", OLD, parent=Partition(FEED))
    assert found(batch_set.latest(board, Partition(FEED))) == [("a", OLD)]


def test_a_set_without_valid_updates_names_the_reason_for_each_batch(board):
    with pytest.raises(NoValidUpdate, match=f"has no batch: there is nothing at {DAY.path}/"):
        batch_set.require(batch_set.latest(board, DAY))
    for number in range(7):
        put(board, f"b{number}", OLD, None)
    with pytest.raises(NoValidUpdate) as caught:
        batch_set.require(batch_set.latest(board, DAY))
    assert f"has no batch with a valid update. b0: {OLD}: {NO_MANIFEST}; b1: " in str(caught.value)
    assert "; and 2 more. Publish one again." in str(caught.value)


def test_a_set_costs_one_listing_and_three_requests_for_each_batch(board):
    for number in range(5):
        for day in range(1, 9):
            put(board, f"b{number}", f"2019120{day}.000000")
    counting = Counting.around(board)
    batch_set.latest(counting.board, DAY)
    again = 1 if board._root else 0  # Folders are walked: the manifest is looked at once more.
    assert len(counting.requests) == 1 + (3 + again) * 5


def test_each_batch_is_downloaded_into_a_folder_of_its_name_and_all_at_once(board, tmp_path):
    for name, update_id in (("a", NEW), ("b", OLD)):
        put(board, name, update_id)
    reading = batch_set.latest(board, DAY)
    batch_set.download(board, reading, tmp_path / "new" / "set")
    assert tree(tmp_path / "new") == {"set/a/part.csv": b"part.csv", "set/b/part.csv": b"part.csv"}
    with pytest.raises(TargetNotEmpty):
        batch_set.download(board, reading, tmp_path / "new" / "set")


def test_a_walk_through_an_appendable_feed_finds_the_batches_beside_a_stray_update(board):
    put(board, "a", OLD)
    write(board, NEW, partition=DAY)
    assert [*read.walk(board, FEED)] == [DAY]
    assert [*read.walk(board, FEED, is_appendable=True)] == [DAY, DAY.batch("a")]
