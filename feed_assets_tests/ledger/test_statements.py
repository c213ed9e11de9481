"""Cost of many partitions at once: as many statements as for a few, and the same answers."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import sqlalchemy as sa

from feed_assets.core.events import NO_NEW_DATA, UPDATE_ID, Operation, WriteEvent, encode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.propagation import slice_of
from feed_assets.ledger import (
    alerts,
    announce,
    awaited,
    event_store,
    inbox,
    quality,
    reached_tables,
    runs,
    update_changes,
    updates,
)
from feed_assets.ledger.awaited import Awaited
from feed_assets.ledger.database import Ledger
from feed_assets_tests.support.ledger_records import MINUTE, NOW, new_run, waiting
from feed_assets_tests.support.statement_counter import counted_statements

FIRST, SECOND = "20240101.000000", "20240102.000000"
INPUT, OUTPUT = Feed.parse("t/input/v1.0"), Feed.parse("t/output/v1.0")
KEYS = [f"{number:03d}" for number in range(60)]


def statements(ledger: Ledger, act: Callable[[sa.Connection], object]) -> list[str]:
    with counted_statements(ledger.engine) as found, ledger.change() as connection:
        act(connection)
    return found


def assert_as_many(ledger: Ledger, act: Callable[[sa.Connection, list[str]], object]) -> None:
    """Assert that the first three keys take as many statements as 50 others."""
    few, many = (
        statements(ledger, lambda connection, keys=keys: act(connection, keys)) for keys in (KEYS[:3], KEYS[5:55])
    )
    assert len(few) == len(many)


def at(feed: Feed, key: str) -> Partition:
    return Partition(feed, key)


@pytest.fixture
def carried_on(ledger):
    """Return a ledger with outputs whose inputs have had another correlation id since."""
    with ledger.change() as connection:
        for key in KEYS:
            update_changes.insert(
                connection, at(INPUT, key), FIRST, updates.FOREIGN, updates.PUBLISHED, NOW, correlation=f"old {key}"
            )
            update_changes.insert(
                connection, at(INPUT, key), SECOND, updates.FOREIGN, updates.PUBLISHED, NOW, correlation=f"new {key}"
            )
            update_changes.insert(
                connection,
                at(OUTPUT, key),
                FIRST,
                updates.RUN,
                updates.PUBLISHED,
                NOW,
                run="r",
                correlation=f"old {key}",
            )
    return ledger


def inputs(connection: sa.Connection, keys: list[str], update_id: str = SECOND) -> dict[updates.UpdateRow, list[Pin]]:
    newest = updates.newest(connection, [at(OUTPUT, key) for key in keys])
    return {row: [Pin(at(INPUT, output.key), update_id, "x")] for output, row in newest.items()}


def pass_on(connection: sa.Connection, keys: list[str]) -> list[str]:
    found = announce.to_pass_on(connection, inputs(connection, keys), NOW)
    event_store.record(connection, event_store.OURS, found, NOW, refuse_out_of_order=False)
    return sorted(each.correlation_id for each in found)


def test_forwarding_through_many_outputs_takes_as_many_statements_as_through_few(carried_on):
    assert_as_many(carried_on, pass_on)


def test_event_forwarded_through_an_output_is_recorded_once(carried_on):
    with carried_on.change() as connection:
        assert pass_on(connection, KEYS[:2]) == ["new 000", "new 001"]
        assert pass_on(connection, KEYS[:3]) == ["new 002"]
        reported = {each.partition.key: each for each in event_store.newest(connection, 3)}
    assert all(each.context == {UPDATE_ID: FIRST, NO_NEW_DATA: True} for each in reported.values())
    assert {(each.start, each.marker) for each in reported.values()} == {(None, FIRST)}
    assert {*reported} == {*KEYS[:3]}


def test_no_event_is_forwarded_by_outputs_built_from_it_or_from_no_input(carried_on):
    with carried_on.change() as connection:
        assert announce.to_pass_on(connection, inputs(connection, KEYS[:2], FIRST), NOW) == []
        assert announce.to_pass_on(connection, dict.fromkeys(inputs(connection, KEYS), ()), NOW) == []


def test_reader_of_a_forwarding_dataset_waits_for_its_event(carried_on):
    below = Partition(Feed.parse("t/below/v1.0"), "000")
    with carried_on.change() as connection:
        update_changes.insert(
            connection, below, FIRST, updates.RUN, updates.PUBLISHED, NOW, run="r", correlation="old 000"
        )
        unchanged = inputs(connection, KEYS[:1])
        (row,) = updates.newest(connection, [below]).values()
        both = [Pin(at(INPUT, "000"), SECOND, "x"), Pin(at(OUTPUT, "000"), FIRST, "x")]
        first = announce.to_pass_on(connection, {row: both, **unchanged}, NOW)
        assert [(str(each.partition.feed), each.correlation_id) for each in first] == [("t/output/v1.0", "new 000")]
        event_store.record(connection, event_store.OURS, first, NOW, refuse_out_of_order=False)
        (then,) = announce.to_pass_on(connection, {row: both, **unchanged}, NOW)
        assert (then.partition, then.correlation_id) == (below, "new 000")


def test_event_table_carries_the_id_of_its_last_event_with_the_marker(ledger):
    marker = WriteEvent("team/a", NOW, NOW, "one", Operation.UPSERT)
    again = WriteEvent("team/a", NOW, NOW, "two", Operation.UPSERT, context={NO_NEW_DATA: True})
    with ledger.change() as connection:
        event_store.record(connection, "team", [marker, again], NOW, refuse_out_of_order=False)
        last = event_store.last_marker(connection, marker.partition) or ""
        assert reached_tables.carried(connection, [(marker.partition, last)]) == {(marker.partition, last): "two"}


def test_repeated_markers_are_recorded_once_in_as_many_statements(ledger):
    def repeat(connection: sa.Connection, keys: list[str]) -> None:
        new = [WriteEvent("team/a", NOW, NOW, "one", Operation.UPSERT, key) for key in keys]
        same = [WriteEvent("team/a", NOW, NOW, "two", Operation.UPSERT, key, {NO_NEW_DATA: True}) for key in 2 * keys]
        event_store.record(connection, "team", [*new, *same, *new], NOW, refuse_out_of_order=False)

    assert_as_many(ledger, repeat)
    with ledger.read() as connection:
        reported = [(each.partition.key, each.correlation) for each in event_store.newest(connection, 1000)]
    assert sorted(reported) == sorted((key, name) for key in KEYS[:3] + KEYS[5:55] for name in ("one", "two"))


def test_event_out_of_order_begins_where_the_one_before_it_ends(ledger):
    def reported(minute: int) -> WriteEvent:
        return WriteEvent("team/a", NOW + minute * MINUTE, NOW, f"at {minute}", Operation.UPSERT)

    with ledger.change() as connection:
        event_store.record(
            connection, "team", [reported(0), reported(9), reported(3), reported(6)], NOW, refuse_out_of_order=False
        )
        found = sorted(event_store.newest(connection, 10), key=lambda each: each.marker)
    assert [each.flag for each in found] == [None, event_store.OUT_OF_ORDER, event_store.OUT_OF_ORDER, None]
    assert [(one.correlation, two.correlation) for one, two in pairwise(found) if one.marker == two.previous] == [
        ("at 0", "at 3"),
        ("at 3", "at 6"),
    ]


def test_the_newest_event_of_each_table_is_one_query(ledger):
    tables = [Feed.parse(f"team/t{key}") for key in KEYS]
    new = [WriteEvent(str(table), NOW + n * MINUTE, NOW, f"{n}", Operation.UPSERT) for table in tables for n in (1, 2)]
    with ledger.change() as connection:
        event_store.record(connection, "team", new, NOW, refuse_out_of_order=False)
    with counted_statements(ledger.engine) as found, ledger.read() as connection:
        newest = event_store.newest_of(connection, [*tables, Feed.parse("team/none")])
    assert {table: each.correlation for table, each in newest.items()} == dict.fromkeys(tables, "2")
    assert len([each for each in found if "SELECT" in each and "event" in each]) == 1


def test_quality_of_many_outputs_is_released_in_as_many_statements_as_of_few(ledger):
    for key in KEYS:
        runs.start(ledger, new_run(f"run of {key}", at(OUTPUT, key)))
    with ledger.change() as connection:
        for key in KEYS:
            for check in ("one", "two"):
                quality.report(connection, at(OUTPUT, key), check, quality.FAILED, "bad", f"run of {key}", NOW)
    assert_as_many(
        ledger, lambda connection, keys: quality.release(connection, [at(OUTPUT, k) for k in keys], "x", NOW)
    )
    with ledger.read() as connection:
        failed = quality.failed(connection, [at(OUTPUT, key) for key in KEYS])
    assert {each.key for each in failed} == {*KEYS} - {*KEYS[:3], *KEYS[5:55]}


def test_many_alerts_take_as_many_statements_as_one(ledger):
    with counted_statements(ledger.engine) as few:
        alerts.keep(ledger, "few", {"a": "late"}, NOW)
        alerts.keep(ledger, "few", {"b": "late"}, NOW)
    with counted_statements(ledger.engine) as many:
        alerts.keep(ledger, "many", dict.fromkeys(KEYS[:30], "late"), NOW)
        alerts.keep(ledger, "many", dict.fromkeys(KEYS[30:], "late"), NOW)
    assert len(few) == len(many)


def test_awaited_changes_are_kept_in_as_many_statements_as_few(ledger):
    def put(connection: sa.Connection, keys: list[str]) -> None:
        awaited.put(connection, [Awaited("", at(INPUT, key), 7) for key in keys], NOW - 9 * MINUTE)
        awaited.put(connection, [Awaited("", at(INPUT, key), 8, "why") for key in keys], NOW - 9 * MINUTE)

    assert_as_many(ledger, put)
    with ledger.read() as connection:
        assert {(each.sequence, each.reason) for each in awaited.look(connection, NOW)} == {(7, "why")}


def test_consumption_without_a_run_takes_as_many_statements_for_many_outputs(ledger):
    table = Feed.parse("team/a")
    new = [WriteEvent(str(table), NOW + n * MINUTE, NOW, f"{n}", Operation.UPSERT, k) for k in KEYS for n in (1, 2, 3)]
    with ledger.change() as connection:
        event_store.record(connection, "team", new, NOW, refuse_out_of_order=False)
        reported = event_store.newest(connection, 1000)
        inbox.deliver(connection, [(at(OUTPUT, each.partition.key), each.sequence) for each in reported])
    pieces = {at(OUTPUT, each.partition.key): [slice_of(each)] for each in reported if each.correlation == "2"}

    def consume(connection: sa.Connection, keys: list[str]) -> None:
        inbox.consume_now(connection, {output: of for output, of in pieces.items() if output.key in keys}, NOW)

    assert_as_many(ledger, consume)
    left = waiting(ledger, OUTPUT)
    gone = {*KEYS[:3], *KEYS[5:55]}
    assert {key: [each.correlation for each in left[key]] for key in KEYS} == {
        key: ["1", "3"] if key in gone else ["1", "2", "3"] for key in KEYS
    }
    with ledger.read() as connection:
        markers = inbox.markers(connection, OUTPUT)
    assert {(row["partition"], row["marker"]) for row in markers} == {(key, encode(NOW + 2 * MINUTE)) for key in gone}
