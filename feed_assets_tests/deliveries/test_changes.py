"""Changes that a subscription is notified of: each once, and only if rows change."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest
import sqlalchemy as sa

from feed_assets.core.delivery_targets import DEFAULT_TRANSITIONS, RefreshView, Subscription, Webhook
from feed_assets.core.feeds import Feed, File, Partition, Update
from feed_assets.deliveries import outbox, sender
from feed_assets.deliveries.changes import DatasetChange, changes_between
from feed_assets.deliveries.outbox import Delivery
from feed_assets.ledger import compacted_partitions, log, update_changes, updates
from feed_assets.ledger.batch_partitions import join
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks.change_events import event_of
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.statement_counter import counted_statements
from feed_assets_tests.support.sum_projects import DAYS, RAW, raw_feed

SALES = Feed.parse("t/sales/v1.0")
DAY = Partition(SALES, "2026-01-01")
FIRST, RANGE = DAY.batch("b1"), DAY.batch("b00000001-00000002")
ID, LATER_ID = "20260101.000000", "20260101.000001"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def delivered(ledger):
    """Return what a webhook with the default transitions gets."""
    subscription = Subscription("cache", SALES, DEFAULT_TRANSITIONS, Webhook("env:URL", "env:SECRET"))
    with ledger.read() as connection:
        upto = log.last(connection)
        changes = changes_between(connection, subscription, 0, upto, limit=100)
    return [(each.partition.name, each.transition) for each in changes]


def sync(ledger, partition, *, size=1, is_batch=False):
    """Record an update of a foreign feed that was just read from the blackboard."""
    valid = Update(partition, ID, (File(f"{partition.path}/{ID}/part-0", size, "etag"),))
    update_changes.sync(ledger, partition, valid, {}, NOW, as_of=10**6, is_batch=is_batch)


def test_a_batch_is_delivered_once_also_if_its_partition_is_known_later(ledger):
    sync(ledger, FIRST)
    sync(ledger, FIRST, is_batch=True)
    assert delivered(ledger) == [("b1", "published")]


def test_other_files_under_the_same_id_are_delivered(ledger):
    sync(ledger, DAY)
    sync(ledger, DAY, size=2)
    assert [transition for _, transition in delivered(ledger)] == ["published", "published"]


@pytest.fixture
def compacted(ledger):
    """Return a ledger with two batches that a compaction has put together."""
    with ledger.change() as connection:
        for number in (1, 2):
            batch = DAY.batch(f"b0000000{number}")
            join(connection, batch)
            update_changes.insert(connection, batch, ID, origin=updates.RUN, state=updates.PUBLISHED, at=NOW)
        join(connection, RANGE)
        update_changes.insert(connection, RANGE, LATER_ID, origin=updates.COMPACTED, state=updates.CLAIMED, at=NOW)
        update_changes.publish(connection, RANGE, LATER_ID, NOW)
    return ledger


def test_a_compaction_is_not_delivered_as_its_rows_are_the_same(compacted):
    assert delivered(compacted) == [("b00000001", "published"), ("b00000002", "published")]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([], [], []),
        ([], [updates.INVALIDATED], ["invalidated"]),
        ([updates.PRUNED], [], ["invalidated"]),
        ([updates.INVALIDATED], [], ["invalidated", "invalidated"]),
    ],
    ids=["the base stays", "the base follows", "the base was pruned", "the base came first"],
)
def test_an_invalid_compaction_is_delivered_unless_the_replaced_update_stands_for_it(ledger, before, after, expected):
    with ledger.change() as connection:
        update_changes.insert(
            connection, DAY, ID, origin=updates.RUN, state=updates.PUBLISHED, at=NOW, records=1, version="0"
        )
        replaced = updates.find(connection, DAY, ID)
        compacted_partitions.claim(connection, replaced, LATER_ID, "r", NOW)
        update_changes.publish(connection, DAY, LATER_ID, NOW)
        for state in before:
            update_changes.change(connection, DAY, ID, state, NOW)
        update_changes.change(connection, DAY, LATER_ID, updates.INVALIDATED, NOW)
        for state in after:
            update_changes.change(connection, DAY, ID, state, NOW)
    assert [transition for _, transition in delivered(ledger)] == ["published", *expected]


def test_a_compacted_range_that_is_invalidated_and_valid_again_is_delivered(compacted):
    with compacted.change() as connection:
        for state in (log.INVALIDATED, log.PUBLISHED):
            update_changes.change(connection, RANGE, LATER_ID, state, NOW + timedelta(hours=1))
    assert delivered(compacted)[2:] == [(RANGE.name, "invalidated"), (RANGE.name, "published")]


def numbered(change):
    return {"n": change.sequence, "time": change.at.isoformat()}


def test_a_step_of_the_outbox_ends_with_its_time_and_the_next_one_goes_on(ledger, monkeypatch):
    monkeypatch.setattr(sender, "CHANGES_PER_STEP", 2)
    subscription = Subscription("cache", SALES, DEFAULT_TRANSITIONS, Webhook("env:URL", "env:SECRET"))
    assert sender.fill(ledger, subscription, numbered, NOW, lambda: True)
    for size in range(1, 6):
        sync(ledger, DAY, size=size)
    counts = list[int]()
    for _ in range(3):
        is_filled = sender.fill(ledger, subscription, numbered, NOW, lambda: True)
        with ledger.read() as connection:
            (backlog,) = outbox.backlogs(connection)
        counts.append(backlog.waiting)
        assert is_filled == (backlog.waiting == 5)
    assert counts == [2, 4, 5]


def test_new_changes_are_found_by_their_numbers_and_not_among_all_of_the_dataset(ledger):
    sync(ledger, DAY)
    plans = []

    def explain(_connection, cursor, statement, parameters, *_more):
        if " FROM change " in " ".join(statement.split()) and not plans:
            plans.extend(row[3] for row in cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall())

    sa.event.listen(ledger.engine, "before_cursor_execute", explain)
    subscription = Subscription("cache", SALES, DEFAULT_TRANSITIONS, Webhook("env:URL", "env:SECRET"))
    with ledger.read() as connection:
        changes_between(connection, subscription, 1, 2, limit=100)
    assert plans[0].endswith("(sequence>? AND sequence<?)")


def test_one_refresh_of_a_view_removes_many_changes_in_few_statements(ledger, monkeypatch):
    monkeypatch.setattr(sender, "_send", lambda *_: None)
    monkeypatch.setattr(outbox, "REMOVED_PER_STEP", 400)
    view = Subscription("by_day", SALES, DEFAULT_TRANSITIONS, RefreshView("reports.by_day", "main"))
    with ledger.write() as connection:
        outbox.put(connection, [Delivery("by_day", f"d{n}", n, {"n": n}, due=NOW) for n in range(1, 1001)])
    with counted_statements(ledger.engine) as statements:
        assert sender.deliver(ledger, view, lambda: NOW, lambda: False) == 1000
    assert len([each for each in statements if each.startswith("DELETE FROM delivery ")]) == 3
    assert len(statements) < 30


def test_a_process_with_a_turn_prolongs_it_only_before_it_may_end(ledger, monkeypatch):
    """Each prolonging is a commit, which takes about as long as a request."""
    hook = Subscription("cache", SALES, DEFAULT_TRANSITIONS, Webhook("env:URL", "env:SECRET"))
    clock = [NOW]
    monkeypatch.setattr(sender, "_send", lambda *_: clock.append(clock[-1] + timedelta(seconds=1)))
    with ledger.write() as connection:
        outbox.put(connection, [Delivery("cache", f"d{n}", n, {"n": n}, due=NOW) for n in range(1, 21)])
    with counted_statements(ledger.engine) as statements:
        assert sender.deliver(ledger, hook, lambda: clock[-1], lambda: False) == 20
    assert len([each for each in statements if each.startswith("INSERT INTO delivery_turn")]) == 2


def test_a_change_that_comes_during_a_refresh_stays_for_the_next_one(ledger, monkeypatch):
    view = Subscription("by_day", SALES, DEFAULT_TRANSITIONS, RefreshView("reports.by_day", "main"))
    groups = []

    def refresh(_target, group, _now):
        if not groups:
            with ledger.write() as connection:
                outbox.put(connection, [Delivery("by_day", "a", 2, {"n": 2}, due=NOW)])
        groups.append([each.sequence for each in group])

    monkeypatch.setattr(sender, "_send", refresh)
    with ledger.write() as connection:
        outbox.put(connection, [Delivery("by_day", "b", 1, {"n": 1}, due=NOW)])
    assert sender.deliver(ledger, view, lambda: NOW, lambda: False) == 2
    assert groups == [[1], [2]]


def test_the_order_is_kept_when_a_view_becomes_a_webhook_while_changes_wait(ledger, monkeypatch):
    sent = []
    monkeypatch.setattr(sender, "_send", lambda _target, group, _now: sent.extend(each.event["n"] for each in group))
    was, now_is = (
        Subscription("cache", SALES, DEFAULT_TRANSITIONS, target)
        for target in (RefreshView("reports.by_day", "main"), Webhook("env:URL", "env:SECRET"))
    )

    def fill(subscription):
        sender.fill(ledger, subscription, numbered, NOW, lambda: False)

    fill(was)
    sync(ledger, DAY)
    sync(ledger, DAY, size=2)
    fill(was)
    sync(ledger, DAY, size=3)
    fill(now_is)
    sender.deliver(ledger, now_is, lambda: NOW, lambda: False)
    assert len(sent) == 3
    assert sent == sorted(sent)


@each_case("key", ["2020-01-01/apac", "2020-01-01/apac/men", "apac"])
def test_a_change_of_a_partition_that_was_declared_otherwise_is_delivered_without_dimensions(key):
    """Its subscription must go on: the partitions may get a dimension while a change is unread."""
    regions = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["apac"])})
    graph = Graph(dg.Definitions(assets=[raw_feed(partitions_def=regions)]).resolve_asset_graph())
    subscription = Subscription("cache", Feed.parse(RAW), DEFAULT_TRANSITIONS, Webhook("env:URL", "env:SECRET"))
    change = DatasetChange(1, Partition(subscription.dataset, key), "published", NOW, ID)
    data = event_of(graph, subscription, change)["data"]
    expected = {"day": "2020-01-01", "region": "apac"} if key == "2020-01-01/apac" else {}
    assert (data["partition"], data["dimensions"], data["window"] is None) == (key, expected, not expected)
