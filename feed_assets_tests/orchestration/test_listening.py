"""A tick under the daemon without requests listens to the ledger, and decides as soon as something changes."""

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.ticks.steps import DECLARE, DISCOVER, FEEDS, REPORT_EVENTS, WATCHES
from feed_assets.orchestration.ticks.tick import (
    LISTEN_SECONDS,
    LISTENERS,
    LOOKS_PER_SECOND,
    REST_SECONDS,
    OutOfTime,
    Step,
    Tick,
)
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.orchestration.listeners import SINCE, clocked, evaluated, listening, ticked
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, rows

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    return clocked(monkeypatch)


def somebody_else(world: Harness, *days: str) -> Step:
    """Return a step that acts as another process: each time it records an update, one for each of the days."""
    left = [*days]

    def record(tick: Tick, _: OutOfTime) -> None:
        if left:
            world.drop(RAW, left[0], rows(1))
            sync(tick.services.board, tick.ledger, Partition(Feed.parse(RAW), left.pop(0)), utc_now())

    return Step("somebody else", 1, record)


def steps_before(other: Step) -> list[Step]:
    """Return the steps of `feeds` without discovery, and `other`, which alone records updates."""
    return [*(each for each in FEEDS if each is not DISCOVER), other]


def test_an_update_recorded_after_the_decision_is_requested_by_the_same_tick(clock):
    world = listening()
    world.ask()
    requested = evaluated(world, steps_before(somebody_else(world, DAY)), SINCE)
    assert requested == [DAY]
    assert clock.seconds == REST_SECONDS


def test_a_listening_tick_also_reports_the_updates_that_it_noticed():
    world = listening()
    world.ask()
    result = ticked(world, steps_before(somebody_else(world, DAY)), SINCE)
    assert [(event.asset_key.path[-1], event.partition) for event in result.asset_events] == [("raw", DAY)]
    assert REPORT_EVENTS.hears, "so do the sensors of event sources"


def test_a_tick_outside_the_daemon_does_not_listen(clock):
    world = listening()
    world.ask()
    requested = evaluated(world, steps_before(somebody_else(world, DAY)), None)
    assert requested == []
    assert clock.seconds == 0


def test_a_tick_does_not_listen_if_sensors_share_one_thread():
    world = listening(use_threads=False)
    world.ask()
    assert evaluated(world, steps_before(somebody_else(world, DAY)), SINCE) == []


def test_a_third_tick_does_not_listen_beside_two_listeners(clock):
    world = listening()
    world.ask()
    with LISTENERS, LISTENERS:
        requested = evaluated(world, steps_before(somebody_else(world, DAY)), SINCE)
        assert requested == []
        assert clock.seconds == 0
    assert LISTENERS.acquire(blocking=False)
    LISTENERS.release()


def test_starts_and_ends_of_runs_wake_no_tick():
    world, looks = listening(), list[int]()
    world.ask()
    run = log.Change(Partition(Feed.parse(RAW), DAY), log.RUN, "a run", utc_now())

    def begin(tick: Tick, _: OutOfTime) -> None:
        looks.append(tick.last_logged)
        with tick.ledger.change() as connection:
            log.append(connection, [run])

    evaluated(world, [Step("begin", 1, begin, hears=True)], SINCE)
    assert len(looks) == 1


def test_a_tick_that_loses_the_ledger_while_listening_ends_with_its_alerts(caplog, clock):
    world = listening()
    world.ask()
    engine = open_ledger(settings().ledger).engine

    def fail(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        if statement.startswith("SELECT EXISTS"):
            raise sa.exc.OperationalError(statement, None, Exception("the server has gone"))

    def note(tick: Tick, _: OutOfTime) -> None:
        tick.problems["the shop"] = "it is closed"

    def lose(*_: object) -> None:
        sa.event.listen(engine, "before_cursor_execute", fail)

    steps = [Step("note", 1, note), *steps_before(somebody_else(world, DAY)), Step("lose", 1, lose)]
    try:
        requested = evaluated(world, steps, SINCE)
    finally:
        sa.event.remove(engine, "before_cursor_execute", fail)
    assert requested == []
    assert clock.seconds == REST_SECONDS
    assert "the sensor feeds has stopped listening" in caplog.text
    with open_ledger(settings().ledger).read() as connection:
        assert [each.name for each in open_alerts(connection)] == ["failing:feeds:the shop"]


def test_a_tick_with_requests_ends_without_listening(clock):
    world = listening()
    world.drop(RAW, NEXT_DAY, rows(1))
    requested = evaluated(world, [*FEEDS], SINCE)
    assert requested == [NEXT_DAY]
    assert clock.seconds == 0


def test_a_tick_without_changes_listens_only_until_the_daemons_next_tick(clock):
    world = listening()
    world.ask()
    requested = evaluated(world, [*FEEDS], SINCE)
    assert requested == []
    assert clock.seconds == pytest.approx(LISTEN_SECONDS, abs=1 / LOOKS_PER_SECOND)


def test_a_tick_ends_although_changes_never_stop(clock):
    world = listening()
    world.ask()
    noise = Step("noise", 1, somebody_else(world, *[DAY] * 1000).take, hears=True)
    late = Step("late", 1, lambda tick, _: setattr(tick, "requests", ()), hears=True)
    looks = list[object]()
    note = Step("note", 1, lambda tick, _: looks.append(tick), hears=True)
    evaluated(world, [DECLARE, noise, late, note], SINCE)
    assert 2 <= len(looks) <= LISTEN_SECONDS / REST_SECONDS + 1
    assert clock.seconds == pytest.approx(LISTEN_SECONDS, abs=REST_SECONDS)


def test_each_decision_of_a_listening_tick_uses_the_current_time():
    """With an older time, later changes would be in the future, and partitions due by time not yet due."""
    world, moments = listening(), list[object]()
    world.ask()
    note = Step("note", 1, lambda tick, _: moments.append(tick.now), hears=True)
    began = utc_now()
    evaluated(world, [note, *steps_before(somebody_else(world, DAY))], SINCE)
    assert began < moments[0] < moments[1]


def test_problems_of_a_tick_are_kept_while_it_listens():
    world = listening()
    world.ask()

    def fail(tick: Tick, _: OutOfTime) -> None:
        tick.problems["the shop"] = "it is closed"

    told = list[dict[str, str]]()
    note = Step("note", 1, lambda tick, _: told.append(dict(tick.problems)), hears=True)
    evaluated(world, [Step("fail", 1, fail), *steps_before(somebody_else(world, DAY)), note], SINCE)
    assert told == [{"the shop": "it is closed"}] * 2


def test_the_watch_sensor_does_not_listen(clock):
    world = listening()
    evaluated(world, [*WATCHES], SINCE)
    assert clock.seconds == 0
