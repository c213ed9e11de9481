"""A tick under the daemon that has nothing to tell listens to the ledger, and decides as soon as it has a change."""

import pytest
import sqlalchemy as sa

from feed_assets.core.feeds import Feed, Partition
from feed_assets.ledger import log
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.orchestration.ticks.sensors import FEEDS, WATCHES
from feed_assets.orchestration.ticks.steps import DECLARE, DISCOVER, REPORT_EVENTS
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
    """What another process does while a tick is under way: it records an update, once for each of the days."""
    left = [*days]

    def record(tick: Tick, _: OutOfTime) -> None:
        if left:
            world.drop(RAW, left[0], rows(1))
            sync(tick.services.board, tick.ledger, Partition(Feed.parse(RAW), left.pop(0)), utc_now())

    return Step("somebody else", 1, record)


def steps_before(other: Step) -> list[Step]:
    """The tick of `feeds`, without looking at the blackboard: nobody but the other one records anything."""
    return [*(each for each in FEEDS if each is not DISCOVER), other]


def test_what_another_process_records_after_a_tick_has_decided_is_requested_by_that_tick(clock):
    world = listening()
    world.ask()
    requested = evaluated(world, steps_before(somebody_else(world, DAY)), SINCE)
    assert requested == [DAY]
    assert clock.seconds == REST_SECONDS


def test_what_a_tick_has_heard_of_it_reports_too_whichever_sensor_s_it_is():
    world = listening()
    world.ask()
    result = ticked(world, steps_before(somebody_else(world, DAY)), SINCE)
    assert [(event.asset_key.path[-1], event.partition) for event in result.asset_events] == [("raw", DAY)]
    assert REPORT_EVENTS.hears, "so do the sensors of event sources"


def test_nobody_but_the_daemon_has_a_tick_listen(clock):
    world = listening()
    world.ask()
    requested = evaluated(world, steps_before(somebody_else(world, DAY)), None)
    assert requested == []
    assert clock.seconds == 0


def test_a_tick_does_not_listen_where_other_sensors_wait_for_it():
    world = listening(use_threads=False)
    world.ask()
    assert evaluated(world, steps_before(somebody_else(world, DAY)), SINCE) == []


def test_a_tick_does_not_listen_where_two_listen_already_and_have_the_code_servers_threads(clock):
    world = listening()
    world.ask()
    with LISTENERS, LISTENERS:
        requested = evaluated(world, steps_before(somebody_else(world, DAY)), SINCE)
        assert requested == []
        assert clock.seconds == 0
    assert LISTENERS.acquire(blocking=False)
    LISTENERS.release()


def test_the_begin_and_end_of_runs_wake_no_tick():
    world, looks = listening(), list[int]()
    world.ask()
    run = log.Change(Partition(Feed.parse(RAW), DAY), log.RUN, "a run", utc_now())

    def begin(tick: Tick, _: OutOfTime) -> None:
        looks.append(tick.last_logged)
        with tick.ledger.change() as connection:
            log.append(connection, [run])

    evaluated(world, [Step("begin", 1, begin, hears=True)], SINCE)
    assert len(looks) == 1


def test_a_tick_that_loses_the_ledger_while_it_listens_ends_and_has_told_what_it_had_to(caplog, clock):
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


def test_a_tick_that_requests_something_does_not_hold_it_back(clock):
    world = listening()
    world.drop(RAW, NEXT_DAY, rows(1))
    requested = evaluated(world, [*FEEDS], SINCE)
    assert requested == [NEXT_DAY]
    assert clock.seconds == 0


def test_a_tick_that_hears_nothing_ends_before_the_daemon_comes_by_again(clock):
    world = listening()
    world.ask()
    requested = evaluated(world, [*FEEDS], SINCE)
    assert requested == []
    assert clock.seconds == pytest.approx(LISTEN_SECONDS, abs=1 / LOOKS_PER_SECOND)


def test_a_tick_ends_though_there_is_always_something_new(clock):
    world = listening()
    world.ask()
    noise = Step("noise", 1, somebody_else(world, *[DAY] * 1000).take, hears=True)
    late = Step("late", 1, lambda tick, _: setattr(tick, "requests", ()), hears=True)
    looks = list[object]()
    note = Step("note", 1, lambda tick, _: looks.append(tick), hears=True)
    evaluated(world, [DECLARE, noise, late, note], SINCE)
    assert 2 <= len(looks) <= LISTEN_SECONDS / REST_SECONDS + 1
    assert clock.seconds == pytest.approx(LISTEN_SECONDS, abs=REST_SECONDS)


def test_the_moment_of_a_decision_is_that_of_the_change():
    """Else what came meanwhile would be of the future, and what is due by time not yet."""
    world, moments = listening(), list[object]()
    world.ask()
    note = Step("note", 1, lambda tick, _: moments.append(tick.now), hears=True)
    began = utc_now()
    evaluated(world, [note, *steps_before(somebody_else(world, DAY))], SINCE)
    assert began < moments[0] < moments[1]


def test_what_a_tick_could_not_do_stays_told_while_it_listens():
    world = listening()
    world.ask()

    def fail(tick: Tick, _: OutOfTime) -> None:
        tick.problems["the shop"] = "it is closed"

    told = list[dict[str, str]]()
    note = Step("note", 1, lambda tick, _: told.append(dict(tick.problems)), hears=True)
    evaluated(world, [Step("fail", 1, fail), *steps_before(somebody_else(world, DAY)), note], SINCE)
    assert told == [{"the shop": "it is closed"}] * 2


def test_alerts_and_sinks_wait_for_nobody(clock):
    world = listening()
    evaluated(world, [*WATCHES], SINCE)
    assert clock.seconds == 0
