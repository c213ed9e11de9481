"""Removing old updates while others read and write, the same on every store."""

from datetime import timedelta

import pytest

from feed_assets.core.errors import NoValidUpdate, UpdateChanged, UpdatePruned
from feed_assets.core.feeds import Partition, parse_update_id
from feed_assets.feeds import read, removal
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.read import download, latest, named
from feed_assets.feeds.write import publish
from feed_assets.runs.services import utc_now
from feed_assets_tests.support.counted_blackboards import FEED, MEN, NEW, OLD, Counting, write

OLDEST = "20191124.060000"
NEWEST = "20191127.060000"


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def three(board):
    for update_id in (OLDEST, OLD, NEW):
        write(board, update_id)
    return board


def moment(update_id, seconds=0):
    return parse_update_id(update_id) + timedelta(seconds=seconds)


def pruned(board, *update_ids, kept=NEW):
    removal.promise(board, MEN, kept)
    for update_id in update_ids:
        assert removal.remove(board, MEN, update_id)


def seen(board):
    return [(each.id, each.valid, each.written is not None) for each in removal.find(board, MEN)]


def test_every_update_is_found_with_the_last_write_of_those_that_are_not_valid(three):
    write(three, NEWEST, b"5")
    assert seen(three) == [(NEWEST, False, True), (NEW, True, False), (OLD, True, False), (OLDEST, True, False)]
    written = removal.find(three, MEN)[0].written
    assert written is not None
    assert abs(utc_now() - written) < timedelta(minutes=10)


def test_a_removed_update_leaves_nothing_behind(three):
    pruned(three, OLDEST, OLD)
    assert {file.key.split("/")[-2] for file in three.files(MEN.path)} == {NEW}
    assert latest(three, MEN).update.id == NEW


def test_removing_again_changes_nothing(three):
    pruned(three, OLD)
    pruned(three, OLD)
    assert {file.key.split("/")[-2] for file in three.files(MEN.path)} == {OLDEST, NEW}


@pytest.mark.parametrize("update_id", [NEW, NEWEST])
def test_an_update_without_a_newer_valid_one_is_not_removed(three, update_id):
    write(three, NEWEST, None)
    assert not removal.remove(three, MEN, update_id)
    assert three.children(MEN.path) == [OLDEST, OLD, NEW, NEWEST]


@pytest.mark.parametrize("manifest", [b"2", b"1"])
@pytest.mark.parametrize("board", ["memory", "s3"], indirect=True)
def test_a_removal_killed_at_any_request_never_leaves_a_torn_update(three, manifest):
    """Begin with an invalid update (manifest 1, two files): removing one file must not make it valid.

    One file comes before the manifest in the order of names, in which a store removes what is below a prefix.
    """
    three.sweep(f"{MEN.path}/{OLD}")
    write(three, OLD, manifest, files=("0.csv", "part-1.csv"))
    deleted = []

    class Dying(Counting):
        def delete(self, keys, /):
            for key in keys[:1]:
                self.client.delete([key])
                deleted.append(key)
                raise Killed

    while three.files(f"{MEN.path}/{OLD}"):
        with pytest.raises(Killed):
            removal.remove(Dying.around(three).board, MEN, OLD)
        assert latest(three, MEN, moment(OLD)).update.id == OLDEST
        if deleted[-1:] == deleted[-2:-1]:  # The manifest again: go on from there.
            three.delete([three.files(f"{MEN.path}/{OLD}")[0].key])
    assert deleted[0] == f"{MEN.path}/{OLD}/_SUCCESS"


def test_a_removal_killed_after_the_manifest_is_finished_by_the_next(three):
    class Dying(Blackboard):
        def sweep(self, prefix):
            raise Killed

    with pytest.raises(Killed):
        removal.remove(Dying(three.url, three._client, three._root), MEN, OLD)
    assert len(three.files(f"{MEN.path}/{OLD}")) == 2
    assert latest(three, MEN, moment(OLD)).update.id == OLDEST
    pruned(three, OLD)
    assert three.files(f"{MEN.path}/{OLD}") == ()


def test_history_from_what_was_promised_on_is_read_as_before(three):
    write(three, NEWEST)
    pruned(three, OLDEST, OLD)
    assert latest(three, MEN, moment(NEW)).update.id == NEW
    assert latest(three, MEN, moment(NEWEST, -1)).update.id == NEW
    assert latest(three, MEN, moment(NEWEST)).update.id == NEWEST


