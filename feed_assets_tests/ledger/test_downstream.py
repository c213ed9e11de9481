"""Outputs built from an update, to the leaves: batches, increments, slices and rejects, with one statement a level."""

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import InvalidEvent, NoValidUpdate
from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.ledger import batch_partitions, claims, compacted, event_store, update_changes, updates
from feed_assets.ledger.downstream import ADDED_TO, PUT_TOGETHER, READ, REJECTS_OF, uses
from feed_assets.ledger.tables import consumed
from feed_assets_tests.support.ledger_records import NOW, claim, publish, scanned, seen, statements, sync

FIRST, SECOND, THIRD, FOURTH = (f"2024010{day}.000000" for day in range(1, 5))
RAW, CLEAN, REJECTED, DAILY, YEARLY, WATCHED = (
    Partition(Feed.parse(f"t/{name}/v1.0"), "2024")
    for name in ("raw", "clean", "clean_rejects", "daily", "yearly", "watched")
)
TABLE = Partition(Feed.parse("shop/orders"), "")


def pin(partition, update_id):
    return Pin(partition, update_id, "rows")


def piece(start, end):
    return Pin(TABLE, end, f"{start or ''}..{end}", start=start)


def build(ledger, output, update_id, *read, rejects=None, base=None):
    """Read, write and publish, as a run does."""
    run = f"{output} {update_id}"
    outputs = [(rejects, update_id)] if rejects else []
    with ledger.change() as connection:
        claims.claim(connection, run, [*outputs, (output, update_id)], read, "code", NOW, base=base)
    for each, _ in [*outputs, (output, update_id)]:
        publish(ledger, run, each, update_id)


def found(ledger, partition, update_id):
    with ledger.read() as connection:
        return uses(connection, partition, update_id)


def short(some):
    return [(use.depth, use.partition.feed.name, use.id, use.how, use.via[0].feed.name) for use in some]


@pytest.fixture
def diamond(ledger):
    """Return a ledger with raw data that are cleaned.

    A day is made of the clean data, and its year of both; one feed reads rejects.
    """
    sync(ledger, RAW, seen(RAW, FIRST))
    build(ledger, CLEAN, FIRST, pin(RAW, FIRST), rejects=REJECTED)
    build(ledger, DAILY, SECOND, pin(CLEAN, FIRST))
    build(ledger, YEARLY, THIRD, pin(CLEAN, FIRST), pin(DAILY, SECOND))
    build(ledger, WATCHED, THIRD, pin(REJECTED, FIRST))
    return ledger


def test_lineage_is_followed_to_the_leaves_and_through_rejects(diamond):
    assert short(found(diamond, RAW, FIRST)) == [
        (1, "t/clean", FIRST, READ, "t/raw"),
        (1, "t/clean_rejects", FIRST, REJECTS_OF, "t/clean"),
        (2, "t/daily", SECOND, READ, "t/clean"),
        (2, "t/watched", THIRD, READ, "t/clean_rejects"),
        (2, "t/yearly", THIRD, READ, "t/clean"),
    ]


def test_rejects_of_the_named_update_are_no_use_of_it(diamond):
    assert short(found(diamond, CLEAN, FIRST)) == [
        (1, "t/daily", SECOND, READ, "t/clean"),
        (1, "t/yearly", THIRD, READ, "t/clean"),
    ]
    assert short(found(diamond, REJECTED, FIRST)) == [(1, "t/watched", THIRD, READ, "t/clean_rejects")]
    assert found(diamond, YEARLY, THIRD) == []


def test_lineage_excludes_other_updates_of_the_same_partition(diamond):
    sync(diamond, RAW, seen(RAW, SECOND))
    build(diamond, CLEAN, FOURTH, pin(RAW, SECOND))
    assert short(found(diamond, RAW, SECOND)) == [(1, "t/clean", FOURTH, READ, "t/raw")]
    assert {(use.id, use.is_newest) for use in found(diamond, RAW, FIRST) if use.partition == CLEAN} == {(FIRST, False)}


def test_lineage_shows_state_and_whether_readers_get_the_update(diamond):
    claim(diamond, "runs now", (DAILY, FOURTH), pins=(pin(CLEAN, FIRST),))
    with diamond.change() as connection:
        update_changes.change(connection, YEARLY, THIRD, updates.INVALIDATED, NOW, reason="wrong")
        connection.execute(sa.delete(updates.update).where(updates.is_(WATCHED)))
    known = {(use.partition, use.id): (use.state, use.is_newest) for use in found(diamond, RAW, FIRST)}
    assert known[DAILY, SECOND] == ("published", True)
    assert known[DAILY, FOURTH] == ("claimed", False)
    assert known[YEARLY, THIRD] == ("invalidated", False)
    assert known[WATCHED, THIRD] == (None, False)


def test_lineage_includes_increments_and_their_readers(ledger):
    sync(ledger, RAW, seen(RAW, FIRST))
    build(ledger, CLEAN, FIRST, pin(RAW, FIRST))
    build(ledger, CLEAN, SECOND, piece(FIRST, SECOND), base=pin(CLEAN, FIRST), rejects=REJECTED)
    build(ledger, CLEAN, THIRD, piece(SECOND, THIRD), base=pin(CLEAN, SECOND))
    build(ledger, DAILY, FOURTH, pin(CLEAN, THIRD))
    assert short(found(ledger, RAW, FIRST)) == [
        (1, "t/clean", FIRST, READ, "t/raw"),
        (1, "t/clean", SECOND, ADDED_TO, "t/clean"),
        (1, "t/clean", THIRD, ADDED_TO, "t/clean"),
        (2, "t/daily", FOURTH, READ, "t/clean"),
    ]
    assert [use[:3] for use in short(found(ledger, CLEAN, SECOND))] == [(1, "t/clean", THIRD), (2, "t/daily", FOURTH)]


