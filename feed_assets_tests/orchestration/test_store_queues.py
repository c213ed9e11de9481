"""Ticks that a store's notifications wake: a queue of moto, and objects on a real S3 server."""

from threading import Event, Lock

import pytest
import sqlalchemy as sa

from feed_assets.core.errors import QueueUnavailable
from feed_assets.core.feeds import MANIFEST, Feed, Partition
from feed_assets.feeds import answers
from feed_assets.feeds.queues import Queue
from feed_assets.ledger.alerts import open_alerts
from feed_assets.ledger.database import open_ledger
from feed_assets.ledger.tables import update
from feed_assets.orchestration.ticks.steps import DISCOVER, FEEDS, NOTIFIED
from feed_assets.orchestration.ticks.tick import LISTEN_SECONDS, REST_SECONDS, Listening, Step
from feed_assets.runs import notified_partitions
from feed_assets.runs.services import utc_now
from feed_assets.runs.sync import sync
from feed_assets.settings import settings
from feed_assets.testing import Harness
from feed_assets_tests.orchestration.listeners import SINCE, clocked, evaluated, listening, ticked
from feed_assets_tests.support.s3_notifications import NotifyingBucket, notifying_bucket
from feed_assets_tests.support.slow_servers import dripping
from feed_assets_tests.support.sum_projects import DAY, NEXT_DAY, RAW, outcomes, rows, short

UNLISTED = [step for step in FEEDS if step is not DISCOVER]
"""Steps of a tick without discovery: updates arrive by notification only."""


@pytest.fixture
def bucket_with_queue(world, s3_env, s3_url, bucket, setting):
    """Return moto's bucket in place of the blackboard's; its notifications reach the ticks of the settings."""
    with notifying_bucket(bucket) as made:
        setting(blackboard=s3_url, s3_endpoint=s3_env.endpoint, blackboard_queue=made.url)
        yield made


@pytest.fixture
def clock(monkeypatch):
    return clocked(monkeypatch)


def drop(world: Harness, bucket_with_queue: NotifyingBucket, *days: str) -> None:
    """Drop an update for each day, and have the bucket notify about them."""
    prefix = settings().blackboard.split("/", 3)[3]
    for day in days:
        update_id = world.drop(RAW, day, rows(1))
        bucket_with_queue.write(f"{prefix}/{RAW}/{day}/{update_id}/{MANIFEST}")


def open_alert_reasons() -> dict[str, str]:
    with open_ledger(settings().ledger).read() as connection:
        return {each.name: each.reason for each in open_alerts(connection)}


def test_a_tick_requests_notified_updates_without_a_listing(bucket_with_queue):
    world = short()
    drop(world, bucket_with_queue, DAY)
    assert evaluated(world, UNLISTED, None) == [DAY]
    assert bucket_with_queue.left == 0


def test_a_tick_reads_notifications_before_it_lists():
    assert FEEDS.index(NOTIFIED) + 1 == FEEDS.index(DISCOVER)


def test_an_update_without_a_notification_is_found_by_the_listing(bucket_with_queue):
    world = short()
    drop(world, bucket_with_queue, DAY)
    world.drop(RAW, NEXT_DAY, rows(1))
    assert sorted(outcomes(world.run_until_idle())) == [("sums", DAY, True), ("sums", NEXT_DAY, True)]


def test_notified_late_data_and_invalidations_are_recorded_without_a_listing(bucket_with_queue):
    world = short()
    drop(world, bucket_with_queue, DAY)
    world.run_until_idle()
    drop(world, bucket_with_queue, DAY)
    ticked(world, UNLISTED, None)
    second = world.newest(RAW, DAY)
    assert recorded() == ("published", second)
    world.invalidate(RAW, DAY, second)
    bucket_with_queue.remove(f"{settings().blackboard.split('/', 3)[3]}/{RAW}/{DAY}/{second}/{MANIFEST}")
    ticked(world, UNLISTED, None)
    assert recorded() == ("invalidated", second)


def recorded() -> tuple[str, str]:
    """Return state and id of the day's newest update."""
    newest = sa.select(update.c.state, update.c.id).where(update.c.feed == RAW).order_by(update.c.id.desc()).limit(1)
    with open_ledger(settings().ledger).read() as connection:
        return tuple(connection.execute(newest).one())


