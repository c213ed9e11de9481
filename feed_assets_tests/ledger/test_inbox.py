"""The events that a consumer has not consumed: delivered once, claimed by a run, removed with its publication."""

from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import EventOutOfOrder, UpdateChanged
from feed_assets.core.events import Operation, WriteEvent, encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.propagation import Consumer
from feed_assets.core.slices import Slice
from feed_assets.ledger import claims, event_rejects, event_store, inbox, update_changes, updates
from feed_assets.ledger.due import LOOK_AGAIN, look
from feed_assets.ledger.fan_out import Affected, fan_out
from feed_assets.ledger.tables import event
from feed_assets_tests.support import ledger_records
from feed_assets_tests.support.ledger_records import scanned, seen, statements, sync, waiting

NOW = datetime(2024, 1, 1, tzinfo=UTC)
REPORT, A, B = Feed.parse("report"), Feed.parse("a"), Feed.parse("b")
WHOLE = Partition(REPORT)
CONSUMER = Consumer(REPORT, frozenset({A, B}), {"p": frozenset({A, B})})


def event_of(table, correlation, marker, **options):
    return WriteEvent(table, marker, NOW, correlation, Operation.UPSERT, **options)


def record(ledger, *new, source="team", refuse=False):
    with ledger.change() as connection:
        return event_store.record(connection, source, new, NOW, refuse_out_of_order=refuse)


def deliver(ledger, tables=(A, B)):
    return ledger_records.deliver(ledger, WHOLE, tables, NOW)


def due(ledger):
    with ledger.read() as connection:
        return ledger_records.due_of(connection, CONSUMER, [""]).get("")


def markers(ledger):
    with ledger.read() as connection:
        return {row["input_feed"]: int(row["marker"]) for row in inbox.markers(connection, REPORT)}


def take(ledger, slices, run="r"):
    with ledger.write() as connection:
        inbox.claim(connection, WHOLE, run, slices)
        inbox.consume(connection, WHOLE, run, NOW)


def test_undeliverable_event_is_delivered_once_later(ledger):
    """Later events are left to the log that has not reached them; else they would arrive again after consumption."""
    edges, later = [(str(REPORT), "a")], NOW + 2 * LOOK_AGAIN

    def go(affected, now):
        fan_out(ledger, edges, lambda _consumer, _changed: affected, now, lambda: True, limit=1)
        return [int(each.marker) for each in waiting(ledger, REPORT).get("", ())]

    there = Affected([(WHOLE, NOW)], takes_events=True)
    record(ledger, event_of("a", "X", 1))
    assert go(Affected(None, True, "a mapping failed"), NOW) == []
    record(ledger, event_of("a", "Y", 2), event_of("a", "Z", 3))
    assert go(there, later) == [1, 2]
    take(ledger, [Slice(Partition(A), None, encode(2), frozenset())])
    assert go(there, later) == [3]


def test_an_event_is_recorded_once_and_numbered_in_order(ledger):
    new = [event_of("a", "X", 1), event_of("a", "Y", 2)]
    assert record(ledger, *new) == record(ledger, *new) == ()
    with ledger.read() as connection:
        found = event_store.after(connection, [A], 0, 100, 100)
    assert [(each.correlation, each.previous) for each in found] == [("X", None), ("Y", encode(1))]
    assert found[0].sequence < found[1].sequence


def test_repeated_publication_is_ignored_and_a_marker_out_of_order_refused(ledger):
    with ledger.change() as connection:
        assert event_store.publish(connection, event_of("a", "X", 5), NOW)
        assert not event_store.publish(connection, event_of("a", "X", 5), NOW)
        with pytest.raises(EventOutOfOrder):
            event_store.publish(connection, event_of("a", "Y", 5), NOW)
        assert event_store.publish(connection, event_of("a", "Y", 5, context={"no_new_data": True}), NOW)


