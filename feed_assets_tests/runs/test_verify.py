"""Verification of our own updates: each has its turn, with two requests, and a failing store loses nothing."""

from collections.abc import Collection
from datetime import UTC, datetime
from itertools import count

import pytest
from obstore import exceptions

from feed_assets.core.feeds import Feed, Partition
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.write import invalidate, publish
from feed_assets.ledger import updates
from feed_assets.runs.services import Services
from feed_assets.runs.verify import FEEDS_PER_LOOK, ROTATION, verify, verify_all
from feed_assets_tests.support.counted_blackboards import Counting
from feed_assets_tests.support.ledger_records import sync

NOW = datetime(2019, 11, 25, 6, tzinfo=UTC)
SHOWN, TOTAL = Feed.parse("ads/shown/v1.0"), Feed.parse("ads/total/v1.0")


def no_spark():
    raise AssertionError("looking needs no Spark")


@pytest.fixture
def services(ledger) -> Services:
    return Services(Blackboard.open("memory://"), ledger, no_spark, lambda: NOW)


def never() -> bool:
    return False


def publish_all(services: Services, feed: Feed, keys: Collection[str]) -> dict[Partition, str]:
    """Publish an update of each partition, and record it in the ledger; return the ids."""
    made = [publish(services.board, Partition(feed, key), {"part": b"x"}, NOW) for key in keys]
    for update in made:
        sync(services.ledger, update.partition, update)
    return {update.partition: update.id for update in made}


def damage(services: Services, made: dict[Partition, str]) -> None:
    for partition, update_id in made.items():
        invalidate(services.board, partition, update_id)


def gone(services: Services, feeds: Collection[Feed], looks: int, out_of_time=never) -> set[Partition]:
    return {each.partition for _ in range(looks) for each in verify(services, feeds, feeds, out_of_time).gone}


def states(services: Services, made: dict[Partition, str]) -> set[str]:
    with services.ledger.read() as connection:
        rows = [updates.find(connection, *each) for each in made.items()]
    return {row.state for row in rows if row}


def test_every_partition_has_its_turn_within_one_round(services):
    made = publish_all(services, SHOWN, [f"{number:03}" for number in range(2 * ROTATION + 5)])
    damage(services, made)
    assert len(gone(services, [SHOWN, TOTAL], 1)) == ROTATION
    assert len(gone(services, [SHOWN, TOTAL], 2)) == ROTATION + 5


def test_every_feed_has_its_turn_within_one_round(services):
    feeds = [Feed.parse(f"ads/f{number}/v{number}.0") for number in range(2 * FEEDS_PER_LOOK + 1)]
    made = publish_all(services, feeds[-1], [""]) | publish_all(services, feeds[0], [""])
    damage(services, {at: each for at, each in made.items() if at.feed == feeds[-1]})
    assert [len(gone(services, feeds, 1)) for _ in range(3)].count(1) == 1


def test_verify_restarts_after_the_last_partition(services):
    made = publish_all(services, SHOWN, [f"{number:03}" for number in range(ROTATION + 1)])
    assert gone(services, [SHOWN], 2) == set()
    first = min(made)
    damage(services, {first: made[first]})
    assert gone(services, [SHOWN], 1) == {first}


def test_with_no_time_at_all_one_partition_has_its_turn_each_time(services):
    made = publish_all(services, SHOWN, "abc")
    damage(services, made)
    assert [len(gone(services, [SHOWN], 1, lambda: True)) for _ in range(3)] == [1, 1, 1]


def test_a_thorough_verify_finds_every_missing_update(services):
    made = publish_all(services, SHOWN, [f"{number:03}" for number in range(ROTATION + 1)])
    damage(services, made)
    assert {each.partition for each in verify_all(services, [SHOWN, TOTAL], [SHOWN, TOTAL]).gone} == made.keys()
    assert states(services, made) == {updates.INVALIDATED}


def test_verify_costs_two_requests_for_each_existing_partition(services):
    publish_all(services, SHOWN, "abc")
    counting = Counting.around(services.board)
    verify(Services(counting.board, services.ledger, no_spark, lambda: NOW), [SHOWN], [SHOWN], never)
    assert [name for name, _ in counting.requests] == ["get", "list"] * 3


@pytest.mark.parametrize("request_name", ["get", "list"])
def test_a_store_that_fails_has_lost_nothing(services, request_name):
    made = publish_all(services, SHOWN, "abc") | publish_all(services, TOTAL, "abc")
    damage(services, {at: each for at, each in made.items() if at == Partition(SHOWN, "b")})
    asked = count()

    def fail() -> None:
        if next(asked) != 1:
            raise exceptions.GenericError("connection refused")

    counting = Counting.around(services.board, {request_name: fail})
    failing = Services(counting.board, services.ledger, no_spark, lambda: NOW)
    found = verify(failing, [SHOWN, TOTAL], [SHOWN, TOTAL], never)
    assert [*found.problems] == [str(SHOWN), str(TOTAL)]
    assert "connection refused" in found.problems[str(TOTAL)]
    assert states(services, {at: each for at, each in made.items() if at.key != "b"}) == {updates.PUBLISHED}


def test_a_blackboard_without_any_of_the_feeds_is_another_one(services):
    made = publish_all(services, SHOWN, "abc")
    elsewhere = Blackboard.open("memory://")
    publish(elsewhere, Partition(Feed.parse("their/own/v1.0"), "a"), {"part": b"x"}, NOW)
    found = verify_all(Services(elsewhere, services.ledger, no_spark, lambda: NOW), [SHOWN, TOTAL], [SHOWN, TOTAL])
    assert "has none of the feeds declared here" in found.problems[str(SHOWN)]
    assert (found.gone, states(services, made)) == ([], {updates.PUBLISHED})


def test_a_wrong_blackboard_is_reported_at_each_verify_of_the_same_feed(services):
    publish_all(services, SHOWN, "a")
    publish_all(services, TOTAL, "a")
    elsewhere = Services(Blackboard.open("memory://"), services.ledger, no_spark, lambda: NOW)
    feeds = [SHOWN, TOTAL]
    told = [[*verify(elsewhere, feeds, feeds, never).problems] for _ in range(3)]
    assert told == [[str(SHOWN)]] * 3


def test_own_feeds_are_gone_if_foreign_feeds_exist(services):
    made, theirs = publish_all(services, SHOWN, "abc"), Feed.parse("their/own/v1.0")
    services.board.sweep(str(SHOWN))
    publish(services.board, Partition(theirs, "a"), {"part": b"x"}, NOW)
    assert {each.partition for each in verify_all(services, [SHOWN], [SHOWN, theirs]).gone} == made.keys()


def test_an_empty_feed_is_gone_if_other_feeds_exist(services):
    made, _ = publish_all(services, SHOWN, "abc"), publish_all(services, TOTAL, [""])
    services.board.sweep(str(SHOWN))
    assert len(verify_all(services, [SHOWN, TOTAL], [SHOWN, TOTAL]).gone) == len(made)
    assert states(services, made) == {updates.INVALIDATED}
