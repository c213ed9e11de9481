"""What the ledger knows of batches: each once, by its partition, at a cost that does not grow with their history."""

from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.positions import Pin
from feed_assets.core.readiness import Need
from feed_assets.ledger.facts import batches, facts, pins_of
from feed_assets_tests.ledger.records import EFFECT, NOW, claim, observe, publish, scanned, seen, statements

FEED = Feed.parse("ads/events/v1.0")
DAY, NEXT_DAY = Partition(FEED, "2019-11-24"), Partition(FEED, "2019-11-25")

FIRST, SECOND, THIRD = "20191125.010000", "20191125.020000", "20191125.030000"
NEED = Need(EFFECT, (DAY,), appendable=frozenset({FEED}))


def known(ledger, *holders):
    with ledger.read() as connection:
        return batches(connection, holders)


def of(ledger, need=NEED):
    with ledger.read() as connection:
        return facts(connection, [need], NOW, 3)


def pinned(ledger, holder):
    with ledger.read() as connection:
        return [(pin.partition.name, pin.update_id) for pin in pins_of(connection, [holder])[holder]]


def test_a_batch_is_known_once_by_the_partition_that_holds_it(ledger):
    for name, update_id in (("b", FIRST), ("a", FIRST), ("a", SECOND)):
        observe(ledger, DAY.batch(name), seen(DAY.batch(name), update_id))
    observe(ledger, NEXT_DAY.batch("c"), seen(NEXT_DAY.batch("c"), FIRST))
    assert known(ledger, DAY, NEXT_DAY) == {
        DAY: (DAY.batch("a"), DAY.batch("b")),
        NEXT_DAY: (NEXT_DAY.batch("c"),),
    }


def test_a_set_is_the_newest_valid_update_of_every_batch(ledger):
    for name, update_id in (("a", FIRST), ("a", SECOND), ("b", FIRST)):
        observe(ledger, DAY.batch(name), seen(DAY.batch(name), update_id))
    assert pinned(ledger, DAY) == [("a", SECOND), ("b", FIRST)]
    observe(ledger, DAY.batch("b"), None)
    assert pinned(ledger, DAY) == [("a", SECOND)]
    assert known(ledger, DAY) == {DAY: (DAY.batch("a"), DAY.batch("b"))}


def test_an_update_right_in_the_partition_is_no_part_of_the_set(ledger):
    observe(ledger, DAY, seen(DAY, FIRST))
    found = of(ledger)
    assert (dict(found.newest), found.batches) == ({}, {DAY: ()})


def test_only_needs_that_say_so_are_of_batches(ledger):
    observe(ledger, DAY, seen(DAY, FIRST))
    observe(ledger, DAY.batch("a"), seen(DAY.batch("a"), SECOND))
    plain = of(ledger, Need(EFFECT, (DAY,)))
    assert ([*plain.newest], plain.batches) == ([DAY], {})
    assert [*of(ledger).newest] == [DAY.batch("a")]


def test_late_data_of_a_set_are_as_old_as_the_first_update_that_was_not_consumed(ledger):
    observe(ledger, DAY.batch("a"), seen(DAY.batch("a"), FIRST))
    claim(ledger, "run", (EFFECT, FIRST), pins=(Pin(DAY.batch("a"), FIRST, seen(DAY.batch("a"), FIRST).files_digest),))
    publish(ledger, "run", EFFECT, FIRST)
    assert of(ledger).late_since == {}
    observe(ledger, DAY.batch("b"), seen(DAY.batch("b"), SECOND))
    observe(ledger, DAY.batch("b"), seen(DAY.batch("b"), THIRD, size=20))
    assert of(ledger).late_since == {EFFECT: parse_update_id(SECOND)}
    observe(ledger, DAY.batch("a"), seen(DAY.batch("a"), "20191125.013000", size=30))
    assert of(ledger).late_since == {EFFECT: parse_update_id("20191125.013000")}


def test_a_set_costs_no_more_statements_and_no_scan_however_long_its_history(sqlite_ledger):
    counts = []
    for length in (1, 40):
        for number in range(length):
            for name in ("a", "b"):
                update_id = f"201911{1 + number // 24:02}.{number % 24:02}0000"
                observe(sqlite_ledger, DAY.batch(name), seen(DAY.batch(name), update_id))
        with statements(sqlite_ledger) as executed:
            assert len(of(sqlite_ledger).newest) == 2
        counts.append(len(executed))
    assert counts[0] == counts[1]
    with sqlite_ledger.read() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all() for sql, values in executed]
    assert scanned(row.detail for plan in plans for row in plan) == []