def test_event_out_of_order_is_flagged_and_starts_at_the_marker_before(ledger):
    record(ledger, event_of("a", "X", 10), event_of("a", "Y", 20), event_of("a", "late", 15), event_of("a", "first", 1))
    with ledger.read() as connection:
        found = {each.correlation: each for each in event_store.after(connection, [A], 0, 100, 100)}
    assert (found["late"].flag, found["late"].previous) == ("out of order", encode(10))
    assert (found["first"].flag, found["first"].previous) == ("out of order", None)
    assert found["Y"].flag is None


def test_refused_event_is_kept_once_with_its_reason(ledger):
    for _ in range(2):
        rejected = record(ledger, event_of("a", "X", 10), event_of("a", "late", 5), event_of("", "X", 1), refuse=True)
    assert len(rejected) == 2
    with ledger.read() as connection:
        kept = event_rejects.rejects(connection, 10)
    late, nameless = sorted(each.reason for _, each, _ in kept)[::-1]
    assert len(kept) == 2
    assert "is not after" in late + nameless
    assert {each.reason for each in rejected} == {late, nameless}


def test_batch_records_a_repeat_once_and_events_without_new_data(ledger):
    record(ledger, event_of("a", "X", 1), event_of("a", "X", 1), event_of("a", "Y", 1, context={"no_new_data": True}))
    with ledger.read() as connection:
        found = event_store.after(connection, [A], 0, 100, 100)
    assert [(each.correlation, each.previous, each.flag) for each in found] == [
        ("X", None, None),
        ("Y", encode(1), None),
    ]


def test_event_is_delivered_to_a_consumer_once(ledger):
    record(ledger, event_of("a", "X", 1))
    deliver(ledger)
    deliver(ledger)
    assert len(waiting(ledger, REPORT)[""]) == 1
    with ledger.read() as connection:
        assert [item.partition for item in look(connection, [REPORT], NOW, 10)] == [WHOLE]


def test_event_fanned_out_by_another_process_is_delivered_once(ledger):
    record(ledger, event_of("a", "X", 1))

    def overtaken(_consumer, _changed):
        if not ran:
            ran.append(deliver(ledger))
        return Affected([(WHOLE, NOW)], takes_events=True)

    ran = []
    assert fan_out(ledger, [("report", "a"), ("report", "b")], overtaken, NOW, lambda: False)
    assert ran == [True]
    assert len(waiting(ledger, REPORT)[""]) == 1


def test_publication_empties_the_inbox_and_moves_all_markers(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7), event_of("a", "Y", 2))
    deliver(ledger)
    take(ledger, due(ledger).slices)
    assert markers(ledger) == {"a": 1, "b": 7}
    assert [each.correlation for each in due(ledger).incomplete] == ["Y"]


def test_markers_never_move_backwards(ledger):
    record(ledger, event_of("a", "X", 1), event_of("a", "Y", 2), event_of("b", "Y", 7))
    deliver(ledger)
    take(ledger, due(ledger).slices)
    assert markers(ledger) == {"a": 2, "b": 7}
    record(ledger, event_of("b", "X", 8))
    deliver(ledger)
    take(ledger, due(ledger).slices, "s")
    assert markers(ledger) == {"a": 2, "b": 8}
    assert due(ledger) is None


def test_a_claim_without_a_publication_consumes_nothing(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger)
    with ledger.write() as connection:
        inbox.claim(connection, WHOLE, "died", due(ledger).slices)
    slices = due(ledger).slices
    assert (len(slices), markers(ledger)) == (2, {})
    with ledger.read() as connection:
        assert inbox.holds(connection, WHOLE, slices)
    take(ledger, slices, "lives")
    with ledger.read() as connection:
        assert not inbox.holds(connection, WHOLE, slices)
    assert (due(ledger), markers(ledger)) == (None, {"a": 1, "b": 7})


UPDATE = "20240101.000000"


def published(ledger, slices, run="r", update_id=UPDATE):
    """Publish a run's update with what it consumed."""
    with ledger.change() as connection:
        claims.claim(connection, run, [(WHOLE, update_id)], (), "1", NOW, slices)
        update_changes.publish(connection, WHOLE, update_id, NOW)


