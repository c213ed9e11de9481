"""The list of outputs that a change may have made buildable: no entry is lost, and none stays without a reason."""

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
    """Acknowledge everything on the list with this state."""
    acknowledge(ledger, [(item, verdict(item, state, look_again)) for item in listed(ledger)], now)


def rows(ledger):
    with ledger.read() as connection:
        found = connection.execute(sa.select(table).order_by(table.c.feed, table.c.partition))
        return [(row.partition, row.changed, row.since, row.look_at, row.state, row.reason) for row in found]


def test_output_affected_by_a_change_is_looked_at_immediately(ledger):
    put(ledger, day(24, 1), day(25, 1))
    assert looked(ledger) == (day(24, 1), day(25, 1))


def test_output_without_a_partition_yet_waits_until_it_exists(ledger):
    with ledger.write() as connection:
        wake(connection, [AffectedOutput(*day(24, 1), NOW + MINUTE)], NOW)
    assert looked(ledger) == ()
    assert looked(ledger, NOW + MINUTE) == (day(24, 1),)


def test_repeated_wake_of_an_output_changes_nothing(ledger):
    put(ledger, day(24, 1))
    before = rows(ledger)
    put(ledger, day(24, 1))
    assert rows(ledger) == before


def test_lagging_process_does_not_lower_a_change_number(ledger):
    put(ledger, day(24, 2))
    put(ledger, day(24, 1))
    assert looked(ledger) == (day(24, 2),)


def test_lagging_process_does_not_acknowledge_a_newer_change(ledger):
    put(ledger, day(24, 1))
    (decided_before,) = listed(ledger)
    put(ledger, day(24, 2))
    put(ledger, day(24, 1))
    acknowledge(ledger, [(decided_before, verdict(decided_before, State.CURRENT))], NOW)
    assert looked(ledger) == (day(24, 2),)


def test_change_clears_an_earlier_verdict(ledger):
    put(ledger, day(24, 1))
    keep(ledger, State.REBUILD)
    put(ledger, day(24, 2))
    assert [(state, reason) for *_, state, reason in rows(ledger)] == [(None, None)]


def test_undecidable_output_keeps_its_reason_and_is_retried_later(ledger):
    put(ledger, day(24, 1))
    (item,) = listed(ledger)
    postpone(ledger, {item: "its mapping raises"}, NOW)
    assert looked(ledger, NOW + LOOK_AGAIN - timedelta(seconds=1)) == ()
    (again,) = listed(ledger, NOW + LOOK_AGAIN)
    assert (again.state, again.reason) == ("cannot be decided", "its mapping raises")


@pytest.mark.parametrize("state", [State.CURRENT, State.CLOSED])
def test_current_or_closed_output_leaves_the_list(ledger, state):
    put(ledger, day(24, 1))
    items = listed(ledger)
    put(ledger, day(25, 1))
    acknowledge(ledger, [(item, verdict(item, state)) for item in items], NOW)
    assert [key for key, *_ in rows(ledger)] == ["2019-11-25"]


@pytest.mark.parametrize("state", [State.BUILD, State.REBUILD])
def test_output_to_be_built_stays_on_the_list(ledger, state):
    put(ledger, day(24, 1))
    keep(ledger, state, NOW + MINUTE)
    assert looked(ledger, NOW) == ()
    assert looked(ledger, NOW + MINUTE) == (day(24, 1),)


@pytest.mark.parametrize("state", WAITING)
def test_waiting_output_is_not_looked_at_before_a_change(ledger, state):
    put(ledger, day(24, 1))
    keep(ledger, state)
    assert looked(ledger, NOW + timedelta(days=10_000)) == ()
    put(ledger, day(24, 2), now=NOW + MINUTE)
    assert looked(ledger, NOW + MINUTE) == (day(24, 2),)


def test_output_that_waits_for_a_time_is_looked_at_then(ledger):
    put(ledger, day(24, 1))
    keep(ledger, State.WAITS_FOR_LATE_DATA, look_again=NOW + 2 * MINUTE)
    assert looked(ledger, NOW + 2 * MINUTE - timedelta(seconds=1)) == ()
    assert looked(ledger, NOW + 2 * MINUTE) == (day(24, 1),)


