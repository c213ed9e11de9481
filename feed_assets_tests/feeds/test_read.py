"""Reading, the same on every store."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from feed_assets.core.errors import NoValidUpdate, UnreadableUpdate
from feed_assets.core.feeds import MANIFEST_LIMIT, Feed, Partition, Skipped, Version
from feed_assets.feeds import read as reading
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import download, history, latest, named, newer_versions, partitions, require
from feed_assets.feeds.write import invalidate, publish
from feed_assets_tests.support.counted_blackboards import FEED, MEN, NEW, OLD, Counting, tree, write


class Paged(Counting):
    """A store that lists pages one at a time, like S3: each page shows the state of its request."""

    between: Callable[[], object]

    def list(self, prefix, /, after=None):
        first = [meta for page in self.client.list(prefix) for meta in page][:1_000]
        yield first
        self.between()
        yield [meta for page in self.client.list(prefix) for meta in page if meta["path"] > first[-1]["path"]]


NOT_A_NUMBER = "expected a decimal number alone"


def test_the_newest_valid_update_is_an_exact_list_of_files_with_sizes(board):
    write(board, OLD)
    write(board, NEW, files=("part-1.csv", "sub/part-2.csv"))
    reading = latest(board, MEN)
    assert (require(reading).id, reading.skipped) == (NEW, ())
    assert [(file.key, file.size) for file in require(reading).files] == [
        (f"ads/shown/v1.0/2019-11-24/men/{NEW}/part-1.csv", 10),
        (f"ads/shown/v1.0/2019-11-24/men/{NEW}/sub/part-2.csv", 14),
    ]


def test_updates_are_ordered_by_id_and_not_by_when_they_were_written(board):
    write(board, NEW)
    write(board, OLD)
    assert require(latest(board, MEN)).id == NEW


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (None, "it has no manifest"),
        (b"", "its manifest is empty"),
        (b"two", NOT_A_NUMBER),
        (b"-2", NOT_A_NUMBER),
        (b"+2", NOT_A_NUMBER),
        (b"2\r\n", NOT_A_NUMBER),
        (b"2\n\n", NOT_A_NUMBER),
        ("٢".encode(), NOT_A_NUMBER),
        (b"2" * 5_000_000, NOT_A_NUMBER),
        (b"3", "its manifest says 3 files and there are 2"),
        (b"1", "its manifest says 1 files and there are 2"),
        (b"999999999999999999", "its manifest says 999999999999999999 files and there are 2"),
    ],
)
def test_an_invalid_newest_update_is_skipped_and_the_older_one_served(board, manifest, reason):
    write(board, OLD)
    write(board, NEW, manifest)
    reading = latest(board, MEN)
    assert require(reading).id == OLD
    assert [skipped.id for skipped in reading.skipped] == [NEW]
    assert reason in reading.skipped[0].reason


def test_every_skipped_update_has_its_own_reason_newest_first(board):
    write(board, OLD)
    write(board, "20191127.000000", None)
    write(board, "20191128.000000", b"")
    write(board, "20191129.000000", b"7")
    assert latest(board, MEN).skipped == (
        Skipped("20191129.000000", "its manifest says 7 files and there are 2"),
        Skipped("20191128.000000", "its manifest is empty"),
        Skipped(
            "20191127.000000",
            "it has no manifest: still being written, refused by its audit, abandoned or invalidated",
        ),
    )


@pytest.mark.parametrize("name", ["20180530.2460", "20180231.000000", "20991126060000", "latest", "99999999.999999"])
def test_a_name_that_is_nearly_an_update_id_is_reported_and_never_read(board, name):
    write(board, OLD)
    write(board, name)
    reading = latest(board, MEN)
    assert require(reading).id == OLD
    strange = Skipped(name, f"{name!r} is not an update id: expected YYYYMMDD.HHMMSS, a moment that exists")
    assert reading.skipped == ((strange,) if name > OLD else ())
    assert strange in history(board, MEN)
    with pytest.raises(NoValidUpdate, match="is not an update id"):
        named(board, MEN, name)


def test_a_missing_prefix_says_that_there_is_nothing(board):
    assert latest(board, MEN).skipped == ()
    with pytest.raises(NoValidUpdate, match=r"has no update: there is nothing at ads/shown/v1.0/2019-11-24/men/"):
        require(latest(board, MEN))


def test_no_valid_update_lists_why_each_candidate_was_skipped(board):
    for day in range(1, 8):
        write(board, f"2019120{day}.000000", str(day + 2).encode())
    with pytest.raises(NoValidUpdate) as caught:
        require(latest(board, MEN))
    assert "20191207.000000: its manifest says 9 files and there are 2; 20191206" in str(caught.value)
    assert "; and 2 more" in str(caught.value)


def test_an_update_of_no_files_is_valid(board):
    write(board, NEW, b"0", files=())
    assert require(latest(board, MEN)).files == ()


def test_only_the_manifest_at_the_top_is_not_counted(board):
    write(board, NEW, b"3", files=("a", "sub/_SUCCESS", "_metadata"))
    assert len(require(latest(board, MEN)).files) == 3


def test_files_of_a_dead_job_are_counted(board):
    write(board, NEW, b"1", files=("a", "_temporary/0/task_1/part-0"))
    assert latest(board, MEN).skipped == (Skipped(NEW, "its manifest says 1 files and there are 2"),)


@pytest.mark.parametrize(
    ("as_of", "expected"),
    [
        (datetime(2019, 11, 27, tzinfo=UTC), NEW),
        (datetime(2019, 11, 26, 6, tzinfo=UTC), NEW),
        (datetime(2019, 11, 26, 5, 59, 59, 999_999, tzinfo=UTC), OLD),
        (datetime(2019, 11, 25, 6, tzinfo=UTC), OLD),
        (datetime(2019, 11, 25, 5, 59, 59, tzinfo=UTC), None),
    ],
)
def test_a_read_as_of_a_time_ignores_newer_updates(board, as_of, expected):
    write(board, OLD)
    write(board, NEW)
    found = latest(board, MEN, as_of).update
    assert (found and found.id) == expected


def test_a_read_as_of_a_time_falls_back_to_the_previous_valid_update(board):
    write(board, OLD)
    write(board, NEW, b"1")
    write(board, "20191127.060000")
    reading = latest(board, MEN, datetime(2019, 11, 27, tzinfo=UTC))
    assert (require(reading).id, [skipped.id for skipped in reading.skipped]) == (OLD, [NEW])


def test_an_older_update_can_be_read_by_name(board):
    write(board, OLD)
    write(board, NEW)
    assert named(board, MEN, OLD).id == OLD


def test_reading_an_invalid_or_missing_update_by_name_gives_the_reason(board):
    write(board, OLD, b"5")
    with pytest.raises(NoValidUpdate, match=f"no valid update {OLD}: its manifest says 5 files and there are 2"):
        named(board, MEN, OLD)
    with pytest.raises(NoValidUpdate, match=f"no valid update {NEW}: it has no manifest"):
        named(board, MEN, NEW)


@pytest.mark.parametrize("name", ["../men", "", "x/../../y", "20191125.060000/sub"])
def test_naming_no_update_id_touches_nothing(board, name):
    with pytest.raises(NoValidUpdate, match="is not an update id"):
        named(board, MEN, name)


@pytest.mark.parametrize("feed", ["legacy/clicks", "legacy/clicks/v2.1"])
@pytest.mark.parametrize("key", ["", "2019-11-24"])
def test_version_and_partition_are_optional(board, feed, key):
    partition = Partition(Feed.parse(feed), key)
    write(board, NEW, partition=partition)
    assert require(latest(board, partition)).path == f"{feed}/{key}/{NEW}".replace("//", "/")
    assert list(partitions(board, partition.feed)) == [partition]


def test_a_newer_feed_version_is_reported_and_changes_nothing_for_consumers(board):
    write(board, OLD)
    for version in ("v2.0", "v10.1", "v0.9"):
        write(board, NEW, partition=Partition(Feed.parse(f"ads/shown/{version}"), MEN.key))
    assert require(latest(board, MEN)).id == OLD
    assert newer_versions(board, FEED) == (Feed("ads/shown", Version(2, 0)), Feed("ads/shown", Version(10, 1)))
    assert newer_versions(board, Feed.parse("ads/shown/v10.1")) == ()
    assert newer_versions(board, Feed.parse("ads/shown")) == ()


def test_reading_the_newest_valid_update_takes_three_requests(board):
    for day in range(10, 30):
        write(board, f"201911{day}.000000")
    counted = Counting.around(board)
    latest(counted.board, MEN)
    manifest = ("get", f"{MEN.path}/20191129.000000/_SUCCESS")
    requests = [("children", MEN.path), manifest, ("list", f"{MEN.path}/20191129.000000")]
    assert counted.requests == [*requests, *([manifest] if board._root else [])]


def test_a_skipped_update_without_a_manifest_takes_two_more_requests(board):
    write(board, OLD)
    write(board, NEW, None)
    counted = Counting.around(board)
    latest(counted.board, MEN)
    again = ["get"] if board._root else []
    assert [request for request, _ in counted.requests] == ["children", "get", "get", "list", *again, "list"]


def test_a_huge_manifest_is_not_read_whole(board):
    board.put("big", b"7" * 20_000_000)
    assert board.get("big", MANIFEST_LIMIT + 1) == b"7" * (MANIFEST_LIMIT + 1)


def test_an_update_that_is_invalidated_between_the_two_requests_is_not_served(board):
    write(board, NEW)
    counted = Counting.around(board, before={"list": lambda: board.delete([f"{MEN.path}/{NEW}/_SUCCESS"])})
    assert latest(counted.board, MEN).skipped[0].reason.startswith("it has no manifest")


def test_an_update_that_is_finished_between_the_two_requests_is_complete(board):
    """List files after reading the manifest; in the other order a complete update could look incomplete."""
    write(board, NEW, None, files=("a",))
    counted = Counting.around(board, before={"get": lambda: write(board, NEW, b"2", files=("b",))})
    assert len(require(latest(counted.board, MEN)).files) == 2


def test_an_invalidated_update_that_is_pruned_while_it_is_listed_is_not_served():
    """Remove one part, which makes the count right again, while earlier pages still show the manifest."""
    board = Blackboard.open("memory://")
    write(board, NEW, b"1100", files=[f"part-{number:04}" for number in range(1_100)])
    invalidate(board, MEN, NEW, how="file")
    paged = Paged.around(board)
    paged.between = lambda: board.delete([f"{MEN.path}/{NEW}/_SUCCESS", f"{MEN.path}/{NEW}/part-1099"])
    assert latest(paged.board, MEN).update is None
    assert board.files(f"{MEN.path}/{NEW}") != ()


def test_keys_that_look_alike_come_back_as_they_were_written(board):
    names = ("a b", "a%20b", "a+b", "é", "x=1&y", "~[z]", "q?#")
    write(board, NEW, str(len(names)).encode(), files=names)
    found = require(latest(board, MEN)).files
    assert {file.key.rsplit("/", 1)[-1] for file in found} == set(names)
    assert [board.get(file.key) for file in found] == [file.key.rsplit("/", 1)[-1].encode() for file in found]


def test_a_key_that_no_store_can_share_is_a_named_reason(local_board, tmp_path):
    write(local_board, OLD)
    write(local_board, NEW)
    (tmp_path / "black board" / MEN.path / NEW / "new\nline").touch()
    reading = latest(local_board, MEN)
    assert require(reading).id == OLD
    assert "has a character that not all stores allow" in reading.skipped[0].reason
    assert "\n" not in reading.skipped[0].reason


@pytest.mark.parametrize("name", [b"bad\tname", b"caf\xe9", b"\x7f"])
def test_a_partition_name_that_no_store_can_share_is_passed_over_and_named(local_board, tmp_path, caplog, name):
    write(local_board, OLD)
    (Path(tmp_path, "black board", "ads/shown/v1.0") / os.fsdecode(name)).mkdir()
    assert [*partitions(local_board, FEED)] == [MEN]
    assert "\ufffd" in caplog.text
    assert "these names are skipped: " in caplog.text


@pytest.mark.parametrize("name", ["bad\tname", "bad\nname", "bad\x07name", "\x7f"])
def test_a_name_on_s3_that_no_store_can_share_is_passed_over_and_named(s3_board, s3_url, s3_env, caplog, name):
    write(s3_board, OLD)
    _, _, bucket, prefix = s3_url.split("/")
    for key in (f"ads/shown/v1.0/{name}/x", f"{MEN.path}/{name}/x", f"_feed_assets/claims/{MEN.path}/{name}"):
        s3_env.client().put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=b"")
    assert [*partitions(s3_board, FEED)] == [MEN]
    assert "\ufffd" in caplog.text
    assert require(latest(s3_board, MEN)).id == OLD
    assert publish(s3_board, MEN, {"a": b"1"}, datetime.now(UTC)) == latest(s3_board, MEN).update


@pytest.mark.parametrize("name", ["_SUCCESS", "part-3"])
def test_a_link_that_leads_to_itself_spoils_its_own_update_alone(local_board, tmp_path, name):
    write(local_board, OLD)
    write(local_board, NEW, None if name == "_SUCCESS" else b"3")
    (tmp_path / "black board" / MEN.path / NEW / name).symlink_to(name)
    reading = latest(local_board, MEN)
    assert require(reading).id == OLD
    assert f"/{name}" in reading.skipped[0].reason
    assert "is a symbolic link" in reading.skipped[0].reason


def test_a_file_with_the_name_of_an_update_is_no_update(local_board):
    write(local_board, OLD)
    local_board.put(f"{MEN.path}/{NEW}", b"")
    with pytest.raises(NoValidUpdate, match=f"no valid update {NEW}: it has no manifest"):
        named(local_board, MEN, NEW)


def test_a_key_that_a_listing_on_s3_cannot_show_is_a_named_reason(s3_board, s3_url, s3_env):
    """Use control characters, which XML cannot hold: the listing shows another key, which cannot be read."""
    write(s3_board, OLD)
    write(s3_board, NEW, b"3")
    _, _, bucket, prefix = s3_url.split("/")
    s3_env.client().put_object(Bucket=bucket, Key=f"{prefix}/{MEN.path}/{NEW}/bell\x07", Body=b"")
    reading = latest(s3_board, MEN)
    assert require(reading).id == OLD
    assert "has a character that not all stores allow" in reading.skipped[0].reason


class TestDirectoryMarkers:
    """Count every object under the prefix; the marker of the prefix itself is not under it."""

    @pytest.fixture
    def marked(self, s3_board: Blackboard, s3_url, s3_env):
        def put(key):
            _, _, bucket, prefix = s3_url.split("/")
            s3_env.client().put_object(Bucket=bucket, Key=f"{prefix}/{MEN.path}/{key}", Body=b"")

        write(s3_board, NEW)
        return put

    def test_the_marker_of_the_update_itself_is_not_counted(self, s3_board, marked):
        marked(f"{NEW}/")
        assert len(require(latest(s3_board, MEN)).files) == 2

    def test_a_marker_below_the_update_counts_as_an_empty_file_does(self, s3_board, marked):
        marked(f"{NEW}/sub/")
        assert latest(s3_board, MEN).skipped[0].reason == "its manifest says 2 files and there are 3"

    def test_an_update_that_is_only_a_marker_has_no_manifest(self, s3_board, marked):
        marked("20191127.000000/")
        reading = latest(s3_board, MEN)
        assert (require(reading).id, reading.skipped[0].id) == (NEW, "20191127.000000")

    def test_a_counted_marker_of_a_folder_with_files_is_not_copied(self, s3_board, marked, tmp_path):
        marked(f"{NEW}/sub/")
        write(s3_board, NEW, b"4", files=("sub/a",))
        download(s3_board, require(latest(s3_board, MEN)), tmp_path / "out")
        assert sorted(tree(tmp_path / "out")) == ["part-1.csv", "part-2.csv", "sub/a"]

    def test_empty_folders_on_disk_are_no_objects(self, local_board, tmp_path):
        write(local_board, NEW)
        (tmp_path / "black board" / MEN.path / NEW / "sub").mkdir()
        (tmp_path / "black board" / MEN.path / "20191127.000000").mkdir()
        reading = latest(local_board, MEN)
        assert (require(reading).id, len(require(reading).files)) == (NEW, 2)
        assert reading.skipped[0].reason.startswith("it has no manifest")


def test_a_reading_passes_over_some_updates_that_are_not_valid_and_tells_of_more(board, monkeypatch):
    monkeypatch.setattr(reading, "MOST_SKIPPED", 3)
    write(board, OLD)
    for second in range(3):
        board.put(f"{MEN.path}/20300101.00000{second}/part", b"1")
    assert latest(board, MEN).update.id == OLD
    board.put(f"{MEN.path}/20300101.000003/part", b"1")
    with pytest.raises(UnreadableUpdate, match=r"more than 3 invalid updates that are newer .*20300101\.000003"):
        latest(board, MEN)