def test_events_of_an_invalidated_update_are_due_until_it_is_valid_again(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger)
    slices = due(ledger).slices
    published(ledger, slices)
    assert due(ledger) is None
    for _ in range(2):
        sync(ledger, WHOLE, None)
        assert due(ledger).slices == slices
        with ledger.change() as connection:
            update_changes.publish(connection, WHOLE, UPDATE, NOW, reason=None)
        assert due(ledger) is None


class Killed(BaseException):
    """A stand-in for a kill: the transaction ends with its process."""


def killed_at(ledger, number, step):
    """Do a step, and stop before its n-th statement. Return True if it came to that statement."""
    left = [number]

    def kill(*_):
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    sa.event.listen(ledger.engine, "before_cursor_execute", kill)
    try:
        step()
    except Killed:
        return True
    finally:
        sa.event.remove(ledger.engine, "before_cursor_execute", kill)
    return False


@pytest.mark.parametrize("is_valid_again", [False, True])
def test_killed_invalidation_is_done_completely_or_not_at_all(ledger, is_valid_again):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger)
    slices = due(ledger).slices
    published(ledger, slices)

    def publish():
        with ledger.change() as connection:
            update_changes.publish(connection, WHOLE, UPDATE, NOW, reason=None)

    def invalidate():
        sync(ledger, WHOLE, None)

    def found():
        with ledger.read() as connection:
            row, came_back = updates.find(connection, WHOLE, UPDATE), inbox.came_back(connection, WHOLE)
        return row.state, due(ledger).slices if due(ledger) else (), [each["consumed_by"] for each in came_back]

    before, after = ("published", (), []), ("invalidated", slices, [UPDATE, UPDATE])
    if is_valid_again:
        invalidate()
        before, after = after, before
    step, number = publish if is_valid_again else invalidate, 0
    while killed_at(ledger, number, step):
        assert found() == before, f"half done before statement {number}"
        number += 1
    assert number > 5
    assert found() == after
    step()
    assert found() == after


def test_only_what_the_invalidated_update_itself_consumed_comes_back(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger)
    published(ledger, due(ledger).slices)
    record(ledger, event_of("a", "Y", 2), event_of("b", "Y", 8))
    deliver(ledger)
    second = due(ledger).slices
    published(ledger, second, "s", "20240102.000000")
    sync(ledger, WHOLE, seen(WHOLE, UPDATE))
    assert due(ledger).slices == second


def test_events_consumed_by_a_later_update_do_not_come_back(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger)
    published(ledger, due(ledger).slices)
    sync(ledger, WHOLE, None)
    published(ledger, due(ledger).slices, "s", "20240102.000000")
    with ledger.write() as connection:
        inbox.give_back(connection, WHOLE, "r")
    assert due(ledger) is None


def test_an_event_without_new_data_is_claimed_by_an_empty_slice(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger)
    take(ledger, due(ledger).slices)
    with ledger.change() as connection:
        for table, marker, context in (("a", 2, {}), ("b", 7, {"no_new_data": True})):
            event_store.publish(connection, WriteEvent(table, marker, NOW, "Y", context=context), NOW)
    deliver(ledger)
    slices = due(ledger).slices
    assert {str(each.partition.feed): (each.after, each.upto) for each in slices} == {"a": (None, 2), "b": (7, 7)}
    take(ledger, slices, "s")
    assert due(ledger) is None


def test_a_slice_claims_the_events_within_it_alone(ledger):
    record(ledger, event_of("a", "X", 1), event_of("a", "Y", 2), event_of("b", "Y", 7))
    deliver(ledger)
    (piece,) = [each for each in due(ledger).slices if each.partition.feed == A]
    assert (int(piece.start), int(piece.end)) == (1, 2)
    with ledger.write() as connection:
        inbox.claim(connection, WHOLE, "r", [piece])
        assert inbox.correlations(connection, "r") == {"Y"}


