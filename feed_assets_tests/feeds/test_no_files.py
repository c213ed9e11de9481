"""Links, FIFOs, sockets and devices on local disk are no files of a feed, whenever they appear."""

import os
import socket
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pytest

from feed_assets.core.errors import InvalidName, NotRevalidated, NoValidUpdate
from feed_assets.core.feeds import Partition
from feed_assets.feeds import removal
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.local_disk import DEPTH
from feed_assets.feeds.read import download, feeds, history, latest, require, walk
from feed_assets.feeds.write import invalidate, publish, revalidate
from feed_assets_tests.support.counted_blackboards import FEED, MEN, NEW, OLD, Counting, tree, write


def link(path: Path) -> None:
    path.symlink_to(path.parents[-2] / "etc" / "passwd")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:  # A path of a socket is short: it is made here, and moved there.
        made.bind(short := f"{tempfile.gettempdir()}/feed-assets-{os.getpid()}")
    Path(short).rename(path)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))  # /dev/null.
    except PermissionError:  # Nobody but root makes one.
        os.mkfifo(path)


MADE = [link, link_to_nothing, os.mkfifo, listening, device]
KINDS = "symbolic link|FIFO|socket|device"


@pytest.fixture
def partition(local_board: Blackboard, tmp_path: Path) -> Path:
    """Return the folder of a partition with two updates; a test that would hang is ended."""
    write(local_board, OLD)
    write(local_board, NEW, b"3")
    return tmp_path / "black board" / MEN.path


@pytest.mark.parametrize("make", MADE)
def test_an_update_with_a_special_file_is_invalid_with_the_reason(local_board, partition, make):
    make(partition / NEW / "part-3.csv")
    reading = latest(local_board, MEN)
    assert require(reading).id == OLD
    assert f"{NEW}/part-3.csv is a" in reading.skipped[0].reason
    assert any(kind in reading.skipped[0].reason for kind in KINDS.split("|"))
    assert "part-3.csv" not in {file.key.rsplit("/")[-1] for file in local_board.files(MEN.path)}


@pytest.mark.parametrize("make", MADE)
def test_a_special_file_outside_of_the_count_is_ignored_and_not_copied(local_board, partition, tmp_path, make):
    local_board.put(f"{MEN.path}/{NEW}/_SUCCESS", b"2")
    make(partition / NEW / "more.csv")
    download(local_board, require(latest(local_board, MEN)), tmp_path / "copy")
    assert sorted(tree(tmp_path / "copy")) == ["part-1.csv", "part-2.csv"]


@pytest.mark.parametrize("make", MADE)
def test_a_special_file_is_not_served_and_is_named(local_board, partition, tmp_path, make):
    key = f"{MEN.path}/{NEW}/part-3.csv"
    make(partition / NEW / "part-3.csv")
    for read in (local_board.get, local_board.stream, lambda key: local_board.download(key, tmp_path / "copy")):
        with pytest.raises(InvalidName, match=f"part-3.csv is a ({KINDS})"):
            read(key)
    local_board.delete([key])
    assert not os.path.lexists(partition / NEW / "part-3.csv")
    assert Path("/etc/passwd").exists()


@pytest.mark.parametrize("make", MADE)
def test_a_special_file_is_no_manifest(local_board, partition, make):
    (partition / NEW / "_SUCCESS").unlink()
    make(partition / NEW / "_SUCCESS")
    reading = latest(local_board, MEN)
    assert require(reading).id == OLD
    assert "_SUCCESS is a" in reading.skipped[0].reason


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder outside of the blackboard that looks like an update."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name, content in (("part-1.csv", "a"), ("_SUCCESS", "1")):
        (folder / name).write_text(content)
    return folder


def test_deletes_do_not_follow_a_link_in_place_of_an_update(local_board, partition, outside):
    newest = "20191127.060000"
    for change in (
        lambda: local_board.sweep(f"{MEN.path}/{newest}"),
        lambda: removal.remove(local_board, MEN, newest),
        lambda: invalidate(local_board, MEN, newest),
        lambda: invalidate(local_board, MEN, newest, how="file"),
        lambda: local_board.delete([f"{MEN.path}/{newest}/part-1.csv"]),
        lambda: local_board.put(f"{MEN.path}/{newest}/part-2.csv", b""),
        lambda: local_board.put_chunks(f"{MEN.path}/{newest}/part-2.csv", [b""]),
        lambda: local_board.create(f"{MEN.path}/{newest}/part-2.csv", b""),
        lambda: local_board.sweep(f"{MEN.path}/{newest}/below"),
    ):
        if not os.path.lexists(partition / newest):
            (partition / newest).symlink_to(outside)
        with suppress(InvalidName, NoValidUpdate):  # Refused, or done to the link alone.
            change()
        assert tree(outside) == {"part-1.csv": b"a", "_SUCCESS": b"1"}


