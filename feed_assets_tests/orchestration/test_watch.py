"""Problems without a failed run: tick by tick, on a clock that the test sets."""

from datetime import UTC, datetime, timedelta

import pytest

from feed_assets import ByEvents, Cadence, event_table, feed_asset
from feed_assets.ledger import alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.settings import settings
from feed_assets.testing import by_inputs
from feed_assets_tests.orchestration.event_team import Team
from feed_assets_tests.support.harness_queries import check_results
from feed_assets_tests.support.sum_projects import harness


class Clock:
    """A clock that a test sets."""

    def __init__(self, moment):
        self.moment = moment

    def __call__(self):
        return self.moment


@pytest.fixture
def clock():
    return Clock(datetime.now(UTC).replace(hour=0, minute=30, second=0, microsecond=0) + timedelta(days=1))


@pytest.fixture
def team(tmp_path):
    return Team(tmp_path)


def world(team, clock, **options):
    """Build a (due each day at six), b -> report."""
    six = Cadence("0 6 * * *", timedelta(hours=1))
    a = event_table("team/a", source=team.source, table_name="a", cadence=six)
    b = event_table("team/b", source=team.source, table_name="b")
    by_events = ByEvents(pipelines={"p": ["team/a", "team/b"]}, **options)

    report = feed_asset("gamma/report/v1.0", inputs={"a": a, "b": b}, by_events=by_events)(lambda a, b: None)
    return harness(a, b, report, give=by_inputs, now=clock)


def open_alerts():
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in alerts.open_alerts(connection)}


def at(clock, hours):
    clock.moment = clock.moment.replace(hour=0, minute=0) + timedelta(hours=hours)


def test_a_late_event_is_an_alert_once_until_it_arrives(team, clock, caplog):
    world_ = world(team, clock)
    world_.tick()
    at(clock, 6.9)
    world_.tick()
    assert open_alerts() == {}
    at(clock, 7)
    world_.tick()
    world_.tick()
    (reason,) = open_alerts().values()
    assert f"no event of team/a for {clock.moment:%Y-%m-%d} 06:00 UTC" in reason
    assert [record.levelname for record in caplog.records if reason in record.getMessage()] == ["WARNING"]
    assert check_results(world_, "team/a", "on_time") == ["FAILED", "SUCCEEDED"]
    team.publish(("a", "X", 1), marker_time=clock.moment)
    world_.tick()
    world_.tick()
    assert open_alerts() == {}
    assert check_results(world_, "team/a", "on_time") == ["SUCCEEDED", "FAILED", "SUCCEEDED"]


def test_a_stuck_propagation_is_an_alert_until_it_arrives(team, clock):
    world_ = world(team, clock, stuck_after=timedelta(hours=2))
    team.publish(("a", "X", 1), marker_time=clock.moment)
    world_.tick()
    clock.moment += timedelta(hours=2)
    world_.tick()
    assert open_alerts() == {}
    clock.moment += timedelta(seconds=1)
    world_.tick()
    (name,) = open_alerts()
    assert name.startswith("stuck:gamma/report/v1.0|p|X")
    assert "has not reached team/b" in open_alerts()[name]
    assert check_results(world_, "gamma/report", "propagation")[0] == "FAILED"
    team.publish(("b", "X", 1))
    world_.run_until_idle()
    assert open_alerts() == {}
    assert check_results(world_, "gamma/report", "propagation")[0] == "SUCCEEDED"


def test_a_table_that_its_pipeline_no_longer_writes_alerts_with_the_last_date(team, clock):
    world_ = world(team, clock)
    team.publish(("a", "W", 1), ("b", "W", 1), marker_time=clock.moment)
    world_.run_until_idle()
    last = clock.moment
    clock.moment += timedelta(minutes=10)
    team.publish(("a", "X", 2), ("a", "Y", 3), marker_time=clock.moment)
    world_.tick()
    world_.tick()
    assert not [name for name in open_alerts() if name.startswith("unreachable")]
    team.publish(("a", "Z", 4), marker_time=clock.moment)
    world_.tick()
    world_.tick()
    (name,) = [name for name in open_alerts() if name.startswith("unreachable")]
    assert name == "unreachable:gamma/report/v1.0|p|team/b"
    assert f"its last event was on {last:%Y-%m-%d %H:%M} UTC" in open_alerts()[name]


def test_a_check_may_be_run_by_hand(team, clock):
    world_ = world(team, clock)
    (check,) = [each for each in world_.definitions.asset_checks if each.check_key.name == "on_time"]
    assert check.check_key.asset_key.to_user_string() == "team/a"
    assert (check().passed, check().description) == (True, "The sensor 'watch' has reported no result yet.")
    world_.tick()
    assert (check().passed, check().description) == (True, None)
    at(clock, 7)
    world_.tick()
    assert not check().passed
    assert "no event of team/a for" in check().description


def test_wrong_alert_settings_are_an_alert_and_hold_up_no_run(team, clock, monkeypatch):
    monkeypatch.setenv("FEED_ASSETS_ALERT_WEBHOOK", "https://example.invalid/hook")
    settings.cache_clear()
    world_ = world(team, clock)
    team.publish(("a", "X", 1), ("b", "X", 1))
    assert [run.succeeded for run in world_.run_until_idle()] == [True]
    reason = open_alerts()["failing:watch:delivery"]
    assert "alerts are not delivered" in reason
    assert "FEED_ASSETS_ALERT_SECRET" in reason
