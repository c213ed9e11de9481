"""What comes as an event: it is recorded and can be read back, or it is rejected; nothing else is held up."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa

from feed_assets.core.events import Operation, WriteEvent, decode
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import event_rejects, events, log
from feed_assets.ledger.tables import event

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
ZERO = datetime(1, 1, 1, tzinfo=UTC)
"""The zero time of Go and .NET."""
BEYOND = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=2)))


def write(marker, correlation="X", table="shop/orders", **options):
    return WriteEvent(table, marker, options.pop("event_marker", NOW), correlation, Operation.UPSERT, **options)


def record(ledger, *new, source="shop"):
    with ledger.change() as connection:
        return events.record(connection, source, new, NOW, refuse_out_of_order=False)


def recorded(ledger, table=None):
    """What is there, the oldest first; none of it stops a reader."""
    with ledger.read() as connection:
        return [*reversed(events.newest(connection, 1000, Feed.parse(table) if table else None))]


def test_an_event_of_the_year_1_is_recorded_and_read_and_comes_before_the_others(ledger):
    assert record(ledger, write(ZERO, event_marker=ZERO), write(datetime(999, 1, 1, tzinfo=UTC)), write(NOW)) == ()
    found = recorded(ledger)
    assert [decode(each.marker).year for each in found] == [1, 999, 2024]
    assert [each.flag for each in found] == [None] * 3
    assert found[0].time == ZERO


@pytest.mark.parametrize("bad", [{"marker": BEYOND}, {"marker": NOW, "event_marker": BEYOND}, {"marker": 10**20}])
def test_what_cannot_be_read_back_is_rejected_and_holds_up_nothing(ledger, bad):
    (rejected,) = record(ledger, write(**bad), write(NOW, "Y"))
    assert "expected" in rejected.reason
    assert [each.correlation for each in recorded(ledger)] == ["Y"]
    with ledger.read() as connection:
        assert [each.reason for _, each, _ in event_rejects.rejects(connection, 10)] == [rejected.reason]


def insert(ledger, **values):
    """A row as it may stand in a ledger that an older version wrote, with its change in the log."""
    row = {"source": "shop", "feed": "shop/orders", "partition": "", "marker": "20240101.000000", "correlation": "X"}
    row |= {"event_marker": "20240101.000000", "operation": "UPSERT", "context": "{}", "at": NOW, **values}
    at = Partition(Feed.parse("shop/orders"), row["partition"])
    with ledger.change() as connection:
        sequence = log.append(connection, [log.Change(at, log.EVENT, row["marker"], NOW)])
        connection.execute(sa.insert(event), {"sequence": sequence, **row})


def test_a_short_year_that_an_older_version_recorded_stops_no_reader(ledger):
    insert(ledger, marker="10101.000000", event_marker="10101.000000")
    record(ledger, write(NOW, "Y"))
    assert [each.time for each in recorded(ledger)] == [ZERO, NOW]
    assert [each.previous for each in recorded(ledger)] == [None, "10101.000000"]
