"""Writing and invalidating, the same on every store."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets.core.errors import BlackboardRefused, InvalidName, NoValidUpdate, UpdateAbandoned
from feed_assets.core.feeds import Feed, File, Partition
from feed_assets.feeds.read import download, latest, named, require
from feed_assets.feeds.write import claim, invalidate, listed, publish, seal
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.each_case import each_case

MEN = Partition(Feed.parse("ads/shown/v1.0"), "2019-11-24/men")
NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
ID, NEXT = "20191125.060000", "20191125.060001"
PARTS = {"part-1.csv": b"one", "sub/part-2.csv": b"three"}


def test_a_published_update_is_the_newest_valid_one(board):
    update = publish(board, MEN, PARTS, NOW)
    assert (update.id, [file.size for file in update.files]) == (ID, [3, 5])
    assert latest(board, MEN).update == update
    assert board.get(f"{update.path}/_SUCCESS") == b"2"


def test_files_are_published_from_disk(board, tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 12_000_000)
    update = publish(board, MEN, {"big": tmp_path / "big", "small": b""}, NOW)
    assert [file.size for file in require(latest(board, MEN)).files] == [12_000_000, 0]
    assert board.get(update.files[0].key) == b"x" * 12_000_000


def test_an_update_without_parts_can_be_published(board):
    assert publish(board, MEN, {}, NOW).files == ()
    assert require(latest(board, MEN)).id == ID


def test_publishing_in_one_partition_does_not_touch_another(board):
    publish(board, MEN, PARTS, NOW)
    women = publish(board, Partition(MEN.feed, "2019-11-24/women"), {"a": b""}, NOW)
    assert (women.id, require(latest(board, MEN)).id) == (ID, ID)


def test_a_slow_clock_does_not_hide_new_data(board):
    newest = publish(board, MEN, PARTS, NOW)
    later = publish(board, MEN, PARTS, NOW - timedelta(hours=3))
    assert (newest.id, later.id) == (ID, NEXT)
    assert require(latest(board, MEN)).id == NEXT


@pytest.mark.parametrize("there", ["part-1.csv", "_SUCCESS", "_temporary/0/x"])
def test_a_claim_is_greater_than_ids_of_unfinished_and_foreign_updates(board, there):
    board.put(f"{MEN.path}/20300101.000000/{there}", b"")
    assert claim(board, MEN, b"me", NOW) == "20300101.000001"


def test_a_claim_is_greater_than_claims_that_nothing_was_written_under(board):
    assert claim(board, MEN, b"fast clock", NOW + timedelta(minutes=1)) == "20191125.060100"
    assert claim(board, MEN, b"slow clock", NOW) == "20191125.060101"


def test_a_claim_leaves_no_trace_in_the_feed(board):
    claim(board, MEN, b"me", NOW)
    assert board.files("ads") == ()
    assert board.children("ads/shown/v1.0") == []


def test_a_claim_whose_reply_was_lost_is_recognised_by_its_token(board):
    claims = "_feed_assets/claims/ads/shown/v1.0/2019-11-24/men"
    sent = Counting.around(board, before={"create": lambda: board.create(f"{claims}/{ID}", b"me")})
    assert claim(sent.board, MEN, b"me", NOW) == ID


def test_a_claim_that_another_one_made_in_between_is_not_taken(board):
    claims = "_feed_assets/claims/ads/shown/v1.0/2019-11-24/men"
    raced = Counting.around(board, before={"create": lambda: board.create(f"{claims}/{ID}", b"other")})
    assert claim(raced.board, MEN, b"me", NOW) == NEXT


def test_a_partition_whose_ids_are_used_up_says_so(board):
    board.put(f"{MEN.path}/99991231.235959/_SUCCESS", b"0")
    with pytest.raises(UpdateAbandoned, match="no greater id is possible"):
        publish(board, MEN, PARTS, NOW)


@each_case("name", ["", "/a", "a/", "../a", "_SUCCESS", "_x", ".x", "sub/.crc", "a#1", "a//b", "é", "a\nb"])
def test_names_that_not_every_store_can_hold_are_refused_before_anything_is_written(board, name):
    with pytest.raises(InvalidName, match="part name"):
        publish(board, MEN, {"fine": b"", name: b""}, NOW)
    assert board.files("_feed_assets") == ()


@pytest.mark.parametrize("key", ["x" * 501, "/".join("abcdefghi")])
def test_a_partition_that_no_listing_would_show_is_not_claimed(board, key):
    with pytest.raises(InvalidName, match="partition key"):
        claim(board, Partition(Feed.parse("raw/men/v1.0"), key), b"me", NOW)
    assert board.files("_feed_assets") == ()


def written(board, names=("a", "b")):
    for name in names:
        board.put(f"{MEN.path}/{ID}/{name}", b"12")
    return [File(f"{MEN.path}/{ID}/{name}", 2) for name in names]


def test_sealing_twice_changes_nothing(board):
    expected = written(board)
    first = seal(board, MEN, ID, expected)
    counted = Counting.around(board)
    assert seal(counted.board, MEN, ID, expected) == first
    assert "put" not in dict(counted.requests)


def test_the_manifest_is_not_listed_as_a_file(board):
    expected = written(board)
    seal(board, MEN, ID, expected)
    assert [(file.key, file.size) for file in listed(board, MEN, ID)] == [(file.key, 2) for file in expected]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda board, path: board.put(f"{path}/c", b"x"), r"not written by this job \[.*/c'"),
        (lambda board, path: board.put(f"{path}/_temporary/0/x", b""), r"not written by this job \[.*_temporary"),
        (lambda board, path: board.delete([f"{path}/a"]), r"missing or altered \[.*/a'"),
        (lambda board, path: board.put(f"{path}/a", b"123"), r"missing or altered \[.*/a'"),
        (lambda board, path: board.put(f"{path}/_SUCCESS", b"7"), "already has a manifest that says b'7'"),
    ],
    ids=["foreign file", "dead job", "missing", "another size", "foreign manifest"],
)
def test_an_update_that_is_not_exactly_what_was_written_is_abandoned(board, change, message):
    expected = written(board)
    change(board, f"{MEN.path}/{ID}")
    with pytest.raises(UpdateAbandoned, match=message):
        seal(board, MEN, ID, expected)
    assert latest(board, MEN).update is None


@pytest.mark.parametrize("name", ["_temporary/0/part-0", ".part-0.crc", "_metadata", "sub/.hidden", "part#1"])
def test_names_of_unfinished_jobs_are_not_sealed(board, name):
    with pytest.raises(UpdateAbandoned, match="cannot be part of"):
        seal(board, MEN, ID, [File(f"{MEN.path}/{ID}/{name}", 2)])


def test_files_of_another_update_are_not_sealed(board):
    with pytest.raises(UpdateAbandoned, match="expected a key below this folder"):
        seal(board, MEN, NEXT, written(board))


def test_a_file_that_is_expected_twice_is_not_counted_twice(board):
    with pytest.raises(UpdateAbandoned, match="does not hold exactly the 3 files"):
        seal(board, MEN, ID, [*written(board), File(f"{MEN.path}/{ID}/a", 2)])


@pytest.mark.parametrize("step", ["children", "create", "put", "list"])
def test_a_writer_that_fails_at_any_step_leaves_no_valid_update(board, step):
    old = publish(board, MEN, PARTS, NOW)

    def refuse():
        raise BlackboardRefused(step)

    with pytest.raises(BlackboardRefused):
        publish(Counting.around(board, before={step: refuse}).board, MEN, {"a": b"new"}, NOW)
    assert latest(board, MEN).update == old
    assert publish(board, MEN, PARTS, NOW).id > old.id


@pytest.mark.parametrize("how", ["manifest", "file"])
def test_invalidating_gives_readers_the_update_before(board, how):
    old, new = publish(board, MEN, PARTS, NOW), publish(board, MEN, PARTS, NOW)
    invalidate(board, MEN, new.id, how=how)
    assert latest(board, MEN).update == old
    assert [skipped.id for skipped in latest(board, MEN).skipped] == [new.id]


@pytest.mark.parametrize("how", ["manifest", "file"])
@pytest.mark.parametrize("parts", [PARTS, {}])
def test_invalidating_twice_is_the_same_as_once(board, how, parts):
    update = publish(board, MEN, parts, NOW)
    invalidate(board, MEN, update.id, how=how)
    once = board.files(MEN.path)
    invalidate(board, MEN, update.id, how=how)
    assert board.files(MEN.path) == once
    assert latest(board, MEN).update is None


@pytest.mark.parametrize("how", ["manifest", "file"])
def test_the_only_update_invalidated_counts_as_missing_again(board, how):
    update = publish(board, MEN, PARTS, NOW)
    invalidate(board, MEN, update.id, how=how)
    with pytest.raises(NoValidUpdate):
        require(latest(board, MEN))
    with pytest.raises(NoValidUpdate):
        named(board, MEN, update.id)


def test_an_invalidated_update_id_is_not_reused(board):
    update = publish(board, MEN, {}, NOW)
    invalidate(board, MEN, update.id)
    assert publish(board, MEN, PARTS, NOW).id == NEXT


def test_one_more_file_does_not_make_an_invalid_update_valid(board, monkeypatch):
    written(board)
    board.put(f"{MEN.path}/{ID}/_SUCCESS", b"3")
    invalidate(board, MEN, ID, how="file")
    assert latest(board, MEN).update is None
    board.put(f"{MEN.path}/{NEXT}/_SUCCESS", b"1")  # Its one file is gone.
    invalidate(board, MEN, NEXT, how="file")
    assert latest(board, MEN).update is None
    monkeypatch.setattr(type(board), "delete", lambda *_: None)  # A kill before the manifest is removed.
    invalidate(board, MEN, NEXT)
    assert latest(board, MEN).update is None


def test_the_file_that_invalidates_is_one_more_also_if_one_of_that_name_was_counted(board):
    board.put(f"{MEN.path}/{ID}/_invalidated-0", b"")
    board.put(f"{MEN.path}/{ID}/_SUCCESS", b"1")
    invalidate(board, MEN, ID, how="file")
    assert latest(board, MEN).update is None


@pytest.mark.parametrize("how", ["manifest", "file"])
def test_a_missing_update_cannot_be_invalidated(board, how):
    publish(board, MEN, PARTS, NOW)
    with pytest.raises(NoValidUpdate, match="no update to invalidate"):
        invalidate(board, MEN, NEXT, how=how)
    with pytest.raises(InvalidName, match="is not an update id"):
        invalidate(board, MEN, "latest", how=how)
    assert board.files(f"{MEN.path}/{NEXT}") == ()


class TestLeftoversOnLocalDisk:
    """Leave the file `x#1`, which obstore writes before a rename, and never lists."""

    def leave(self, tmp_path, name):
        path = tmp_path / "black board" / MEN.path / ID / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")

    def test_they_count_as_they_do_for_every_other_reader(self, local_board, tmp_path):
        publish(local_board, MEN, PARTS, NOW)
        self.leave(tmp_path, "_SUCCESS#1")
        assert latest(local_board, MEN).skipped[0].reason == "its manifest says 2 files and there are 3"

    @pytest.mark.parametrize("name", ["a#1", "b#12", "_SUCCESS#1"])
    def test_our_own_are_removed_before_sealing(self, local_board, tmp_path, name):
        expected = written(local_board)
        self.leave(tmp_path, name)
        assert seal(local_board, MEN, ID, expected) == latest(local_board, MEN).update
        assert not (tmp_path / "black board" / MEN.path / ID / name).exists()

    def test_anothers_are_a_foreign_file(self, local_board, tmp_path):
        expected = written(local_board)
        self.leave(tmp_path, "theirs#1")
        with pytest.raises(UpdateAbandoned, match=r"theirs#1"):
            seal(local_board, MEN, ID, expected)

    def test_a_counted_one_cannot_be_copied_and_the_error_names_it(self, local_board, tmp_path):
        self.leave(tmp_path, "foreign#1")
        self.leave(tmp_path, "_SUCCESS")
        (tmp_path / "black board" / MEN.path / ID / "_SUCCESS").write_bytes(b"1")
        with pytest.raises(InvalidName, match=r"foreign#1.*Rename or remove it"):
            download(local_board, require(latest(local_board, MEN)), tmp_path / "out")