def test_undelivered_event_does_not_complete_an_update(ledger):
    """Otherwise the next run would read half an update, and the one after it the other half."""
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger, [A])
    assert due(ledger).selected == ()
    deliver(ledger)
    assert {each.partition.feed for each in due(ledger).slices} == {A, B}


def test_a_slice_does_not_claim_an_overwrite_that_came_late_within_it(ledger):
    record(ledger, event_of("a", "X", 10), event_of("a", "Y", 20), event_of("b", "Y", 7))
    deliver(ledger)
    slices = due(ledger).slices
    record(ledger, WriteEvent("a", 15, NOW, "late", Operation.OVERWRITE))
    deliver(ledger)
    take(ledger, slices)
    assert [each.correlation for each in due(ledger).incomplete] == ["X", "late"]


def test_stale_request_for_consumed_slices_reads_nothing(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger)
    first = due(ledger).slices
    record(ledger, event_of("a", "Y", 2), event_of("b", "Y", 8))
    deliver(ledger)
    both = due(ledger).slices
    take(ledger, first)
    with pytest.raises(UpdateChanged, match="were consumed since it was requested"), ledger.change() as connection:
        claims.claim(connection, "r2", [(WHOLE, "20240101.000000")], (), "1", NOW, both)
    assert {int(each.start) for each in due(ledger).slices} == {1, 7}


def test_new_consumer_receives_earlier_events(ledger):
    record(ledger, event_of("a", "X", 1), event_of("b", "X", 7))
    deliver(ledger, [A])
    take(ledger, ())
    deliver(ledger, [A, B])
    assert [each.correlation for each in due(ledger).selected] == ["X"]


def test_due_events_are_found_by_seeks_in_a_long_history(sqlite_ledger):
    record(
        sqlite_ledger,
        *(event_of("a", f"h{n}", n) for n in range(300)),
        *(event_of("b", f"h{n}", n) for n in range(300)),
    )
    deliver(sqlite_ledger)
    take(sqlite_ledger, due(sqlite_ledger).slices)
    record(sqlite_ledger, event_of("a", "X", 1000), event_of("b", "X", 1000))
    with statements(sqlite_ledger) as executed:
        deliver(sqlite_ledger)
        take(sqlite_ledger, due(sqlite_ledger).slices)
    with sqlite_ledger.read() as connection:
        steps = [
            row.detail
            for sql, values in [*executed]
            for row in connection.exec_driver_sql(
                f"EXPLAIN QUERY PLAN {sql}", values[0] if isinstance(values, list) else values
            )
        ]
    assert scanned(steps) == []
    assert len(executed) < 40


def test_a_reader_by_number_misses_no_event_that_commits_late(ledger):
    """Writers queue: while one is in its transaction, no other has a higher number."""
    import threading

    started, go_on = threading.Event(), threading.Event()

    def slow():
        with ledger.change() as connection:
            event_store.record(connection, "team", [event_of("a", "slow", 1)], NOW, refuse_out_of_order=False)
            started.set()
            go_on.wait(20)

    def fast():
        record(ledger, event_of("b", "fast", 1))

    threads = [threading.Thread(target=slow), threading.Thread(target=fast)]
    threads[0].start()
    assert started.wait(20)
    threads[1].start()
    with ledger.read() as connection:
        assert event_store.after(connection, [A, B], 0, 100, 100) == ()
    go_on.set()
    for thread in threads:
        thread.join(20)
    with ledger.read() as connection:
        assert [each.correlation for each in event_store.after(connection, [A, B], 0, 100, 100)] == ["slow", "fast"]


def test_markers_of_moments_sort_by_time(ledger):
    moments = [NOW + timedelta(microseconds=n) for n in (1, 2, 10, 1_000_000)]
    record(ledger, *(event_of("a", str(n), moment) for n, moment in enumerate(moments)))
    with ledger.read() as connection:
        rows = connection.execute(sa.select(event.c.marker, event.c.previous).order_by(event.c.sequence)).all()
    assert [row.previous for row in rows] == [None, *(encode(moment) for moment in moments[:-1])]
