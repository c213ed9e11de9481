"""Owners of event tables: only the source that a code location declares for a table reports its events."""

from datetime import UTC, datetime, timedelta

from feed_assets.core.events import Operation, WriteEvent
from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import event_owners, event_rejects, event_store, inbox, subscriptions, update_changes, updates
from feed_assets_tests.support.ledger_records import statements

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
TABLE, CONSUMER = "crm/customers", Partition(Feed.parse("crm/report/v1.0"))


def event_of(correlation, marker, table=TABLE):
    return WriteEvent(table, marker, NOW, correlation, Operation.UPSERT)


def record(ledger, source, *new):
    with ledger.change() as connection:
        rejected = event_store.record(connection, source, new, NOW, refuse_out_of_order=True)
    return [each.reason for each in rejected]


def recorded(ledger):
    with ledger.read() as connection:
        return [(each.source, each.correlation, each.flag) for each in reversed(event_store.newest(connection, 100))]


def rejects(ledger):
    with ledger.read() as connection:
        return sorted((source, each.reason) for source, each, _ in event_rejects.rejects(connection, 100))


def test_events_of_another_source_are_rejected_once_a_table_is_declared(ledger):
    event_owners.register(ledger, "crm", [TABLE], NOW)
    with statements(ledger) as executed:
        event_owners.register(ledger, "crm", [TABLE], NOW)
    # Nothing has changed, so nothing is written.
    assert not [statement for statement, _ in executed if "INSERT" in statement or "DELETE" in statement]
    (reason,) = record(ledger, "shop", event_of("false", NOW + timedelta(hours=23)), event_of("own", 1, "shop/orders"))
    assert reason == (
        "crm/customers is declared as a table of the event source crm, and this event is of the event source shop: "
        "expected an event of crm. Remove it from shop, or declare crm/customers with the source shop."
    )
    assert rejects(ledger) == [("shop", reason)]
    assert record(ledger, "crm", event_of("true", NOW)) == []
    assert recorded(ledger) == [("shop", "own", None), ("crm", "true", None)]
    event_owners.register(ledger, "shop", [TABLE], NOW)  # The last declaration wins, and history stays.
    assert "source crm: expected an event of shop" in record(ledger, "crm", event_of("old", NOW))[0]
    assert [each[1] for each in recorded(ledger)] == ["own", "true"]


def test_the_first_declaration_moves_earlier_events_of_others_to_the_rejects(ledger):
    record(ledger, "shop", event_of("version", 5), event_of("kept", 1, "shop/orders"))
    with ledger.write() as connection:
        inbox.deliver(connection, [(CONSUMER, 1)])
    assert record(ledger, "crm", event_of("true", NOW))  # It has another kind of marker than the false one.
    event_owners.register(ledger, "crm", [TABLE], NOW)
    with ledger.read() as connection:
        assert inbox.outputs(connection) == ()
    assert record(ledger, "crm", event_of("true", NOW)) == []
    assert recorded(ledger) == [("shop", "kept", None), ("crm", "true", None)]
    assert [
        source for source, reason in rejects(ledger) if "declared as a table of the event source crm" in reason
    ] == ["shop"]


def test_a_table_with_events_of_its_source_keeps_its_history(ledger):
    record(ledger, "crm before", event_of("renamed", 1))
    record(ledger, "crm", event_of("true", 2))
    event_owners.register(ledger, "crm", [TABLE], NOW)
    assert [each[1] for each in recorded(ledger)] == ["renamed", "true"]


def test_events_of_feeds_that_we_record_ourselves_are_rejected(ledger):
    with ledger.change() as connection:
        at = Partition(Feed.parse("a/published/v1.0"))
        update_changes.insert(connection, at, "20240101.000000", updates.FOREIGN, updates.PUBLISHED, NOW)
        subscriptions.subscribe(connection, [("a/built/v1.0", "a/input"), ("a subscriber", subscriptions.ALL)])
    names = ["a/published/v1.0", "a/built/v1.0", "a/input"]
    reasons = record(ledger, "shop", *(event_of("x", NOW, name) for name in names))
    assert [each.split(" is a feed whose events feed_assets records itself")[0] for each in reasons] == names[:2]
    assert ("shop", "x", None) in recorded(ledger)
