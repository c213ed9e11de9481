"""The list of what a change may have made buildable: nothing on it is ever lost, and nothing stays for nothing."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import FeedAssetsError
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.readiness import State, Verdict
from feed_assets.ledger.due import AWAIT, Due, arrived, await_again, fan_out, fanned_out, look, settle
from feed_assets.ledger.tables import due as table
from feed_assets_tests.ledger.records import MINUTE, NOW, SHOWN

FEED = Feed.parse("ads/effectiveness/v1.0")
OTHER = Feed.parse("ads/effectiveness_daily/v1.0")
WAITING = [
    State.WAITS_FOR_INPUT,
    State.WAITS_FOR_QUALITY,
    State.WAITS_FOR_LATE_DATA,
    State.WAITS_FOR_A_PERSON,
]


def day(number: int, changed: int, consumer: Feed = FEED) -> Due:
    return Due(consumer, Partition(consumer, f"2019-11-{number}"), changed)


def verdict(item: Due, state: State, look_again=None) -> Verdict:
    return Verdict(item.partition, state, f"because it {state}", look_again=look_again)


def looked(ledger, now=NOW, consumers=(FEED, OTHER), limit=100):
    with ledger.read() as connection:
        return look(connection, consumers, now, limit)


def rows(ledger):
    with ledger.read() as connection:
        found = connection.execute(sa.select(table).order_by(table.c.feed, table.c.partition))
        return [(row.partition, row.changed, row.since, row.look_at, row.state, row.reason) for row in found]


def cursor(ledger, consumer=FEED):
    with ledger.read() as connection:
        return fanned_out(connection, consumer)


def test_what_a_change_affects_is_looked_at_at_once(ledger):
    fan_out(ledger, FEED, [day(24, 1), day(25, 1)], 1, NOW)
    assert looked(ledger) == (day(24, 1), day(25, 1))
    assert cursor(ledger) == 1


def test_a_new_consumer_starts_at_the_first_change(ledger):
    fan_out(ledger, FEED, [], 7, NOW)
    assert (cursor(ledger), cursor(ledger, OTHER)) == (7, 0)


def test_fanning_out_again_changes_nothing(ledger):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    before = rows(ledger)
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    assert rows(ledger) == before


def test_a_fan_out_that_dies_on_the_way_is_done_again_as_a_whole(ledger):
    def dying():
        yield day(24, 1)
        raise FeedAssetsError

    with pytest.raises(FeedAssetsError):
        fan_out(ledger, FEED, dying(), 2, NOW)
    assert (rows(ledger), cursor(ledger)) == ([], 0)


def test_a_process_that_is_behind_moves_neither_the_cursor_nor_a_number_back(ledger):
    fan_out(ledger, FEED, [day(24, 2)], 2, NOW)
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    assert (looked(ledger), cursor(ledger)) == ((day(24, 2),), 2)


def test_a_process_that_is_behind_does_not_have_the_newer_change_settled(ledger):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    (decided_before,) = looked(ledger)
    fan_out(ledger, FEED, [day(24, 2)], 2, NOW)
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    settle(ledger, [(decided_before, verdict(decided_before, State.CURRENT))], NOW)
    assert looked(ledger) == (day(24, 2),)


def test_what_is_current_leaves_the_list(ledger):
    fan_out(ledger, FEED, [day(24, 1), day(25, 1)], 1, NOW)
    settle(ledger, [(day(24, 1), verdict(day(24, 1), State.CURRENT))], NOW)
    assert [key for key, *_ in rows(ledger)] == ["2019-11-25"]


@pytest.mark.parametrize("state", [State.BUILD, State.REBUILD])
def test_what_is_to_be_built_is_looked_at_until_it_was(ledger, state):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    settle(ledger, [(day(24, 1), verdict(day(24, 1), state))], NOW + MINUTE)
    assert looked(ledger, NOW) == ()
    assert looked(ledger, NOW + MINUTE) == (day(24, 1),)


@pytest.mark.parametrize("state", WAITING)
def test_what_waits_is_not_looked_at_until_something_changes(ledger, state):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    settle(ledger, [(day(24, 1), verdict(day(24, 1), state))], NOW)
    assert looked(ledger, NOW + timedelta(days=10_000)) == ()
    fan_out(ledger, FEED, [day(24, 2)], 2, NOW + MINUTE)
    assert looked(ledger, NOW + MINUTE) == (day(24, 2),)


def test_what_waits_for_its_time_is_looked_at_then(ledger):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    waits = verdict(day(24, 1), State.WAITS_FOR_LATE_DATA, look_again=NOW + 2 * MINUTE)
    settle(ledger, [(day(24, 1), waits)], NOW)
    assert looked(ledger, NOW + 2 * MINUTE - timedelta(seconds=1)) == ()
    assert looked(ledger, NOW + 2 * MINUTE) == (day(24, 1),)


@pytest.mark.parametrize("state", [State.CURRENT, State.WAITS_FOR_INPUT, State.BUILD])
def test_a_change_between_look_and_settle_survives_the_settling(ledger, state):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    (item,) = looked(ledger)
    fan_out(ledger, FEED, [day(24, 2)], 2, NOW)
    settle(ledger, [(item, verdict(item, state))], NOW + MINUTE)
    assert looked(ledger, NOW) == (day(24, 2),)


def test_the_last_verdict_is_kept_in_words_for_people(ledger):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    settle(ledger, [(day(24, 1), verdict(day(24, 1), State.WAITS_FOR_INPUT))], NOW)
    assert rows(ledger) == [("2019-11-24", 1, NOW, None, "waits for input", "because it waits for input")]


def test_it_is_known_since_when_something_is_on_the_list(ledger):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    fan_out(ledger, FEED, [day(24, 2)], 2, NOW + MINUTE)
    assert rows(ledger) == [("2019-11-24", 2, NOW, NOW + MINUTE, None, None)]


def test_what_has_waited_longest_comes_first_and_no_more_than_asked_for(ledger):
    fan_out(ledger, FEED, [day(25, 1)], 1, NOW + MINUTE)
    fan_out(ledger, FEED, [day(24, 2)], 2, NOW + 2 * MINUTE)
    fan_out(ledger, FEED, [day(26, 3)], 3, NOW)
    late = NOW + 5 * MINUTE
    assert looked(ledger, late, limit=2) == (day(26, 3), day(25, 1))


def test_a_list_that_is_longer_than_a_look_is_gone_through_all_the_same(ledger):
    fan_out(ledger, FEED, [day(number, 1) for number in range(24, 29)], 1, NOW)
    seen = []
    for tick in range(3):
        items = looked(ledger, NOW + tick * MINUTE, limit=2)
        settle(ledger, [(item, verdict(item, State.BUILD)) for item in items], NOW + (tick + 1) * MINUTE)
        seen += [item.partition.key for item in items]
    assert sorted(set(seen)) == [f"2019-11-{number}" for number in range(24, 29)]


def test_only_the_consumers_that_were_asked_about_are_looked_at(ledger):
    fan_out(ledger, FEED, [day(24, 1)], 1, NOW)
    fan_out(ledger, OTHER, [day(24, 1, OTHER)], 1, NOW)
    assert looked(ledger, consumers=[OTHER]) == (day(24, 1, OTHER),)


def test_an_input_s_partition_that_does_not_exist_yet_is_looked_at_every_few_minutes(ledger):
    awaited = Due(FEED, SHOWN, 1)
    fan_out(ledger, FEED, [awaited], 1, NOW)
    assert looked(ledger) == (awaited,)
    await_again(ledger, [awaited], NOW)
    assert looked(ledger, NOW + AWAIT - timedelta(seconds=1)) == ()
    assert looked(ledger, NOW + AWAIT) == (awaited,)


def test_an_awaited_partition_of_a_feed_without_a_version_is_looked_at(ledger):
    awaited = Due(FEED, Partition(Feed.parse("ads/raw"), "2019-11-24/men"), 1)
    fan_out(ledger, FEED, [awaited], 1, NOW)
    assert looked(ledger) == (awaited,)


def test_an_awaited_partition_is_told_from_one_of_the_consumer(ledger):
    fan_out(ledger, FEED, [Due(FEED, SHOWN, 1), day(24, 1)], 1, NOW)
    assert {(item.partition, item.awaited) for item in looked(ledger)} == {
        (SHOWN, True),
        (day(24, 1).partition, False),
    }


def test_an_awaited_partition_that_came_into_being_gives_way_to_its_outputs(ledger):
    awaited = Due(FEED, SHOWN, 1)
    fan_out(ledger, FEED, [awaited], 1, NOW)
    arrived(ledger, awaited, [day(24, 1), day(25, 1)], NOW + MINUTE)
    assert looked(ledger, NOW + MINUTE) == (day(24, 1), day(25, 1))


def test_a_change_of_an_awaited_partition_while_it_came_into_being_is_looked_at_again(ledger):
    fan_out(ledger, FEED, [Due(FEED, SHOWN, 1)], 1, NOW)
    (awaited,) = looked(ledger)
    fan_out(ledger, FEED, [Due(FEED, SHOWN, 2)], 2, NOW)
    arrived(ledger, awaited, [day(24, 1)], NOW)
    assert set(looked(ledger)) == {day(24, 1), Due(FEED, SHOWN, 2)}
