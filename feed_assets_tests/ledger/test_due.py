"""The list of what a change may have made buildable: nothing on it is ever lost, and nothing stays for nothing."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.launching import SHORTEST_WAIT
from feed_assets.core.readiness import State, Verdict
from feed_assets.ledger import log, quality
from feed_assets.ledger.due import LOOK_AGAIN, AffectedOutput, acknowledge, claim, look, postpone, to_rebuild, wake
from feed_assets.ledger.log import Change
from feed_assets.ledger.tables import change
from feed_assets.ledger.tables import due as table
from feed_assets_tests.support.ledger_records import MINUTE, NOW

FEED = Feed.parse("ads/effectiveness/v1.0")
OTHER = Feed.parse("ads/effectiveness_daily/v1.0")
WAITING = [
    State.WAITS_FOR_INPUT,
    State.WAITS_FOR_QUALITY,
    State.WAITS_FOR_LATE_DATA,
    State.WAITS_FOR_A_PERSON,
]


def day(number: int, changed: int, consumer: Feed = FEED) -> tuple[Partition, int]:
    return Partition(consumer, f"2019-11-{number}"), changed


def put(ledger, *days, now=NOW):
    """Put outputs on the list, as a change does."""
    with ledger.write() as connection:
        wake(connection, [AffectedOutput(*each, now) for each in days], now)


def verdict(item, state: State, look_again=None) -> Verdict:
    return Verdict(item.partition, state, f"because it {state}", look_again=look_again)


def listed(ledger, now=NOW, consumers=(FEED, OTHER), limit=100):
    with ledger.read() as connection:
        return look(connection, consumers, now, limit)


def looked(*arguments, **options):
    return tuple((item.partition, item.changed) for item in listed(*arguments, **options))


def keep(ledger, state, now=NOW, look_again=None):
    """Decide about all that is on the list."""
    acknowledge(ledger, [(item, verdict(item, state, look_again)) for item in listed(ledger)], now)


def rows(ledger):
    with ledger.read() as connection:
        found = connection.execute(sa.select(table).order_by(table.c.feed, table.c.partition))
        return [(row.partition, row.changed, row.since, row.look_at, row.state, row.reason) for row in found]


def test_what_a_change_affects_is_looked_at_at_once(ledger):
    put(ledger, day(24, 1), day(25, 1))
    assert looked(ledger) == (day(24, 1), day(25, 1))


def test_what_is_no_partition_yet_is_looked_at_when_it_is_one(ledger):
    with ledger.write() as connection:
        wake(connection, [AffectedOutput(*day(24, 1), NOW + MINUTE)], NOW)
    assert looked(ledger) == ()
    assert looked(ledger, NOW + MINUTE) == (day(24, 1),)


def test_waking_again_changes_nothing(ledger):
    put(ledger, day(24, 1))
    before = rows(ledger)
    put(ledger, day(24, 1))
    assert rows(ledger) == before


def test_a_process_that_is_behind_does_not_move_a_number_back(ledger):
    put(ledger, day(24, 2))
    put(ledger, day(24, 1))
    assert looked(ledger) == (day(24, 2),)


def test_a_process_that_is_behind_does_not_have_the_newer_change_acknowledged(ledger):
    put(ledger, day(24, 1))
    (decided_before,) = listed(ledger)
    put(ledger, day(24, 2))
    put(ledger, day(24, 1))
    acknowledge(ledger, [(decided_before, verdict(decided_before, State.CURRENT))], NOW)
    assert looked(ledger) == (day(24, 2),)


def test_what_was_decided_before_a_change_is_no_verdict_after_it(ledger):
    put(ledger, day(24, 1))
    keep(ledger, State.REBUILD)
    put(ledger, day(24, 2))
    assert [(state, reason) for *_, state, reason in rows(ledger)] == [(None, None)]


def test_what_cannot_be_decided_about_says_why_and_is_looked_at_later(ledger):
    put(ledger, day(24, 1))
    (item,) = listed(ledger)
    postpone(ledger, {item: "its mapping raises"}, NOW)
    assert looked(ledger, NOW + LOOK_AGAIN - timedelta(seconds=1)) == ()
    (again,) = listed(ledger, NOW + LOOK_AGAIN)
    assert (again.state, again.reason) == ("cannot be decided", "its mapping raises")


@pytest.mark.parametrize("state", [State.CURRENT, State.CLOSED])
def test_what_is_current_or_final_leaves_the_list(ledger, state):
    put(ledger, day(24, 1))
    items = listed(ledger)
    put(ledger, day(25, 1))
    acknowledge(ledger, [(item, verdict(item, state)) for item in items], NOW)
    assert [key for key, *_ in rows(ledger)] == ["2019-11-25"]


@pytest.mark.parametrize("state", [State.BUILD, State.REBUILD])
def test_what_is_to_be_built_is_looked_at_until_it_was(ledger, state):
    put(ledger, day(24, 1))
    keep(ledger, state, NOW + MINUTE)
    assert looked(ledger, NOW) == ()
    assert looked(ledger, NOW + MINUTE) == (day(24, 1),)


@pytest.mark.parametrize("state", WAITING)
def test_what_waits_is_not_looked_at_until_something_changes(ledger, state):
    put(ledger, day(24, 1))
    keep(ledger, state)
    assert looked(ledger, NOW + timedelta(days=10_000)) == ()
    put(ledger, day(24, 2), now=NOW + MINUTE)
    assert looked(ledger, NOW + MINUTE) == (day(24, 2),)


def test_what_waits_for_its_time_is_looked_at_then(ledger):
    put(ledger, day(24, 1))
    keep(ledger, State.WAITS_FOR_LATE_DATA, look_again=NOW + 2 * MINUTE)
    assert looked(ledger, NOW + 2 * MINUTE - timedelta(seconds=1)) == ()
    assert looked(ledger, NOW + 2 * MINUTE) == (day(24, 1),)


@pytest.mark.parametrize("state", [State.CURRENT, State.WAITS_FOR_INPUT, State.BUILD])
def test_a_change_between_look_and_acknowledgement_survives_it(ledger, state):
    put(ledger, day(24, 1))
    (item,) = listed(ledger)
    put(ledger, day(24, 2))
    acknowledge(ledger, [(item, verdict(item, state))], NOW + MINUTE)
    assert looked(ledger, NOW) == (day(24, 2),)


def test_the_last_verdict_is_kept_in_words_for_people(ledger):
    put(ledger, day(24, 1))
    keep(ledger, State.WAITS_FOR_INPUT)
    assert rows(ledger) == [("2019-11-24", 1, NOW, None, "waits for input", "because it waits for input")]


def test_it_is_known_since_when_something_is_on_the_list(ledger):
    put(ledger, day(24, 1))
    put(ledger, day(24, 2), now=NOW + MINUTE)
    assert rows(ledger) == [("2019-11-24", 2, NOW, NOW + MINUTE, None, None)]


def test_what_has_waited_longest_comes_first_and_no_more_than_asked_for(ledger):
    put(ledger, day(25, 1), now=NOW + MINUTE)
    put(ledger, day(24, 2), now=NOW + 2 * MINUTE)
    put(ledger, day(26, 3))
    late = NOW + 5 * MINUTE
    assert looked(ledger, late, limit=2) == (day(26, 3), day(25, 1))


def test_a_list_that_is_longer_than_a_look_is_gone_through_all_the_same(ledger):
    put(ledger, *(day(number, 1) for number in range(24, 29)))
    seen = []
    for tick in range(3):
        items = listed(ledger, NOW + tick * MINUTE, limit=2)
        acknowledge(ledger, [(item, verdict(item, State.BUILD)) for item in items], NOW + (tick + 1) * MINUTE)
        seen += [item.partition.key for item in items]
    assert sorted(set(seen)) == [f"2019-11-{number}" for number in range(24, 29)]


def test_only_the_consumers_that_were_asked_about_are_looked_at(ledger):
    put(ledger, day(24, 1))
    put(ledger, day(24, 1, OTHER))
    assert looked(ledger, consumers=[OTHER]) == (day(24, 1, OTHER),)


def rebuilt(ledger):
    with ledger.read() as connection:
        return [item.partition for found in to_rebuild(connection, NOW, 10).values() for item in found]


@pytest.mark.parametrize(
    ("kind", "before", "after", "who", "is_heard"),
    [
        (log.UPDATE, None, log.PUBLISHED, "a run", True),
        (log.UPDATE, log.PUBLISHED, log.PRUNED, None, False),
        (log.QUALITY, None, quality.FAILED, "a run", True),
        (log.QUALITY, None, quality.WARNED, "a flow", True),
        (log.QUALITY, quality.PASSED, quality.WARNED, "a flow", False),
        (log.QUALITY, quality.WARNED, quality.FAILED, "a flow", True),
        (log.QUALITY, None, quality.WARNED, quality.WATCH, False),
        (log.QUALITY, quality.WARNED, quality.FAILED, quality.WATCH, False),
        (log.RUN, None, "running", "a run", False),
    ],
)
def test_what_is_to_be_rebuilt_waits_for_the_next_tick_only_after_what_that_hears(
    ledger, kind, before, after, who, is_heard
):
    """What no tick hears of would keep it from being requested for ever."""
    output, _ = day(24, 0)
    put(ledger, (output, 0))
    keep(ledger, State.REBUILD)
    assert rebuilt(ledger) == [output]
    with ledger.change() as connection:
        log.append(connection, [Change(output, kind, "s", NOW, before, after, "why", who)])
    assert rebuilt(ledger) == ([] if is_heard else [output])
    with ledger.read() as connection:
        told = log.after(connection, 0, 100, 10)
        assert [*filter(quality.is_heard, told)] == [*told][:is_heard]
        assert len(connection.execute(sa.select(change).where(quality.heard_condition())).all()) == is_heard


def test_of_two_who_have_read_the_same_the_first_requests_it_and_whoever_looks_when_its_wait_is_over(ledger):
    put(ledger, day(24, 1), day(25, 1))
    one, other = listed(ledger), listed(ledger)
    assert claim(ledger, one[:1], NOW) == [one[0]]
    assert claim(ledger, other, NOW) == [other[1]]
    assert claim(ledger, one, NOW) == []
    assert looked(ledger, NOW + SHORTEST_WAIT - timedelta(seconds=1)) == ()
    again = listed(ledger, NOW + SHORTEST_WAIT)
    assert claim(ledger, again, NOW) == [*again], "as of a process that was killed before it could request them"


def test_what_was_changed_since_it_was_read_is_requested_by_whoever_reads_it_then(ledger):
    put(ledger, day(24, 1))
    before = listed(ledger)
    put(ledger, day(24, 2))
    assert claim(ledger, before, NOW) == []
    assert claim(ledger, listed(ledger), NOW)


@pytest.mark.parametrize("keep_it", [State.CURRENT, State.REBUILD, None])
def test_who_decided_before_another_one_requested_it_does_not_end_its_wait(ledger, keep_it):
    put(ledger, day(24, 1))
    (item,) = listed(ledger)
    claim(ledger, [item], NOW)
    if keep_it:
        acknowledge(ledger, [(item, verdict(item, keep_it))], NOW)
    else:
        postpone(ledger, {item: "its mapping raises"}, NOW)
    assert looked(ledger) == ()
    assert looked(ledger, NOW + SHORTEST_WAIT) == (day(24, 1),)


def test_many_who_claim_at_the_same_time_get_each_of_them_once(ledger):
    put(ledger, *(day(number, 1) for number in range(10, 30)))
    items = listed(ledger)
    with ThreadPoolExecutor(4) as pool:
        got = pool.map(lambda turn: claim(ledger, items[turn:] + items[:turn], NOW), range(0, 20, 5))
        assert sorted(item.partition for some in got for item in some) == [item.partition for item in items]
