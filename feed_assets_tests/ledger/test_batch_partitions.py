"""Batches in the ledger: each is recorded once, by its partition, at a cost that does not grow with their history."""

import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition, parse_update_id
from feed_assets.core.pins import Pin
from feed_assets.ledger import due, tables
from feed_assets.ledger import recovery as ledger_rebuild
from feed_assets.ledger.batch_partitions import recorded_batches as batches
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.ledger.fact_queries import facts
from feed_assets_tests.support.build_needs import need_of
from feed_assets_tests.support.ledger_records import (
    EFFECT,
    NOW,
    SHOWN,
    claim,
    deliver,
    publish,
    scanned,
    seen,
    statements,
    sync,
)

FEED = Feed.parse("ads/events/v1.0")
DAY, NEXT_DAY = Partition(FEED, "2019-11-24"), Partition(FEED, "2019-11-25")

FIRST, SECOND, THIRD = "20191125.010000", "20191125.020000", "20191125.030000"
NEED = need_of(EFFECT, (DAY,), sets=[FEED])


def sync_batch(ledger, batch, update_id, size=10):
    """Record a batch as the discovery of an appendable feed does."""
    sync(ledger, batch, seen(batch, update_id, size), is_batch=True)


def known(ledger, *parents):
    with ledger.read() as connection:
        return batches(connection, parents)


def of(ledger, need=NEED):
    with ledger.read() as connection:
        return facts(connection, [need], NOW, 3)


def pinned(ledger, parent):
    with ledger.read() as connection:
        return [(pin.partition.name, pin.update_id) for pin in pins_of(connection, [parent])[parent]]


def test_batch_is_recorded_once_under_its_partition(ledger):
    for name, update_id in (("b", FIRST), ("a", FIRST), ("a", SECOND)):
        sync_batch(ledger, DAY.batch(name), update_id)
    sync_batch(ledger, NEXT_DAY.batch("c"), FIRST)
    assert known(ledger, DAY, NEXT_DAY) == {
        DAY: (DAY.batch("a"), DAY.batch("b")),
        NEXT_DAY: (NEXT_DAY.batch("c"),),
    }


def test_a_set_is_the_newest_valid_update_of_every_batch(ledger):
    for name, update_id in (("a", FIRST), ("a", SECOND), ("b", FIRST)):
        sync_batch(ledger, DAY.batch(name), update_id)
    assert pinned(ledger, DAY) == [("a", SECOND), ("b", FIRST)]
    sync(ledger, DAY.batch("b"), None)
    assert pinned(ledger, DAY) == [("a", SECOND)]
    assert known(ledger, DAY) == {DAY: (DAY.batch("a"), DAY.batch("b"))}


def test_update_directly_in_the_partition_is_not_in_the_set(ledger):
    sync(ledger, DAY, seen(DAY, FIRST))
    found = of(ledger)
    assert (dict(found.newest), found.batches) == ({}, {DAY: ()})


def test_need_reads_batches_only_if_declared_as_a_set(ledger):
    sync(ledger, DAY, seen(DAY, FIRST))
    sync_batch(ledger, DAY.batch("a"), SECOND)
    plain = of(ledger, need_of(EFFECT, (DAY,)))
    assert ([*plain.newest], plain.batches) == ([DAY], {})
    assert [*of(ledger).newest] == [DAY.batch("a")]


def test_late_data_of_a_set_date_from_its_first_unconsumed_update(ledger):
    sync_batch(ledger, DAY.batch("a"), FIRST)
    claim(ledger, "run", (EFFECT, FIRST), pins=(Pin(DAY.batch("a"), FIRST, seen(DAY.batch("a"), FIRST).files_digest),))
    publish(ledger, "run", EFFECT, FIRST)
    assert of(ledger).outputs[EFFECT].late_since == {}
    sync_batch(ledger, DAY.batch("b"), SECOND)
    sync_batch(ledger, DAY.batch("b"), THIRD, size=20)
    assert of(ledger).outputs[EFFECT].late_since == {DAY.batch("b"): parse_update_id(SECOND)}
    sync_batch(ledger, DAY.batch("a"), "20191125.013000", size=30)
    assert of(ledger).outputs[EFFECT].late_since[DAY.batch("a")] == parse_update_id("20191125.013000")


def test_cost_of_a_set_does_not_grow_with_its_history(sqlite_ledger):
    counts = []
    for length in (1, 40):
        for number in range(length):
            for name in ("a", "b"):
                update_id = f"201911{1 + number // 24:02}.{number % 24:02}0000"
                sync_batch(sqlite_ledger, DAY.batch(name), update_id)
        with statements(sqlite_ledger) as executed:
            assert len(of(sqlite_ledger).newest) == 2
        counts.append(len(executed))
    assert counts[0] == counts[1]
    with sqlite_ledger.read() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all() for sql, values in executed]
    assert scanned(row.detail for plan in plans for row in plan) == []


def rows(ledger):
    with ledger.read() as connection:
        return connection.execute(sa.select(tables.batch)).all()


def woken(ledger):
    """Fan out all changes. Return the outputs on the list, and empty it."""
    deliver(ledger, EFFECT, [FEED], NOW)
    with ledger.write() as connection:
        listed = [each.partition for each in due.listed(connection, EFFECT.feed)]
        connection.execute(sa.delete(tables.due))
    return listed


def test_only_the_discovery_of_an_appendable_feed_makes_a_partition_a_batch(ledger):
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    claim(ledger, "run", (EFFECT, FIRST))
    publish(ledger, "run", EFFECT, FIRST)
    ledger_rebuild.record(ledger, [ledger_rebuild.RecoveredUpdate(seen(Partition(FEED, "2019-11-26"), FIRST))], (), NOW)
    assert rows(ledger) == []
    sync_batch(ledger, DAY.batch("a"), FIRST)
    assert rows(ledger) == [(str(FEED), DAY.key, DAY.batch("a").key)]


def test_update_that_becomes_a_batch_wakes_readers_of_its_set(ledger):
    sync(ledger, DAY.batch("a"), seen(DAY.batch("a"), FIRST))
    assert woken(ledger) == [EFFECT]
    sync_batch(ledger, DAY.batch("a"), FIRST)
    assert pinned(ledger, DAY) == [("a", FIRST)]
    assert woken(ledger) == [EFFECT]
    sync_batch(ledger, DAY.batch("a"), FIRST)
    assert woken(ledger) == []


def test_batch_rows_of_ordinary_partitions_are_ignored(ledger):
    """An older version recorded a row for each partition with a parent."""
    with ledger.write() as connection:
        row = {"feed": str(SHOWN.feed), "partition": SHOWN.parent.key, "key": SHOWN.key}
        connection.execute(sa.insert(tables.batch).values(row))
    sync(ledger, SHOWN, seen(SHOWN, FIRST))
    found = of(ledger, need_of(EFFECT, (SHOWN,)))
    assert ([*found.newest], found.batches) == ([SHOWN], {})
    assert pinned(ledger, SHOWN.parent) == [(SHOWN.name, FIRST)]
