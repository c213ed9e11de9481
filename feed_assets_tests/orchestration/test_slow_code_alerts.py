"""The alert for a dataset by events whose newest code is slower than the code before, and its end."""

from datetime import timedelta

import pytest

from feed_assets import ByEvents, EventSource, SqlTable, event_table, feed_asset
from feed_assets.core.events import WriteEvent
from feed_assets.core.feeds import Feed
from feed_assets.ledger import alerts, event_store
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.decide.alert_owner import OwnAlerts
from feed_assets.orchestration.decide.graph import Graph
from feed_assets.orchestration.ticks import slow_code_alerts
from feed_assets.orchestration.ticks.slow_code_alerts import keep_slower
from feed_assets.runs.services import utc_now
from feed_assets.settings import settings
from feed_assets_tests.support.ledger_records import statements
from feed_assets_tests.support.sum_projects import harness

ORDERS, REPORT = Feed.parse("team/orders"), Feed.parse("gamma/report/v1.0")
NAME = "slower:gamma/report/v1.0|team/orders"


class Timed:
    """A table and its consumers, whose updates take as long as the test says; nothing runs."""

    def __init__(self, datasets=1):
        orders = event_table("team/orders", source=EventSource("team", (SqlTable("sqlite://", "events", "id"),)))
        names = ["gamma/report/v1.0", *(f"gamma/other{number}/v1.0" for number in range(1, datasets))]
        made = [
            feed_asset(name, inputs={"orders": orders}, by_events=ByEvents())(lambda orders: None) for name in names
        ]
        self.graph = Graph(harness(orders, *made).definitions.resolve_asset_graph())
        self.ledger, self.now, self.count = open_ledger(settings().ledger), utc_now(), 0

    def take(self, seconds, code, times=5, dataset=REPORT):
        """Publish updates that take `seconds` from the table to the dataset."""
        for _ in range(times):
            self.count += 1
            self.now += timedelta(hours=1)
            done = self.now + timedelta(seconds=seconds)
            begun = WriteEvent(str(ORDERS), self.now, self.now, f"X{self.count}")
            made = WriteEvent(str(dataset), done, done, f"X{self.count}", context={"code_version": code})
            with self.ledger.change() as connection:
                event_store.record(connection, event_store.OURS, [begun, made], self.now, refuse_out_of_order=False)

    def look(self):
        """Run the step of a tick, and return the open alerts."""
        keep_slower(self.graph, self.ledger, self.now, OwnAlerts(self.graph, self.ledger, self.now))
        with self.ledger.read() as connection:
            return {each.name: each.reason for each in alerts.open_alerts(connection)}


def test_slower_code_is_an_alert_until_faster_code_follows():
    world = Timed()
    world.take(10, "1")
    assert world.look() == {}
    world.take(25, "2", times=4)
    assert world.look() == {}, "four are too few"
    world.take(25, "2", times=1)
    (reason,) = world.look().values()
    assert reason.startswith(
        "gamma/report/v1.0 is slower since its code has changed. For updates from team/orders, code 2 (median 25.000 s "
        "of 5) takes 2.50 times as long as code 1 (median 10.000 s of 5); expected at most 2 times."
    )
    world.take(11, "3", times=4)
    assert [*world.look()] == [NAME], "nobody knows yet"
    world.take(11, "3", times=1)
    assert world.look() == {}


def test_going_back_to_the_code_before_resolves_the_alert_of_slowness():
    world = Timed()
    world.take(10, "1")
    world.take(25, "2")
    assert [*world.look()] == [NAME]
    world.take(10, "1", times=1)
    assert world.look() == {}


def test_code_that_stays_slow_becomes_the_new_normal():
    world = Timed()
    world.take(10, "1")
    world.take(25, "2", times=slow_code_alerts.UPDATES_LOOKED_AT - 5)
    assert [*world.look()] == [NAME]
    world.take(25, "2", times=1)
    assert world.look() == {}


@pytest.mark.parametrize(("factor", "opened"), [(2.4, [NAME]), (2.5, []), (0, [])])
def test_slower_factor_is_a_setting_that_applies_at_once(monkeypatch, factor, opened):
    world = Timed()
    world.take(10, "1")
    world.take(25, "2")
    assert [*world.look()] == [NAME]
    monkeypatch.setenv("FEED_ASSETS_SLOWER_FACTOR", str(factor))
    settings.cache_clear()
    assert [*world.look()] == opened


def test_only_datasets_with_new_events_are_checked_for_slowness():
    counts = []
    for datasets in (2, 6):
        world = Timed(datasets)
        others = [Feed.parse(f"gamma/other{number}/v1.0") for number in range(1, datasets)]
        for dataset in others:
            world.take(10, "1", dataset=dataset)
        with statements(world.ledger) as executed:
            world.look()
        counts.append(len(executed))
    assert counts[0] == counts[1]
    with statements(world.ledger) as executed:
        world.look()
    assert not [each for each, _ in executed if "event.context" in each and "max(" not in each], "nothing is new"
    world.take(25, "2", dataset=others[0])
    with statements(world.ledger) as executed:
        assert [*world.look()] == [f"slower:{others[0]}|team/orders"]
    asked = [str(parameters) for _, parameters in executed if "other2" in str(parameters)]
    assert len(asked) == 1, "only for the newest event of each"
    assert [*world.look()] == [f"slower:{others[0]}|team/orders"], "of others what is open stays"