def test_a_sweep_removes_links_and_not_their_targets(local_board, partition, outside):
    (partition / NEW / "folder").symlink_to(outside)
    (partition / NEW / "file").symlink_to(outside / "part-1.csv")
    os.mkfifo(partition / NEW / "fifo")
    assert local_board.sweep(f"{MEN.path}/{NEW}") == 3
    assert not (partition / NEW).exists()
    assert len(tree(outside)) == 2


def test_an_update_with_a_link_cannot_be_made_valid_again(local_board, partition, outside):
    update = publish(local_board, MEN, {"a": b"1"}, datetime.now(UTC))
    invalidate(local_board, MEN, update.id)
    (partition / update.id / "a").unlink()
    (partition / update.id / "a").symlink_to(outside / "part-1.csv")
    with pytest.raises(NotRevalidated, match="gone"):
        revalidate(local_board, update)


def test_links_to_folders_are_neither_feeds_nor_partitions_and_loops_end(local_board, partition, tmp_path):
    root = tmp_path / "black board"
    (root / "ads" / "linked").symlink_to(root / "ads" / "shown")
    (root / "ads" / "shown" / "v2.0").symlink_to(root / "ads" / "shown" / "v1.0")
    (root / "ads" / "shown" / "v1.0" / "2019-11-25").symlink_to("2019-11-24")
    (partition.parent / "up").symlink_to("..")
    (partition / "20191127.060000").symlink_to(NEW)
    assert [str(feed) for feed in feeds(local_board)] == ["ads/shown/v1.0"]
    walked = [*walk(local_board, FEED)]
    assert [found for found in walked if isinstance(found, Partition)] == [MEN]
    named = {found.id: found.reason for found in walked if not isinstance(found, Partition)}
    assert named.keys() == {"2019-11-25", "2019-11-24/up", "2019-11-24/men/20191127.060000"}
    assert set(named.values()) == {"a symbolic link, which is not part of a feed and is not followed"}
    assert [found.id for found in history(local_board, MEN)] == [NEW, OLD]
    assert len(local_board.files("")) == 6


def test_hard_links_are_files_and_the_root_may_be_a_link(local_board, partition, tmp_path):
    os.link(partition / NEW / "part-1.csv", partition / NEW / "part-3.csv")
    (tmp_path / "mount").symlink_to(tmp_path / "black board")
    (tmp_path / "above").symlink_to(tmp_path)
    for url in (local_board.url, (tmp_path / "mount").as_uri(), f"{(tmp_path / 'above').as_uri()}/black%20board"):
        board = Blackboard.open(url)
        assert require(latest(board, MEN)).id == NEW
        assert board.get(f"{MEN.path}/{NEW}/part-3.csv") == b"part-1.csv"
        publish(board, MEN, {"a": b"1"}, datetime.now(UTC))
        board.sweep(f"{MEN.path}/{latest(board, MEN).update.id}")


def test_a_folder_that_becomes_a_link_between_listing_and_reading_is_not_followed(local_board, partition, outside):
    (outside / "part-2.csv").write_text("secret")

    def swap() -> None:
        if not (partition / NEW).is_symlink():
            (partition / NEW).rename(partition / "aside")
            (partition / NEW).symlink_to(outside)

    local_board.put(f"{MEN.path}/{NEW}/_SUCCESS", b"2")
    update = require(latest(local_board, MEN))
    swapped = Counting.around(local_board, {"get": swap}).board
    with pytest.raises(InvalidName, match="is a symbolic link"):
        swapped.get(update.files[1].key)


def test_a_fifo_that_appears_between_listing_and_reading_holds_nobody(local_board, partition):
    key, done = f"{MEN.path}/{NEW}/part-1.csv", Event()

    def swap() -> None:
        (partition / NEW / "part-1.csv").unlink(missing_ok=True)
        os.mkfifo(partition / NEW / "part-1.csv")

    def read() -> None:
        with pytest.raises(InvalidName, match="is a FIFO"):
            Counting.around(local_board, {"get": swap}).board.get(key)
        done.set()

    Thread(target=read, daemon=True).start()
    assert done.wait(10)


def test_a_tree_as_deep_as_is_looked_at_is_listed_and_swept(local_board, tmp_path):
    folder = os.open(tmp_path / "black board", os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    assert [file.key.count("/") for file in local_board.files("d")] == [DEPTH]
    assert local_board.sweep("d") == 1


def test_etags_are_those_that_obstore_gives(local_board, partition):
    import obstore

    store = local_board._client._store
    for file in local_board.files(MEN.path):
        assert obstore.head(store, file.key)["e_tag"] == file.etag
        served, _ = local_board.stream(file.key)
        assert served == file


def test_a_file_that_is_cut_while_it_is_read_ends_there(local_board, partition):
    key = f"{MEN.path}/{NEW}/part-1.csv"
    _, chunks = local_board.stream(key, 2)
    (partition / NEW / "part-1.csv").write_bytes(b"")
    assert b"".join(chunks) == b""
    cut = Counting.around(local_board, {}).board
    found = cut._client.get(key, 5)
    assert found.bytes() == b""
    assert local_board.get(key, 0) == b""
