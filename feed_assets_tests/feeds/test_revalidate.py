"""Revalidation of updates, the same on every store."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from feed_assets.core.errors import NotRevalidated
from feed_assets.feeds.read import latest, named
from feed_assets.feeds.write import invalidate, publish, revalidate
from feed_assets_tests.support.counted_blackboards import MEN, Counting

NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture(params=[{"a": b"one", "sub/b": b""}, {}], ids=["files", "no files"])
def update(board, request):
    return publish(board, MEN, request.param, NOW)


def by_manifest(board, update):
    invalidate(board, MEN, update.id, how="manifest")


def by_file(board, update):
    invalidate(board, MEN, update.id, how="file")


def by_both(board, update):
    by_file(board, update)
    by_manifest(board, update)


def by_two_files(board, update):
    by_file(board, update)
    board.put(f"{update.path}/anything", b"")


def by_another_number(board, update):
    board.put(f"{update.path}/_invalidated-0", b"")
    board.put(f"{update.path}/x", b"")
    board.put(f"{update.path}/_SUCCESS", str(len(update.files) + 1).encode())


WAYS = pytest.mark.parametrize("way", [by_manifest, by_file, by_both, by_two_files, by_another_number])


@WAYS
def test_an_invalidated_update_is_as_it_was_published(board, update, way):
    way(board, update)
    assert latest(board, MEN).update is None
    revalidate(board, update)
    assert named(board, MEN, update.id) == update


@WAYS
def test_only_the_last_request_makes_an_update_valid_again(board, update, way):
    """Kill at each request: readers find nothing, or the whole update."""
    way(board, update)
    seen = []

    def look():
        seen.append(latest(board, MEN).update)

    revalidate(Counting.around(board, before={"put": look, "delete": look}).board, update)
    look()
    assert seen[-1] == update
    assert set(seen[:-1]) <= {None}


@WAYS
def test_a_revalidation_can_be_killed_before_each_request_and_repeated(board, update, way):
    way(board, update)

    def die():
        raise Killed

    for name in ("get", "list", "put"):
        with suppress(Killed):
            revalidate(Counting.around(board, before={name: die}).board, update)
        assert latest(board, MEN).update in (None, update)
    revalidate(board, update)
    assert latest(board, MEN).update == update


def test_revalidating_a_valid_update_changes_nothing(board, update):
    counted = Counting.around(board)
    revalidate(counted.board, update)
    assert "put" not in dict(counted.requests)
    assert latest(board, MEN).update == update


@pytest.mark.parametrize("way", [by_manifest, by_file])
def test_a_revalidation_reports_differences_and_changes_nothing(board, way):
    update = publish(board, MEN, {"a": b"one", "b": b"two", "c": b"three"}, NOW)
    way(board, update)
    board.put(f"{update.path}/a", b"six")
    board.delete([f"{update.path}/b"])
    board.put(f"{update.path}/d", b"four")
    before = board.files(update.path)
    with pytest.raises(NotRevalidated) as refused:
        revalidate(board, update)
    assert f"the 3 files that the ledger recorded; gone: {update.path}/b; not recorded: {update.path}/d" in str(
        refused.value
    )
    assert f"of another size or etag: {update.path}/a" in str(refused.value)
    assert board.files(update.path) == before


def test_a_file_gone_and_a_mark_too_many_is_a_right_count_of_wrong_files(board):
    update = publish(board, MEN, {"a": b"one", "b": b"two"}, NOW)
    by_file(board, update)
    board.delete([f"{update.path}/a"])
    with pytest.raises(NotRevalidated, match="gone"):
        revalidate(board, update)


@WAYS
def test_files_that_invalidate_an_update_are_never_read_while_removed(board, update, way):
    way(board, update)
    seen, counted = [], Counting.around(board)

    def one_by_one(keys):
        for key in keys:
            counted.client.delete([key])
            seen.append(latest(board, MEN).update)

    counted.delete = one_by_one
    revalidate(counted.board, update)
    assert [found for found in seen if found not in (None, update)] == []
