"""A blackboard that is not the place's own gets no copy: the source, another place, a disk that is not mounted."""

import json
import shutil

import pytest

from feed_assets.core.errors import BlackboardMissing, InvalidSetting
from feed_assets.core.feeds import Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger.database import open_ledger
from feed_assets.replication.place_marks import MARK, check_mark, check_place, mark_of
from feed_assets.replication.places import open_place
from feed_assets.settings import Settings
from feed_assets_tests.replication.two_ends import SALES, Ends, place_on, visible, wired


def test_the_source_under_another_endpoint_stays_as_it_is(s3_board, s3_url, s3_env, ledger, monkeypatch):
    host = "localhost" if "127.0.0.1" in s3_env.endpoint else "127.0.0.1"
    endpoint = f"http://{host}:{s3_env.endpoint.rpartition(':')[2]}"
    ends = Ends(s3_board, place_on(Blackboard.open(s3_url, endpoint=endpoint)), ledger)
    ends.publish()
    before = visible(ends.source)

    assert ends.replicate().failed == 1
    assert "our own blackboard" in (ends.waiting()[0].error or "")
    assert visible(ends.source) == before


def test_a_folder_is_the_place_of_one_data_center(ends):
    ends.publish()
    ends.replicate()
    other = place_on(ends.place.board, "c")
    assert ends.replicate(other).failed == 1
    assert "the blackboard of 'b'" in (ends.waiting(other)[0].error or "")
    assert visible(ends.place.board) == visible(ends.source)

    ends.place.board.delete([MARK])
    ends.settle(other)
    assert not ends.waiting(other)


def test_a_folder_is_the_place_of_one_project(ends, tmp_path):
    ends.publish()
    ends.replicate()
    before = visible(ends.place.board)
    source = Blackboard.open((tmp_path / "other project").as_uri(), create=True)
    other = Ends(source, ends.place, open_ledger(f"sqlite:///{tmp_path / 'other.db'}"))
    other.publish()
    assert other.replicate().failed == 1
    assert "the blackboard of another project" in (other.waiting()[0].error or "")
    assert visible(ends.place.board) == before
    with pytest.raises(InvalidSetting, match="of another project"):
        check_mark(other.services, other.place, mark_of(other.place))

    rebuilt = Ends(ends.source, ends.place, open_ledger(f"sqlite:///{tmp_path / 'rebuilt.db'}"))
    rebuilt.publish()
    assert rebuilt.replicate().failed == 0


def test_a_disk_that_is_not_mounted_is_not_filled_and_a_new_one_is_repaired(ends, tmp_path):
    ends.publish()
    ends.replicate()
    (tmp_path / "place b").rename(tmp_path / "disk")
    (tmp_path / "place b").mkdir()
    other = ends.publish(Partition(SALES, "2026-02-01"))

    assert ends.replicate().failed == 1
    assert "mount its disk" in (ends.waiting()[0].error or "")
    assert not [*(tmp_path / "place b").iterdir()]

    (tmp_path / "place b").rmdir()
    (tmp_path / "disk").rename(tmp_path / "place b")
    ends.settle()
    assert visible(ends.place.board, other.partition) == visible(ends.source, other.partition)

    shutil.rmtree(tmp_path / "place b")
    (tmp_path / "place b").mkdir()
    with pytest.raises(BlackboardMissing):
        check_place(ends.services, ends.place)
    check_place(ends.services, ends.place, is_new=True)
    check_place(ends.services, ends.place)


def test_a_place_that_is_away_is_asked_once_for_all_partitions(ends):
    board, wire = wired(ends.place.board)
    for day in range(1, 9):
        ends.publish(Partition(SALES, f"2026-02-0{day}"))

    def refuse(_operation: str, _key: str) -> None:
        raise OSError("no route to host")

    wire.before = refuse
    assert ends.replicate(place_on(board)).failed == 8
    assert wire.operations == ["get"]
    wire.before = lambda *_: None
    ends.clock.pass_(seconds=5)
    assert ends.replicate(place_on(board)).done == 8


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:///mnt/b", "file:///mnt/b/"),
        ("file:///mnt/b", "file:///mnt/x/../b"),
        ("file:///mnt/b", "file:///mnt/b/inner"),
        ("s3://lake/b", "s3://lake/b/inner"),
        ("s3://lake", "s3://lake/b"),
    ],
)
def test_two_data_centers_do_not_share_a_blackboard(one, other, monkeypatch):
    def centers(*urls: str) -> None:
        by_name = {f"b{at}": {"url": url, "datasets": ["*"]} for at, url in enumerate(urls)}
        monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", json.dumps(by_name))

    centers(one, other)
    with pytest.raises(InvalidSetting, match="'b0' and 'b1' have one url, or one inside the other"):
        Settings()
    centers(f"{one}-2", other)
    assert Settings()


@pytest.mark.parametrize("inner", ["source", "place"])
def test_a_place_is_not_inside_the_source_nor_around_it(local_board, s3_board, s3_env, inner, monkeypatch):
    for board in (local_board, s3_board):
        below = f"{board.url}/inner"
        if board is local_board:
            board.put("inner/n.csv", b"")
        source, url = (Blackboard.open(below, endpoint=s3_env.endpoint), board.url)
        if inner == "place":
            source, url = board, below
        center = f'{{"b": {{"url": "{url}", "endpoint": "{s3_env.endpoint}", "datasets": ["*"]}}}}'
        monkeypatch.setenv("FEED_ASSETS_DATA_CENTERS", center)
        with pytest.raises(InvalidSetting, match="inside our own blackboard"):
            open_place(Settings(), "b", source)
        neighbor = Blackboard.open(f"{board.url}-2", endpoint=s3_env.endpoint, create=True)
        assert open_place(Settings(), "b", neighbor)
