"""Durations of updates from one table to another, from their events."""

from datetime import UTC, datetime, timedelta

from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.core.pins import Pin
from feed_assets.core.slices import Slice
from feed_assets.ledger import claims, event_store, update_changes
from feed_assets.ledger.update_durations import durations

START = datetime(2024, 1, 1, tzinfo=UTC)
ORDERS, RATES, REPORT = map(Feed.parse, ("orders", "rates", "report"))
UPSERT = frozenset({Operation.UPSERT})


def at(minute):
    return START + timedelta(minutes=minute)


def write(ledger, table, marker, correlation, minute):
    with ledger.change() as connection:
        new = WriteEvent(table, marker, at(minute), correlation, Operation.UPSERT)
        event_store.record(connection, "team", [new], at(minute), refuse_out_of_order=False)


def report(ledger, number, minute, *slices):
    """Publish an update by a run that reads these slices: each is a table, a start and an end marker."""
    pieces = [Slice(Partition(Feed.parse(table)), start, end, UPSERT) for table, start, end in slices]
    pins = [Pin(each.partition, each.end, each.version, start=each.start) for each in pieces]
    update_id = at(minute).strftime("%Y%m%d.%H%M%S")
    with ledger.change() as connection:
        claims.claim(connection, f"run {number}", [(Partition(REPORT), update_id)], pins, "1", at(minute))
        update_changes.publish(connection, Partition(REPORT), update_id, at(minute))


def took(ledger, table):
    with ledger.read() as connection:
        return [each.seconds / 60 for each in durations(connection, table, REPORT, 100)]


def test_run_started_by_another_pipeline_counts_for_that_pipeline_alone(ledger):
    one, two = f"{1:020d}", f"{2:020d}"
    write(ledger, "orders", 1, "X", 0)
    write(ledger, "rates", 1, "R", 1)
    report(ledger, 1, 5, ("orders", None, one), ("rates", None, one))
    write(ledger, "rates", 2, "S", 60)
    report(ledger, 2, 63, ("orders", None, one), ("rates", one, two))
    assert took(ledger, ORDERS) == [5]
    assert took(ledger, RATES) == [4, 3]
