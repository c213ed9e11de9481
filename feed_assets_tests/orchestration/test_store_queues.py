"""Ticks that a store knocks at: by a queue of moto's, about objects on a real S3 server."""

from threading import Event, Lock

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import QueueUnavailable
from feed_assets.core.feeds import MANIFEST, Feed, Partition
from feed_assets.feeds.queues import Queue
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.orchestration.ticks.sensors import FEEDS
from feed_assets.orchestration.ticks.steps import DISCOVER, NOTIFIED
from feed_assets.orchestration.ticks.tick import LISTEN_SECONDS, REST_SECONDS, Listening, Step
from feed_assets.runs import notified_partitions
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.orchestration.listeners import SINCE, clocked, evaluated, listening, ticked
from feed_assets_tests.support.s3_notifications import NotifyingBucket, notifying_bucket
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, outcomes, rows, short

UNLISTED = [step for step in FEEDS if step is not DISCOVER]
"""A tick that looks at nothing on the blackboard but what it is told of."""


@pytest.fixture
def rung(world, s3_env, s3_url, bucket, setting):
    """The bucket of the blackboard, as moto has it: what it tells is heard by the ticks of the settings."""
    with notifying_bucket(bucket) as made:
        setting(blackboard=s3_url, s3_endpoint=s3_env.endpoint, blackboard_queue=made.url)
        yield made


@pytest.fixture
def clock(monkeypatch):
    return clocked(monkeypatch)


def drop(world: Harness, rung: NotifyingBucket, *days: str) -> None:
    """An update of each day, then what the bucket tells of them."""
    prefix = settings().blackboard.split("/", 3)[3]
    for day in days:
        update_id = world.drop(RAW, day, rows(1))
        rung.write(f"{prefix}/{RAW}/{day}/{update_id}/{MANIFEST}")


def told() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in open_alerts(connection)}


def test_a_tick_requests_what_it_is_told_of_before_anything_is_listed(rung):
    world = short()
    drop(world, rung, DAY)
    assert evaluated(world, UNLISTED, None) == [DAY]
    assert rung.left == 0


def test_a_tick_is_told_before_it_lists():
    assert FEEDS.index(NOTIFIED) + 1 == FEEDS.index(DISCOVER)


def test_what_nobody_tells_of_is_found_by_the_listing(rung):
    world = short()
    drop(world, rung, DAY)
    world.drop(RAW, NEXT_DAY, rows(1))
    assert sorted(outcomes(world.run_until_idle())) == [("sums", DAY, True), ("sums", NEXT_DAY, True)]


def test_late_data_and_an_invalidation_that_are_told_of_are_recorded_without_a_listing(rung):
    world = short()
    drop(world, rung, DAY)
    world.run_until_idle()
    drop(world, rung, DAY)
    ticked(world, UNLISTED, None)
    second = world.newest(RAW, DAY)
    assert recorded() == ("published", second)
    world.invalidate(RAW, DAY, second)
    rung.remove(f"{settings().blackboard.split('/', 3)[3]}/{RAW}/{DAY}/{second}/{MANIFEST}")
    ticked(world, UNLISTED, None)
    assert recorded() == ("invalidated", second)


def recorded() -> tuple[str, str]:
    """The state of the newest update of the day, and its id."""
    newest = sa.select(update.c.state, update.c.id).where(update.c.feed == RAW).order_by(update.c.id.desc()).limit(1)
    with open_ledger(settings().ledger).read() as connection:
        return tuple(connection.execute(newest).one())


def test_a_queue_out_of_reach_is_an_alert_of_that_alone_and_the_listing_goes_on(rung, setting):
    setting(blackboard_queue=f"{rung.url}-gone")
    world = short()
    world.drop(RAW, DAY, rows(1))
    assert [run.partition for run in world.tick()] == [DAY]
    (alert,) = told().items()
    assert alert[0] == f"failing:feeds:{RAW}"
    assert f"{rung.url}-gone cannot be read: " in alert[1]
    setting(blackboard_queue=rung.url)
    world.tick()
    assert told() == {}


def test_a_store_that_tells_nobody_costs_nothing(world, monkeypatch):
    monkeypatch.setattr(Queue, "receive", None)
    tested, beside = short(), list[object]()
    tested.drop(RAW, DAY, rows(1))
    note = Step("note", 1, lambda tick, _: beside.extend(tick.beside))
    assert evaluated(tested, [*FEEDS, note], SINCE) == [DAY]
    assert beside == []


