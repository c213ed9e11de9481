"""Finding feeds and partitions, and copying an update, the same on every store."""

import os

import pytest

from feed_assets.core.errors import TargetNotEmpty, UpdateChanged
from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.read import download, feeds, latest, partitions, require, walk
from feed_assets_tests.support.counted_blackboards import FEED, MEN, NEW, OLD, tree, write

NOT_A_NUMBER = "expected a decimal number alone"


def test_partitions_are_found_by_walking_and_other_names_are_reported(board):
    write(board, NEW)
    write(board, OLD, None, partition=Partition(FEED, "2019-11-23/men"))
    board.put("ads/shown/v1.0/2019-11-24/_tmp/x", b"")
    board.put("ads/shown/v1.0/café/20191125.060000/_SUCCESS", b"0")
    board.put("ads/shown/v1.0/README", b"")
    assert [found if isinstance(found, Partition) else found.id for found in walk(board, FEED)] == [
        Partition(FEED, "2019-11-23/men"),
        "2019-11-24/_tmp",
        MEN,
        "café",
    ]


def test_partitions_of_a_feed_without_version_are_not_those_of_its_versions(board):
    write(board, NEW)
    write(board, NEW, partition=Partition(Feed.parse("ads/shown"), "2019-11-25"))
    assert list(partitions(board, Feed.parse("ads/shown"))) == [Partition(Feed.parse("ads/shown"), "2019-11-25")]


def test_skipped_names_are_logged_when_only_partitions_are_asked_for(board, caplog):
    write(board, NEW)
    for number in range(20):
        board.put(f"ads/shown/v1.0/_tmp{number:02}/x", b"")
    assert list(partitions(board, FEED)) == [MEN]
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("ads/shown/v1.0: these names are skipped: _tmp00 (partition key '_tmp00'")
    assert "and 17 more" in line


def test_a_walk_ends_at_the_depth_that_a_key_can_have_and_says_what_lies_deeper(board):
    for key in ("abcdefgh", "ABCDEFGHI"):
        board.put(f"ads/shown/v1.0/{'/'.join(key)}/20191125.060000/_SUCCESS", b"0")
    (skipped, deepest) = walk(board, FEED)
    assert deepest == Partition(FEED, "a/b/c/d/e/f/g/h")
    assert (skipped.id, "has 17 bytes and 9 segments" in skipped.reason) == ("A/B/C/D/E/F/G/H/I", True)


def test_a_key_that_is_too_long_is_no_partition_and_no_feed_and_hides_nothing(board):
    long = "/".join(letter * 100 for letter in "abcdef")
    for path in (f"ads/shown/v1.0/{long}", "ads/shown/v1.0/x", f"{long}/v1.0"):
        board.put(f"{path}/20191125.060000/_SUCCESS", b"0")
    assert [*partitions(board, FEED)] == [Partition(FEED, "x")]
    assert [str(feed) for feed in feeds(board)] == ["ads/shown/v1.0"]


def test_the_feeds_of_a_blackboard_are_found_without_its_service_prefix(board):
    write(board, NEW)
    write(board, NEW, partition=Partition(Feed.parse("ads/shown/v2.0")))
    write(board, NEW, partition=Partition(Feed.parse("legacy")))
    board.put("_feed_assets/claims/ads/shown/v1.0/x/20191125.060000", b"token")
    assert [str(feed) for feed in feeds(board)] == ["ads/shown/v1.0", "ads/shown/v2.0", "legacy"]


def test_download_copies_exactly_the_validated_files(board, tmp_path):
    write(board, NEW, files=("part-1.csv", "sub/part-2.csv"))
    update = require(latest(board, MEN))
    board.put(f"{update.path}/later", b"not validated")
    download(board, update, tmp_path / "new" / "out")
    assert tree(tmp_path / "new" / "out") == {"part-1.csv": b"part-1.csv", "sub/part-2.csv": b"sub/part-2.csv"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_download_streams_big_files_and_keeps_every_byte(board, tmp_path):
    content = os.urandom(23_000_000)
    write(board, NEW, None, files=())
    board.put(f"{MEN.path}/{NEW}/big", content)
    board.put(f"{MEN.path}/{NEW}/_SUCCESS", b"1")
    download(board, require(latest(board, MEN)), tmp_path / "out")
    assert (tmp_path / "out" / "big").read_bytes() == content


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda board, key: board.delete([key]), "is gone since it was listed"),
        (lambda board, key: board.put(key, b"longer than before"), "has 18 bytes"),
        (lambda board, key: board.put(key, b"same size!"), "has 10 bytes"),
    ],
    ids=["vanished", "another size", "another content of the same size"],
)
def test_a_file_that_changes_between_list_and_read_is_an_error_and_leaves_no_folder(board, tmp_path, change, message):
    write(board, NEW)
    update = require(latest(board, MEN))
    change(board, update.files[1].key)
    with pytest.raises(UpdateChanged, match=message):
        download(board, update, tmp_path / "out")
    assert list(tmp_path.glob("*out*")) == []


def test_download_refuses_a_folder_that_holds_something(board, tmp_path):
    write(board, NEW)
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(TargetNotEmpty, match="is not an empty folder"):
        download(board, require(latest(board, MEN)), tmp_path)
