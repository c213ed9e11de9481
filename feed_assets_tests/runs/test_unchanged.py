"""Known partitions of a foreign feed that are unchanged need no visit, and changes are found."""

import os
from itertools import count

import pytest

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate, publish
from feed_assets.ledger import updates
from feed_assets.runs.discover import RECENT, ROTATION, discover
from feed_assets.runs.services import Services
from feed_assets_tests.support.build_lake import NOW
from feed_assets_tests.support.counted_blackboards import with_operations

HOUR, OTHER = "2026-01-01-00:00", "2026-01-01-01:00/men"


_numbers = count()


@pytest.fixture(params=["disk", "s3"])
def board(request, s3_board, tmp_path):
    return s3_board if request.param == "s3" else Blackboard.open(tmp_path.as_uri())


@pytest.fixture
def world(board, ledger):
    """Return services where a feed of two partitions is known."""
    feed = Feed.parse(f"unchanged/{os.getpid()}-{next(_numbers)}/v1.0")
    services = Services(board, ledger, lambda: None, lambda: NOW)
    for key in (HOUR, OTHER):
        publish(board, Partition(feed, key), {"a": b"1", "b": b"2"}, NOW)
    look(services, feed)
    return services, feed


def look(services: Services, feed: Feed) -> list[str]:
    """Discover once, and return the operations on the blackboard."""
    board, operations = with_operations(services.board)
    discover(Services(board, services.ledger, services.maker, services.now), [feed], lambda: False)
    return [action.split()[0] for action in operations]


def newest(services: Services, feed: Feed, key: str) -> updates.UpdateRow | None:
    with services.ledger.read() as connection:
        return updates.newest(connection, [Partition(feed, key)]).get(Partition(feed, key))


def test_an_unchanged_feed_costs_two_listings_and_one_manifest(world):
    services, feed = world
    assert look(services, feed) == ["list", "list", "read"]
    for number in range(RECENT + ROTATION - 2):
        publish(services.board, Partition(feed, f"2026-01-02-{number:02}"), {"a": b"1"}, NOW)
    is_on_disk = services.board.url.startswith("file:")
    assert look(services, feed) == ["list", "list", *["read", "list"][: 1 + is_on_disk] * 48, "read"]
    assert look(services, feed) == ["list", "list", "read"]


def test_a_newer_update_is_found(world):
    services, feed = world
    for key in (HOUR, OTHER):
        new = publish(services.board, Partition(feed, key), {"a": b"3"}, NOW)
        look(services, feed)
        assert newest(services, feed, key).id == new.id


def test_an_update_that_is_invalid_now_is_found(world):
    services, feed = world
    for key in (HOUR, OTHER):
        invalidate(services.board, Partition(feed, key), newest(services, feed, key).id)
        look(services, feed)
        assert newest(services, feed, key) is None


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_file_that_is_another_one_now_is_found(world, name):
    services, feed = world
    before = newest(services, feed, HOUR)
    services.board.put(f"{feed}/{HOUR}/{before.id}/{name}", b"9")
    look(services, feed)
    found = newest(services, feed, HOUR)
    assert found is None if name == "c" else found.version != before.version


def test_a_partition_beside_a_known_one_is_found(world):
    services, feed = world
    publish(services.board, Partition(feed, "2026-01-01-01:00/women"), {"a": b"3"}, NOW)
    look(services, feed)
    assert newest(services, feed, "2026-01-01-01:00/women")


def test_one_of_several_partitions_of_a_name_that_is_gone_is_found(world):
    services, feed = world
    publish(services.board, Partition(feed, "2026-01-01-01:00/women"), {"a": b"3"}, NOW)
    look(services, feed)
    services.board.sweep(f"{feed}/{OTHER}")
    look(services, feed)
    assert newest(services, feed, "2026-01-01-01:00/women")


def test_a_manifest_that_was_rewritten_in_place_is_found_some_looks_later(world):
    services, feed = world
    services.board.put(f"{feed}/{HOUR}/{newest(services, feed, HOUR).id}/_SUCCESS", b"3")
    looks = 0
    while newest(services, feed, HOUR) and looks < 100:
        look(services, feed)
        looks += 1
    assert looks < 100


def test_an_update_of_more_than_a_page_is_visited_in_full(world):
    services, feed = world
    publish(services.board, Partition(feed, "2026-01-03"), {f"{n:04}": b"1" for n in range(1000)}, NOW)
    look(services, feed)
    assert len(look(services, feed)) > 3
    new = publish(services.board, Partition(feed, HOUR), {"a": b"3"}, NOW)
    look(services, feed)
    assert newest(services, feed, HOUR).id == new.id
