"""The daily budget of history: one count for all who share a ledger, and never above the limit."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.history import History, Order
from feed_assets.core.readiness import State, Verdict
from feed_assets.ledger import due
from feed_assets.ledger.due import AffectedOutput
from feed_assets.ledger.history_budget import claim, spend, spent
from feed_assets_tests.support.ledger_records import NOW

FEED = Feed.parse("ads/effectiveness/v1.0")
DAY = timedelta(days=1)


def listed(ledger, order=Order.OLDEST, busy=(), limit=100):
    with ledger.read() as connection:
        return due.look(connection, [FEED], NOW, limit, History(order=order), busy)


def put(ledger, *days):
    woken = [AffectedOutput(Partition(FEED, f"{each:02}"), 1, NOW, NOW - each * DAY if each else None) for each in days]
    with ledger.write() as connection:
        due.wake(connection, woken, NOW)


def keys(found):
    return [int(item.partition.key) for item in found]


def today(ledger, now=NOW):
    with ledger.read() as connection:
        return spent(connection, now)


def test_list_puts_new_data_before_history(ledger):
    put(ledger, 9, 30, 2, 20, 0)
    assert keys(listed(ledger)) == [0, 2, 30, 20, 9]
    assert keys(listed(ledger, Order.NEWEST)) == [0, 2, 9, 20, 30]
    assert keys(listed(ledger, limit=3)) == [0, 2, 30]


def test_rebuilds_follow_the_order_of_history_and_have_verdict_bytes(ledger):
    put(ledger, 9, 30, 2)
    due.acknowledge(ledger, [(item, Verdict(item.partition, State.REBUILD, "")) for item in listed(ledger)], NOW)
    with ledger.read() as connection:
        found = due.to_rebuild(connection, NOW, 2)[FEED]
        newest = due.to_rebuild(connection, NOW, 2, History(order=Order.NEWEST))[FEED]
    assert (keys(found), keys(newest)) == ([2, 30], [2, 9])
    assert [item.bytes for item in found] == [0, 0]


def test_history_in_progress_does_not_block_later_history(ledger):
    put(ledger, 30, 20, 2)
    (new, first, _) = listed(ledger)
    busy = {new.partition, first.partition}
    assert keys(listed(ledger, busy=busy)) == [2, 30, 20], "nothing of it is decided yet"
    due.acknowledge(ledger, [(item, Verdict(item.partition, State.BUILD, "")) for item in (new, first)], NOW)
    assert keys(listed(ledger, busy=busy)) == [2, 20]
    assert keys(listed(ledger)) == [2, 30, 20]
    put(ledger, 30)
    assert keys(listed(ledger, busy=busy)) == [2, 30, 20], "something has come of it"


def test_claim_and_budget_change_together_or_not_at_all(ledger):
    put(ledger, 30, 20, 10)
    items, before = listed(ledger), today(ledger)
    after = before.plus(1, 10)
    assert claim(ledger, items[:1], before, after, NOW)
    assert (keys(listed(ledger)), today(ledger)) == ([20, 10], after)
    assert not claim(ledger, items[1:2], before, before.plus(1, 1), NOW), "another one has spent since"
    assert not claim(ledger, items[:2], after, after.plus(2, 2), NOW), "another one has taken one of them since"
    assert (keys(listed(ledger)), today(ledger)) == ([20, 10], after)


def test_concurrent_spending_never_exceeds_the_daily_budget(ledger):
    rules = History(runs=5)
    with ThreadPoolExecutor(8) as pool:
        refused = [*pool.map(lambda _: spend(ledger, rules, 10, NOW), range(12))]
    assert (refused.count(None), today(ledger).runs, today(ledger).bytes) == (5, 5, 50)
    assert spend(ledger, rules, 10, NOW + DAY) is None
    assert today(ledger, NOW + DAY).runs == 1


def test_held_history_waits_for_its_time_or_a_change(ledger):
    put(ledger, 30, 20)
    due.hold(ledger, dict.fromkeys(listed(ledger), "no room"), NOW + DAY)
    assert listed(ledger) == ()
    put(ledger, 20)
    (woken,) = listed(ledger)
    assert (keys([woken]), woken.state) == ([20], None)


def test_held_history_is_looked_at_again_after_new_settings(ledger):
    put(ledger, 30)
    due.hold(ledger, dict.fromkeys(listed(ledger), "no room"), NOW + DAY)
    due.look_at_stopped(ledger, {FEED}, NOW)
    assert listed(ledger) == (), "as whoever explains has it, and requests nothing"
    due.look_at_held(ledger, {FEED}, NOW)
    assert [(item.state, item.reason) for item in listed(ledger)] == [("waits for time", "no room")]