@pytest.mark.parametrize("gone", [(OLDEST, OLD), (OLD,), ()], ids=["all", "a survivor is older", "none yet"])
def test_a_moment_before_that_is_refused_rather_than_answered_with_an_older_update(three, gone):
    pruned(three, *gone)
    for asked in (moment(NEW, -1), moment(OLD), moment(OLDEST, -1)):
        with pytest.raises(UpdatePruned, match=f"valid updates before {NEW} were pruned"):
            latest(three, MEN, asked)


def test_a_time_with_only_invalid_and_pruned_updates_is_refused(three):
    pruned(three, OLD)
    three.delete([f"{MEN.path}/{NEW}/_SUCCESS"])
    assert latest(three, MEN).update.id == OLDEST
    with pytest.raises(UpdatePruned, match=f"left up to this time is {OLDEST}"):
        latest(three, MEN, moment(NEW))


def test_history_that_was_never_pruned_has_no_beginning(three):
    assert latest(three, MEN, moment(OLDEST, -1)).update is None


def test_reading_a_pruned_update_by_name_says_that_it_was_pruned(three):
    pruned(three, OLDEST, OLD)
    with pytest.raises(NoValidUpdate, match=rf"{OLD}: .*\(updates before {NEW} were pruned\)"):
        named(three, MEN, OLD)
    with pytest.raises(NoValidUpdate, match=f"{NEWEST}: it has no manifest: still being written, .*invalidated. Read"):
        named(three, MEN, NEWEST)


def test_the_greatest_promise_holds_and_the_others_are_tidied_away(three):
    for kept in (OLD, NEW, OLDEST):
        removal.promise(three, MEN, kept)
    assert read.kept_from(three, MEN) == NEW
    removal.tidy(three, MEN)
    assert read.promises(three, MEN) == [NEW]


def test_promises_of_partitions_below_are_others(board):
    whole = Partition(FEED)
    removal.promise(board, MEN, NEW)
    assert read.kept_from(board, whole) is None
    removal.tidy(board, whole)
    assert read.kept_from(board, MEN) == NEW


def test_a_reader_whose_listing_is_overtaken_finds_the_newer_update(three):
    """List three updates, then publish a newer one and remove all three before the newest of them is read."""
    happened = []

    def overtake():
        if not happened:
            happened.append(True)
            write(three, NEWEST)
            pruned(three, OLDEST, OLD, NEW, kept=NEWEST)

    overtaken = Counting.around(three, before={"get": overtake})
    assert latest(overtaken.board, MEN).update.id == NEWEST


def test_a_reader_who_passed_over_what_was_sealed_then_does_not_fall_back_too_far(three):
    """Seal the newest update just after it was seen unfinished, and prune the previous one."""
    write(three, NEWEST, None)
    gets = []

    def overtake():
        gets.append(True)
        if len(gets) == 2:
            three.put(f"{MEN.path}/{NEWEST}/_SUCCESS", b"2")
            pruned(three, OLD, NEW, kept=NEWEST)

    overtaken = Counting.around(three, before={"get": overtake})
    assert latest(overtaken.board, MEN).update.id == NEWEST


def test_a_copy_of_listed_files_is_complete_or_a_named_error(three, tmp_path):
    found = named(three, MEN, OLD)
    download(three, found, tmp_path / "before")
    pruned(three, OLD)
    with pytest.raises(UpdateChanged, match="is gone since it was listed"):
        download(three, found, tmp_path / "after")
    assert not (tmp_path / "after").exists()


def test_a_prune_during_a_copy_leaves_no_partial_copy(three, tmp_path):
    found = named(three, MEN, OLD)
    gets = []

    def prune_before_the_last():
        gets.append(True)
        if len(gets) == len(found.files):
            pruned(three, OLD)

    cut = Counting.around(three, before={"get": prune_before_the_last})
    with pytest.raises(UpdateChanged):
        download(cut.board, found, tmp_path / "copy")
    assert [*tmp_path.glob("copy*"), *tmp_path.glob(".copy*")] == []


def test_a_publisher_continues_beside_a_prune(three):
    published = publish(three, MEN, {"a": b""}, moment(NEW))
    pruned(three, OLDEST, OLD, NEW, kept=published.id)
    assert latest(three, MEN).update == published
    assert publish(three, MEN, {"a": b""}, moment(OLDEST)).id > published.id