@pytest.fixture
def appended(ledger):
    """Return a ledger with three slices of a table, each a batch; the first two are compacted, and read."""
    with ledger.change() as connection:
        one = WriteEvent("shop/orders", 1, NOW, "c", Operation.INSERT)
        ours = WriteEvent(str(CLEAN.feed), 1, NOW, "c", Operation.INSERT, CLEAN.key)  # of the partition, not of a batch
        event_store.record(connection, "team", [one, ours], NOW, refuse_out_of_order=False)
        batch_partitions.join(connection, CLEAN.batch("b00000001"))
    markers = [None, *(f"{version:020}" for version in (10, 20, 30))]
    for number in (1, 2, 3):
        at = CLEAN.batch(f"b0000000{number}")
        with ledger.change() as connection:
            batch_partitions.join(connection, at)
        build(ledger, at, f"2024010{number}.000000", piece(markers[number - 1], markers[number]))
    pins = [pin(CLEAN.batch(f"b0000000{number}"), f"2024010{number}.000000") for number in (1, 2)]
    into = CLEAN.batch("b00000001-00000002")
    with ledger.change() as connection:
        compacted.claim(connection, into, FOURTH, "compacts", pins, NOW)
    publish(ledger, "compacts", into, FOURTH)
    build(ledger, DAILY, FOURTH, pin(into, FOURTH), pin(CLEAN.batch("b00000003"), THIRD))
    return ledger


def names(some):
    return [(use.depth, use.partition.name, use.how) for use in some]


def test_lineage_includes_the_compaction_of_a_batch(appended):
    assert names(found(appended, CLEAN.batch("b00000001"), FIRST)) == [
        (1, "b00000001-00000002", PUT_TOGETHER),
        (2, "2024", READ),
    ]


@pytest.mark.parametrize(
    ("marker", "batches_of_it"),
    [
        ("1", ["b00000001", "b00000001-00000002"]),
        ("10", ["b00000001", "b00000001-00000002"]),
        ("11", ["b00000001-00000002", "b00000002"]),
        ("00000000000000000030", ["b00000003"]),
    ],
)
def test_lineage_of_a_marker_finds_the_slices_that_contain_it(appended, marker, batches_of_it):
    *by_batch, last = names(found(appended, TABLE, marker))
    assert by_batch == [(1, name, READ) for name in batches_of_it]
    assert last == (2, "2024", READ)


def test_unread_marker_has_no_lineage_and_an_invalid_one_is_refused(appended):
    assert found(appended, TABLE, "31") == []
    with pytest.raises(InvalidEvent, match="'soon' is not a marker"):
        found(appended, TABLE, "soon")


@pytest.mark.parametrize(
    ("partition", "update_id", "said"),
    [
        (RAW, THIRD, rf"no update {THIRD} of t/raw/v1.0 2024: it has {FIRST}. Name one of these\.$"),
        (DAILY.batch("x"), FIRST, r"it has none of this partition. `feed-assets feed ls t/daily/v1.0` lists"),
    ],
)
def test_unknown_update_is_refused_with_the_known_ones(diamond, partition, update_id, said):
    with pytest.raises(NoValidUpdate, match=said):
        found(diamond, partition, update_id)


def test_partition_of_batches_is_refused_with_some_of_its_batches(appended):
    with pytest.raises(NoValidUpdate, match=r"holds batches: 2024/b00000003, 2024/b00000002, 2024/b\S+ and 1 more"):
        found(appended, CLEAN, FIRST)


def grow(ledger, width):
    """Add so many partitions that read the raw data, each with a reader, and extend each reader so many times."""
    for number in range(width):
        mid, leaf = Partition(CLEAN.feed, f"{number}"), Partition(DAILY.feed, f"{number}")
        build(ledger, mid, FIRST, pin(RAW, FIRST))
        build(ledger, leaf, FIRST, pin(mid, FIRST))
        for day in range(2, 2 + width):
            build(ledger, leaf, f"202401{day:02}.000000", base=pin(leaf, f"202401{day - 1:02}.000000"))


def test_lineage_takes_one_statement_per_level(ledger):
    counts = []
    for width in (1, 6):
        sync(ledger, RAW, seen(RAW, FIRST))
        with ledger.write() as connection:
            connection.execute(sa.delete(consumed))
            connection.execute(sa.delete(updates.update).where(updates.update.c.feed != str(RAW.feed)))
        grow(ledger, width)
        with statements(ledger) as executed:
            assert len(found(ledger, RAW, FIRST)) == width * (2 + width)
        counts.append((len(executed), sum("held" in sql for sql, _ in executed)))
    assert counts[0] == counts[1]
    assert counts[0][1] == 3  # two levels, and one statement after the leaves


def test_lineage_queries_seek_and_never_scan(sqlite_ledger):
    sync(sqlite_ledger, RAW, seen(RAW, FIRST))
    grow(sqlite_ledger, 3)
    with statements(sqlite_ledger) as executed:
        found(sqlite_ledger, RAW, FIRST)
    with sqlite_ledger.read() as connection:
        plans = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all() for sql, values in executed]
    steps = [row.detail for plan in plans for row in plan]
    assert [step for step in scanned(steps) if "held" not in step and "edges" not in step] == []
    assert any("USING INDEX consumed_by_input" in step for step in steps)