@pytest.mark.parametrize("state", [State.CURRENT, State.WAITS_FOR_INPUT, State.BUILD])
def test_change_between_look_and_acknowledgement_stays_on_the_list(ledger, state):
    put(ledger, day(24, 1))
    (item,) = listed(ledger)
    put(ledger, day(24, 2))
    acknowledge(ledger, [(item, verdict(item, state))], NOW + MINUTE)
    assert looked(ledger, NOW) == (day(24, 2),)


def test_list_keeps_the_last_verdict_and_its_reason(ledger):
    put(ledger, day(24, 1))
    keep(ledger, State.WAITS_FOR_INPUT)
    assert rows(ledger) == [("2019-11-24", 1, NOW, None, "waits for input", "because it waits for input")]


def test_list_keeps_the_time_of_the_first_change(ledger):
    put(ledger, day(24, 1))
    put(ledger, day(24, 2), now=NOW + MINUTE)
    assert rows(ledger) == [("2019-11-24", 2, NOW, NOW + MINUTE, None, None)]


def test_look_returns_the_longest_waiting_outputs_up_to_its_limit(ledger):
    put(ledger, day(25, 1), now=NOW + MINUTE)
    put(ledger, day(24, 2), now=NOW + 2 * MINUTE)
    put(ledger, day(26, 3))
    late = NOW + 5 * MINUTE
    assert looked(ledger, late, limit=2) == (day(26, 3), day(25, 1))


def test_list_longer_than_one_look_is_handled_completely(ledger):
    put(ledger, *(day(number, 1) for number in range(24, 29)))
    seen = []
    for tick in range(3):
        items = listed(ledger, NOW + tick * MINUTE, limit=2)
        acknowledge(ledger, [(item, verdict(item, State.BUILD)) for item in items], NOW + (tick + 1) * MINUTE)
        seen += [item.partition.key for item in items]
    assert sorted(set(seen)) == [f"2019-11-{number}" for number in range(24, 29)]


def test_look_returns_only_outputs_of_the_given_consumers(ledger):
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
def test_rebuild_waits_only_for_changes_that_the_next_tick_receives(ledger, kind, before, after, who, is_heard):
    """A request may not wait for a change that no tick receives: it would wait forever."""
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


def test_output_is_claimed_once_and_again_after_its_wait(ledger):
    put(ledger, day(24, 1), day(25, 1))
    one, other = listed(ledger), listed(ledger)
    assert claim(ledger, one[:1], NOW) == [one[0]]
    assert claim(ledger, other, NOW) == [other[1]]
    assert claim(ledger, one, NOW) == []
    assert looked(ledger, NOW + SHORTEST_WAIT - timedelta(seconds=1)) == ()
    again = listed(ledger, NOW + SHORTEST_WAIT)
    assert claim(ledger, again, NOW) == [*again], "as of a process that was killed before it could request them"


def test_output_changed_since_a_look_is_claimed_only_by_a_later_look(ledger):
    put(ledger, day(24, 1))
    before = listed(ledger)
    put(ledger, day(24, 2))
    assert claim(ledger, before, NOW) == []
    assert claim(ledger, listed(ledger), NOW)


@pytest.mark.parametrize("keep_it", [State.CURRENT, State.REBUILD, None])
def test_verdict_from_before_a_claim_does_not_end_its_wait(ledger, keep_it):
    put(ledger, day(24, 1))
    (item,) = listed(ledger)
    claim(ledger, [item], NOW)
    if keep_it:
        acknowledge(ledger, [(item, verdict(item, keep_it))], NOW)
    else:
        postpone(ledger, {item: "its mapping raises"}, NOW)
    assert looked(ledger) == ()
    assert looked(ledger, NOW + SHORTEST_WAIT) == (day(24, 1),)


def test_concurrent_claims_get_each_output_once(ledger):
    put(ledger, *(day(number, 1) for number in range(10, 30)))
    items = listed(ledger)
    with ThreadPoolExecutor(4) as pool:
        got = pool.map(lambda turn: claim(ledger, items[turn:] + items[:turn], NOW), range(0, 20, 5))
        assert sorted(item.partition for some in got for item in some) == [item.partition for item in items]