class Waits:
    """A queue as a tick that listens has it: each wait is for what happens next, and the last one for its end."""

    def __init__(self, patch, *happens) -> None:
        self.happens, self.heard, self.end = [*happens], Event(), Event()
        self.asked, self.outlasted = list[int](), False
        receive = Queue.receive

        def wait(queue: Queue, seconds: int = 0):
            if seconds:
                self.asked.append(seconds)
                if not self.happens:
                    self.heard.set()
                    self.outlasted = not self.end.wait(10)
                    return []
                self.happens.pop(0)()
            return receive(queue)

        patch.setattr(Queue, "receive", wait)


@pytest.fixture
def waits(monkeypatch, clock):
    """Have the queue's waits end with these, one after the other; the tick sleeps until all was heard."""
    made = list[Waits]()

    def begin(*happens) -> Waits:
        made.append(waits := Waits(monkeypatch, *happens))
        sleep = clock.sleep

        def slept(seconds: float) -> None:
            assert waits.heard.wait(10)
            sleep(seconds)

        clock.sleep = slept
        return waits

    yield begin
    for each in made:
        each.end.set()


def test_what_is_told_while_a_tick_listens_that_tick_requests(rung, clock, waits):
    world = listening()
    world.ask()
    waited = waits(lambda: drop(world, rung, DAY))
    assert evaluated(world, UNLISTED, SINCE) == [DAY]
    assert clock.seconds == REST_SECONDS
    assert waited.asked == [4, 4], "one request waits for all the time that a tick listens"
    assert rung.left == 0


def test_what_is_told_together_is_requested_together(rung, waits, monkeypatch):
    world, first, looks = listening(), Event(), list[Partition]()
    world.ask()
    waited = waits(lambda: drop(world, rung, DAY, NEXT_DAY))
    look = notified_partitions.sync

    def slowly(board, ledger, partition, *more, **named):
        if looks:
            waited.heard.set()  # The tick looks at the log now, which has the first day alone.
            first.wait(0.5)
        looks.append(partition)
        return look(board, ledger, partition, *more, **named)

    monkeypatch.setattr(notified_partitions, "sync", slowly)
    assert [each.tags for each in ticked(world, UNLISTED, SINCE).run_requests] != []
    assert world.ask().requests == (), "nothing is left to be asked for"
    assert [partition.key for partition in looks] == [DAY, NEXT_DAY]


def test_a_tick_that_hears_the_log_is_not_held_up_by_the_queue(rung, clock, waits):
    world = listening()
    world.ask()
    waited = waits()
    left = [DAY]

    def somebody_else(tick, _) -> None:
        if left:
            world.drop(RAW, left[0], rows(1))
            sync(tick.services.board, tick.ledger, Partition(Feed.parse(RAW), left.pop()), utc_now())

    assert evaluated(world, [*UNLISTED, Step("somebody else", 1, somebody_else)], SINCE) == [DAY]
    assert clock.seconds == REST_SECONDS
    assert not waited.outlasted, "its wait goes on, and what it still brings is recorded"


def test_what_the_last_wait_brings_after_the_tick_is_recorded_for_the_next_one(rung, clock, monkeypatch):
    over, recorded = Event(), Event()
    receive, delete = Queue.receive, Queue.delete

    def wait(queue: Queue, seconds: int = 0):
        if seconds:
            assert over.wait(10)
            drop(world, rung, DAY)
        return receive(queue)

    def deleted(queue: Queue, messages) -> None:
        delete(queue, messages)
        recorded.set() if messages else None

    world = listening()
    world.ask()
    monkeypatch.setattr(Queue, "receive", wait)
    monkeypatch.setattr(Queue, "delete", deleted)
    assert evaluated(world, UNLISTED, SINCE) == []
    over.set()
    assert recorded.wait(10)
    monkeypatch.setattr(Queue, "receive", receive)
    assert rung.left == 0
    assert evaluated(world, UNLISTED, None) == [DAY]


def test_a_queue_that_fails_while_a_tick_listens_is_left_and_the_log_is_heard(rung, clock, waits, caplog):
    world = listening()
    world.ask()

    def fail() -> None:
        waited.heard.set()
        raise QueueUnavailable("the queue has gone")

    waited = waits(fail)
    assert evaluated(world, UNLISTED, SINCE) == []
    assert clock.seconds == pytest.approx(LISTEN_SECONDS, abs=0.1)
    assert "has stopped: the queue has gone" in caplog.text
    assert told() == {}


def test_who_waits_for_what_is_being_recorded_waits_no_longer_than_it_listens(clock):
    recording = Lock()
    listens = Listening(ends=0.05, recording=recording)
    with recording:
        listens.wait_for_all()
        assert listens.seconds_left() > 0
    listens.over.set()
    assert listens.is_over()