def test_a_queue_out_of_reach_is_an_alert_and_the_listing_goes_on(bucket_with_queue, setting):
    setting(blackboard_queue=f"{bucket_with_queue.url}-gone")
    world = short()
    world.drop(RAW, DAY, rows(1))
    assert [run.partition for run in world.tick()] == [DAY]
    (alert,) = open_alert_reasons().items()
    assert alert[0] == f"failing:feeds:{RAW}"
    assert f"{bucket_with_queue.url}-gone cannot be read: " in alert[1]
    setting(blackboard_queue=bucket_with_queue.url)
    world.tick()
    assert open_alert_reasons() == {}


def test_a_store_without_a_queue_costs_nothing(world, monkeypatch):
    monkeypatch.setattr(Queue, "receive", None)
    tested, beside = short(), list[object]()
    tested.drop(RAW, DAY, rows(1))
    note = Step("note", 1, lambda tick, _: beside.extend(tick.beside))
    assert evaluated(tested, [*FEEDS, note], SINCE) == [DAY]
    assert beside == []


class Waits:
    """A queue for a listening tick: each wait ends with the next of `happens`, and the last one at its own end."""

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
    """Return a function that ends the queue's waits with these acts in turn; the tick sleeps until all are done."""
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


def test_a_listening_tick_requests_an_update_notified_meanwhile(bucket_with_queue, clock, waits):
    world = listening()
    world.ask()
    waited = waits(lambda: drop(world, bucket_with_queue, DAY))
    assert evaluated(world, UNLISTED, SINCE) == [DAY]
    assert clock.seconds == REST_SECONDS
    assert waited.asked == [4, 4], "one request waits for all the time that a tick listens"
    assert bucket_with_queue.left == 0


def test_updates_notified_together_are_requested_together(bucket_with_queue, waits, monkeypatch):
    world, first, looks = listening(), Event(), list[Partition]()
    world.ask()
    waited = waits(lambda: drop(world, bucket_with_queue, DAY, NEXT_DAY))
    look = notified_partitions.sync

    def slowly(board, ledger, partition, *more, **named):
        if looks:
            waited.heard.set()  # The tick reads the log now, which has only the first day.
            first.wait(0.5)
        looks.append(partition)
        return look(board, ledger, partition, *more, **named)

    monkeypatch.setattr(notified_partitions, "sync", slowly)
    assert [each.tags for each in ticked(world, UNLISTED, SINCE).run_requests] != []
    assert world.ask().requests == (), "nothing is left to be asked for"
    assert [partition.key for partition in looks] == [DAY, NEXT_DAY]


def test_a_change_of_the_log_ends_a_tick_without_waiting_for_the_queue(bucket_with_queue, clock, waits):
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


def test_a_notification_after_the_tick_is_recorded_for_the_next_one(bucket_with_queue, clock, monkeypatch):
    over, recorded = Event(), Event()
    receive, delete = Queue.receive, Queue.delete

    def wait(queue: Queue, seconds: int = 0):
        if seconds:
            assert over.wait(10)
            drop(world, bucket_with_queue, DAY)
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
    assert bucket_with_queue.left == 0
    assert evaluated(world, UNLISTED, None) == [DAY]


def test_a_tick_whose_queue_fails_goes_on_listening_to_the_log(bucket_with_queue, clock, waits, caplog):
    world = listening()
    world.ask()

    def fail() -> None:
        waited.heard.set()
        raise QueueUnavailable("the queue has gone")

    waited = waits(fail)
    assert evaluated(world, UNLISTED, SINCE) == []
    assert clock.seconds == pytest.approx(LISTEN_SECONDS, abs=0.1)
    assert "has stopped: the queue has gone" in caplog.text
    assert open_alert_reasons() == {}


def test_waiting_for_a_recording_ends_with_the_listening_time(clock):
    recording = Lock()
    listens = Listening(ends=0.05, recording=recording)
    with recording:
        listens.wait_for_all()
        assert listens.seconds_left() > 0
    listens.over.set()
    assert listens.is_over()


def test_a_queue_that_drips_is_given_up_in_time_and_left_alone(s3_env, monkeypatch):
    monkeypatch.setattr(answers, "ANSWER_SECONDS", 1.0)
    with dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n") as server:
        queue = Queue(f"http://127.0.0.1:{server.port}/1/q")
        with pytest.raises(QueueUnavailable, match=r"no answer within 1 s"):
            queue.receive()
        with pytest.raises(QueueUnavailable, match="will be asked again in a minute"):
            queue.receive()
        assert server.callers == 1
