"""100 consumers in two code locations ask for 12 hours each: at most 5 % of these questions reach the store."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from feed_assets.core.errors import BlackboardError
from feed_assets.core.feeds import Partition
from feed_assets.feeds import write
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.ledger import discoveries
from feed_assets.runs.discover import RECENT, ROTATION, _Look, discover
from feed_assets.runs.services import Services
from feed_assets_tests.support.counted_blackboards import with_operations
from feed_assets_tests.support.progress import print_progress
from feed_assets_tests.support.two_locations import FIRST, RAW, Location

HOURS, HOUR, SECOND = 12, timedelta(hours=1), timedelta(seconds=1)


@pytest.fixture
def on_disk(local_board) -> tuple[Blackboard, Callable[[], int]]:
    """Return a folder, and a function that returns the number of operations on it."""
    board, operations = with_operations(local_board)
    return board, lambda: sum(action != "find the address" for action in operations)  # That reads no feed.


@pytest.fixture
def on_s3(through, s3_proxy) -> tuple[Blackboard, Callable[[], int]]:
    """Return a bucket behind a proxy, and a function that returns the number of requests."""
    through.sweep("web/raw")
    return through, lambda: len(s3_proxy.asked)


def asked_and_called(board: Blackboard, called: Callable[[], int], locations: list[Location]) -> tuple[int, int]:
    """Let 12 hours arrive, each before a tick of each location. Return the numbers of questions and of calls."""
    questions = calls = 0
    for number in range(HOURS):
        now = FIRST + (number + 1) * HOUR
        write.publish(board, Partition(RAW, f"{now - HOUR:%Y-%m-%d-%H:%M}"), {"part-1": b'{"k": "a"}\n'}, now)
        before = called()
        for location in locations:
            now += SECOND
            questions += len(location.tick(now))
        calls += called() - before
    print_progress(f"{questions:,} questions, {calls} calls of the store")
    return questions, calls


@pytest.fixture(params=["on_disk", "on_s3"])
def day(request, ledger) -> Callable[[], tuple[int, int]]:
    """Return a function that runs the day."""
    board, called = request.getfixturevalue(request.param)
    locations = [Location.of(name, 50, board, ledger) for name in ("ads", "shop")]
    return lambda: asked_and_called(board, called, locations)


def test_at_most_5_percent_of_the_questions_of_two_code_locations_reach_the_store(day):
    questions, calls = day()
    assert questions == 100 * HOURS == 1_200
    assert calls <= 0.05 * questions


def test_code_locations_that_share_nothing_miss_the_5_percent(day, monkeypatch):
    monkeypatch.setattr(discoveries, "fresh_by_others", lambda *_: set())
    questions, calls = day()
    assert calls > 0.05 * questions


def test_a_feed_of_many_partitions_is_shared_and_each_tick_alone_reads_the_store(on_disk, ledger):
    board, called = on_disk
    for number in range(RECENT + ROTATION + 10):
        write.publish(board, Partition(RAW, f"{FIRST + number * HOUR:%Y-%m-%d-%H:%M}"), {"part-1": b"1"}, FIRST)
    ads, shop = (Location.of(name, 1, board, ledger) for name in ("ads", "shop"))
    calls = list[int]()
    for location, seconds in ((ads, 0), (shop, 4), (ads, 4), (shop, 8), (ads, 12), (shop, 17)):
        before = called()
        location.tick(FIRST + 100 * HOUR + seconds * SECOND)
        calls.append(called() - before)
    assert [count > 0 for count in calls] == [True, False, True, False, True, True]


def test_another_store_or_batches_in_place_of_partitions_are_not_shared(on_disk, ledger, tmp_path):
    board, _ = on_disk
    write.publish(board, Partition(RAW, "2026-01-01-00:00"), {"part-1": b"1"}, FIRST)
    Location.of("ads", 1, board, ledger).tick(FIRST + HOUR)
    other, operations = with_operations(Blackboard.open((tmp_path / "other").as_uri(), create=True))
    services = Services(other, ledger, lambda: None, lambda: FIRST + HOUR)
    discover(services, [RAW], lambda: False, location="shop/made")
    assert f"list {RAW}/" in operations
    as_batches, operations = with_operations(board)
    services = Services(as_batches, ledger, lambda: None, lambda: FIRST + HOUR)
    discover(services, [RAW], lambda: False, {RAW}, location="shop/made")
    assert f"list {RAW}/" in operations


def test_a_code_location_that_cannot_read_a_feed_tries_it_in_each_tick(on_disk, ledger, monkeypatch):
    """Otherwise its alert would resolve whenever another code location has just read the feed."""
    board, _ = on_disk
    at = [FIRST + HOUR]
    services = Services(board, ledger, lambda: None, lambda: at[0])
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(_Look, "run", away)
            with pytest.raises(BlackboardError, match="away"):
                discover(services, [RAW], lambda: False, location="ads")
        at[0] += SECOND
        assert discover(services, [RAW], lambda: False, location="shop").is_complete
    assert discover(services, [RAW], lambda: False, location="ads").is_complete
    with ledger.read() as connection:
        assert discoveries.failed_before(connection, "ads") == set()


def away(_look):
    raise BlackboardError("the store is away")
