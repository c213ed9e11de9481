"""Notifications of a store lead to the same ledger as a listing, whatever they contain."""

import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Secret

from feed_assets.core.errors import BlackboardRefused, QueueUnavailable
from feed_assets.core.feeds import MANIFEST, Feed, Partition, update_id
from feed_assets.core.s3_events import parse_objects as told_of
from feed_assets.core.setting_types import BlackboardLocation
from feed_assets.feeds.blackboard import Blackboard
from feed_assets.feeds.queues import MESSAGES_PER_REQUEST, Queue, QueueMessage
from feed_assets.feeds.write import publish
from feed_assets.ledger import log, updates
from feed_assets.ledger.batch_sets import pins_of
from feed_assets.ledger.database import open_ledger
from feed_assets.runs import notified_partitions as module
from feed_assets.runs.discover import discover_all
from feed_assets.runs.notified_partitions import Notified
from feed_assets.runs.services import Services
from feed_assets.settings import Settings
from feed_assets_tests.support.s3_notifications import NotifyingBucket, by_event_bridge, by_sns, notifying_bucket

BUCKET, ROOT = "lakes", "lake/of ours"
RAW, HELD = Feed.parse("t/raw/v1.0"), Feed.parse("t/held/v1.0")
DAY, NEXT_DAY = Partition(RAW, "2026-01-01"), Partition(RAW, "2026-01-02 x")
NOW = datetime(2026, 1, 3, tzinfo=UTC)


@pytest.fixture
def rung(home, monkeypatch):
    """Provide a bucket that notifies a queue of moto."""
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with notifying_bucket(BUCKET) as made:
        made.take()  # S3's test event
        yield made


def never() -> bool:
    return False


def world(board: Blackboard, ledger, rung: NotifyingBucket, **more) -> Notified:
    settings = Settings(blackboard=f"s3://{BUCKET}/{ROOT}", blackboard_queue=rung.url, **more)
    return Notified.of(Services(board, ledger, lambda: None, now=lambda: NOW), settings, [RAW, HELD], {HELD})


@pytest.fixture
def heard(local_board, ledger, rung):
    return world(local_board, ledger, rung)


def written(board: Blackboard, partition: Partition, days: int = 0) -> list[str]:
    """Publish an update, and return its keys in the bucket, parts first."""
    made = publish(board, partition, {"part-1": b"x", "part-2": b"y"}, NOW + timedelta(days=days))
    return [f"{ROOT}/{key}" for key in [*(file.key for file in made.files), f"{made.path}/{MANIFEST}"]]


def newest(ledger, *partitions: Partition) -> dict[str, str]:
    with ledger.read() as connection:
        found = updates.newest(connection, partitions or (DAY, NEXT_DAY))
    return {partition.key: row.id for partition, row in found.items()}


def hear(heard: Notified) -> bool:
    (queue,) = heard.queues
    return heard.hear(queue, never)


def test_a_notified_manifest_is_recorded_and_its_message_deleted(heard, local_board, ledger, rung):
    rung.write(written(local_board, NEXT_DAY)[-1])
    assert hear(heard)
    assert newest(ledger) == {NEXT_DAY.key: update_id(NOW)}
    assert rung.left == 0


def test_an_invalidated_update_is_recorded_for_each_way_of_invalidation(heard, local_board, ledger, rung):
    first, second = written(local_board, DAY)[-1], written(local_board, NEXT_DAY)[-1]
    rung.write(first, second)
    hear(heard)
    local_board.delete([first.removeprefix(f"{ROOT}/")])
    rung.remove(first)
    more = f"{NEXT_DAY.path}/{update_id(NOW)}/part-3"
    local_board.put(more, b"z")
    rung.write(f"{ROOT}/{more}")
    hear(heard)
    assert newest(ledger) == {}


def test_a_batch_of_an_appendable_feed_is_one_and_one_that_is_gone_is_gone(heard, local_board, ledger, rung):
    batch = Partition(HELD, "2026-01-01/a")
    keys = written(local_board, batch)
    rung.write(keys[-1])
    hear(heard)
    assert newest(ledger, batch) == {batch.key: update_id(NOW)}
    with ledger.read() as connection:
        (pins,) = pins_of(connection, [Partition(HELD, "2026-01-01")]).values()
    assert [pin.partition for pin in pins] == [batch], "it is one of its partition's set"
    local_board.delete([key.removeprefix(f"{ROOT}/") for key in keys])
    rung.remove(*keys)
    hear(heard)
    assert newest(ledger, batch) == {}


@pytest.mark.parametrize(
    "wrap", [by_sns, lambda body: by_event_bridge(BUCKET, f"{ROOT}/{DAY.path}/{update_id(NOW)}/x")]
)
def test_notifications_through_sns_and_eventbridge_are_equivalent(heard, local_board, ledger, rung, wrap):
    rung.write(written(local_board, DAY)[-1])
    (body,) = rung.take()
    rung.send(wrap(body))
    hear(heard)
    assert newest(ledger) == {DAY.key: update_id(NOW)}
    assert rung.left == 0


def test_many_notifications_of_a_partition_cause_one_check(heard, local_board, ledger, rung, monkeypatch):
    looks = list[Partition]()
    look = module.sync
    monkeypatch.setattr(
        module, "sync", lambda board, ledger, at, *a, **k: looks.append(at) or look(board, ledger, at, *a, **k)
    )
    rung.write(*written(local_board, DAY) * 5, *written(local_board, NEXT_DAY) * 3)
    hear(heard)
    assert looks == [DAY, NEXT_DAY]
    assert rung.left == 0


def test_notifications_of_other_objects_are_deleted_without_a_check(heard, ledger, rung, monkeypatch):
    monkeypatch.setattr(module, "sync", None)
    rung.send('{"Event": "s3:TestEvent"}', by_event_bridge("other", f"{ROOT}/{DAY.path}/{update_id(NOW)}/_SUCCESS"))
    rung.write(f"{DAY.path}/{update_id(NOW)}/_SUCCESS", f"{ROOT}/t/other/v1.0/x/{update_id(NOW)}/_SUCCESS", "x")
    assert hear(heard)
    assert rung.left == 0


def test_foreign_messages_stay_in_the_queue_and_stop_nothing(heard, local_board, ledger, rung, caplog):
    rung.send(*["a job of somebody else"] * (MESSAGES_PER_REQUEST + 1))
    rung.write(written(local_board, DAY)[-1])
    assert hear(heard)
    assert newest(ledger) == {DAY.key: update_id(NOW)}
    assert rung.left == MESSAGES_PER_REQUEST + 1
    assert "stays on the queue: found 'a job of somebody else', expected a notification of S3" in caplog.text


def test_a_feed_that_cannot_be_read_holds_up_no_other_and_its_messages_come_again(
    heard, local_board, ledger, rung, monkeypatch, caplog
):
    batch = Partition(HELD, "2026-01-01/a")
    rung.write(written(local_board, batch)[-1], written(local_board, Partition(HELD, "2026-01-01/b"))[-1])
    rung.write(written(local_board, DAY)[-1])
    look, asked = module.sync, list[Partition]()

    def refuse(board, ledger, at, *more, **named):
        asked.append(at)
        if at.feed == HELD:
            raise BlackboardRefused("no access")
        return look(board, ledger, at, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(module, "sync", refuse)
        hear(heard)
    assert asked == [batch, DAY], "one that fails is enough to know"
    assert (newest(ledger), rung.left) == ({DAY.key: update_id(NOW)}, 2)
    assert "t/held/v1.0 could not be read after its store reported a change: no access" in caplog.text
    rung.again()
    hear(heard)
    assert (newest(ledger, batch), rung.left) == ({batch.key: update_id(NOW)}, 0)


def test_a_kill_before_the_deletion_repeats_the_message_without_effect(heard, local_board, ledger, rung, monkeypatch):
    rung.write(written(local_board, DAY)[-1])

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "delete", killed)
        with pytest.raises(SystemExit):
            hear(heard)
    assert newest(ledger) == {DAY.key: update_id(NOW)}, "the ledger has it before the queue is told"
    rung.again()
    before = last(ledger)
    hear(heard)
    assert (rung.left, last(ledger)) == (0, before)


def last(ledger) -> int:
    with ledger.read() as connection:
        return log.last(connection)


def test_reading_a_queue_is_limited_and_reports_the_rest(local_board, ledger, rung, heard, monkeypatch):
    monkeypatch.setattr(module, "MESSAGES_PER_LOOK", 20)
    rung.write(*written(local_board, DAY) * 10)
    assert not hear(heard)
    assert rung.left == 10
    assert hear(heard)
    assert rung.left == 0


def test_a_look_without_time_looks_at_one_partition_and_leaves_the_others(
    local_board, ledger, rung, heard, monkeypatch
):
    parsed = list[str]()
    monkeypatch.setattr(module, "parse_objects", lambda body: parsed.append(body) or told_of(body))
    rung.write(written(local_board, DAY)[-1], written(local_board, NEXT_DAY)[-1])
    (queue,) = heard.queues
    assert not heard.hear(queue, lambda: True)
    assert (newest(ledger), rung.left, len(parsed)) == ({DAY.key: update_id(NOW)}, 1, 1)


ACTS = ("written", "written again", "invalidated")


@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_notifications_lost_doubled_or_reordered_end_where_the_listing_does(
    heard, local_board, ledger, rung, tmp_path, order, lost
):
    first, second = written(local_board, DAY), written(local_board, DAY, days=1)
    local_board.delete([second[-1].removeprefix(f"{ROOT}/")])
    rung.write(first[-1], second[-1])
    rung.remove(second[-1])
    bodies = rung.take()
    assert len(bodies) == len(ACTS)
    rung.send(*(bodies[number] for number in order for _ in range(2) if number not in lost))
    hear(heard)
    hear(heard)
    assert as_listed(heard, ledger) == as_listed_alone(local_board, tmp_path) == {DAY.key: update_id(NOW)}


def as_listed(heard: Notified, ledger) -> dict[str, str]:
    discover_all(heard.services, [RAW, HELD], {HELD})
    return newest(ledger)


def as_listed_alone(board: Blackboard, folder) -> dict[str, str]:
    alone = open_ledger(f"sqlite:///{folder / 'alone.db'}")
    discover_all(Services(board, alone, lambda: None, now=lambda: NOW), [RAW, HELD], {HELD})
    return newest(alone)


def test_a_manifest_notified_before_its_files_is_found_by_the_listing(heard, local_board, ledger, rung, tmp_path):
    keys = written(local_board, DAY)
    part = keys[0].removeprefix(f"{ROOT}/")
    local_board.delete([part])
    rung.write(keys[-1])
    hear(heard)
    assert (newest(ledger), rung.left) == ({}, 0)
    local_board.put(part, b"x")
    assert as_listed(heard, ledger) == as_listed_alone(local_board, tmp_path) == {DAY.key: update_id(NOW)}


def test_a_manifest_notified_before_its_files_is_found_by_a_file_notification(heard, local_board, ledger, rung):
    keys = written(local_board, DAY)
    part = keys[0].removeprefix(f"{ROOT}/")
    local_board.delete([part])
    rung.write(keys[-1])
    hear(heard)
    local_board.put(part, b"x")
    rung.write(keys[0])
    hear(heard)
    assert newest(ledger) == {DAY.key: update_id(NOW)}


def test_foreign_blackboards_have_separate_or_shared_queues(local_board, ledger, rung):
    partner = BlackboardLocation(url=f"s3://{BUCKET}/partner", queue=rung.url)
    settings = Settings(
        blackboard=f"s3://{BUCKET}/{ROOT}", blackboard_queue=rung.url, blackboards=Secret({"partner": partner})
    )
    other = Blackboard.open("memory://")
    services = Services(local_board, ledger, lambda: None, elsewhere={HELD: "partner"}, other_boards={"partner": other})
    both = Notified.of(services, settings, [RAW, HELD], {HELD})
    assert both.queues == {Queue(rung.url): RAW}
    batch = Partition(HELD, "2026-01-01/a")
    theirs = publish(other, batch, {"part": b"x"}, NOW)
    rung.write(f"partner/{theirs.path}/{MANIFEST}", written(local_board, DAY)[-1])
    hear(both)
    assert newest(ledger, batch, DAY) == {batch.key: update_id(NOW), DAY.key: update_id(NOW)}


def test_a_blackboard_without_settings_is_left_to_listings(local_board, ledger, rung):
    services = Services(local_board, ledger, lambda: None, elsewhere={HELD: "nobody"})
    settings = Settings(blackboard=f"s3://{BUCKET}", blackboard_queue=rung.url)
    assert Notified.of(services, settings, [RAW, HELD], {HELD}).queues == {Queue(rung.url): RAW}


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        (Queue("https://sqs.eu-west-1.amazonaws.com/1/none"), "does not exist"),
        (Queue("http://127.0.0.1:9/1/none"), "Could not connect"),
        (Queue("https://sqs.eu-west-1.amazonaws.com/1/none", "nobody"), "profile .nobody. could not be found"),
    ],
)
def test_an_unreachable_queue_is_reported_with_the_remedy(rung, queue, said):
    with pytest.raises(QueueUnavailable, match=rf"{queue.url} cannot be read: .*{said}.* Check the URL"):
        queue.receive()


def test_a_message_that_cannot_be_deleted_is_logged_without_an_error(rung, caplog):
    rung.send("x")
    queue = Queue(rung.url)
    (message,) = queue.receive()
    queue.delete([message])
    queue.delete([message])
    assert rung.left == 0


def test_the_documented_bucket_policy_notifies_exactly_manifests(rung):
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.partition("\n## A bucket that tells\n")[2].partition("\n## ")[0]
    policy, wanted = map(json.loads, re.findall(r"^```json\n(.*?)^```", section, re.MULTILINE | re.DOTALL))
    arn = rung.sqs.get_queue_attributes(QueueUrl=rung.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    (statement,), (told,) = policy["Statement"], wanted["QueueConfigurations"]
    assert statement["Resource"] == told["QueueArn"] == arn
    rung.s3.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration=wanted)
    rung.take()
    day = f"feeds/{DAY.path}/{update_id(NOW)}"
    rung.write(f"{day}/part-1", f"{day}/{MANIFEST}", f"others/{day}/{MANIFEST}")
    rung.remove(f"{day}/{MANIFEST}")
    assert [each.key for body in rung.take() for each in told_of(body)] == [f"{day}/{MANIFEST}"] * 2


class Told:
    """A queue with messages that a test puts there."""

    url = "a test"

    def __init__(self) -> None:
        self.messages = list[QueueMessage]()

    def receive(self, seconds: int = 0) -> list[QueueMessage]:
        found, self.messages = self.messages, []
        return found

    def delete(self, messages: Sequence[QueueMessage]) -> None:
        """Ignore the deletion: the message was received only once."""


@dataclass
class Producer:
    """A team that writes and removes objects of two partitions, and the notifications of its bucket."""

    board: Blackboard
    told: list[QueueMessage] = field(default_factory=list[QueueMessage])

    def act(self, day: Partition, hour: int, name: str, put: bytes | None) -> None:
        key = f"{day.path}/{update_id(NOW + timedelta(hours=hour))}/{name}"
        self.board.delete([key]) if put is None else self.board.put(key, put)
        number = str(len(self.told))
        self.told.append(QueueMessage(number, by_event_bridge(BUCKET, f"{ROOT}/{key}"), number))


NAMES = st.sampled_from([("part-1", b"x"), (MANIFEST, b"1"), ("part-2", b"y"), (MANIFEST, b"2")])
OBJECTS = st.tuples(st.sampled_from([DAY, NEXT_DAY]), st.integers(0, 1), NAMES, st.sampled_from([True, True, False]))


@hypothesis.settings(max_examples=40)
@given(acts=st.lists(st.tuples(OBJECTS, st.integers(0, 3)), min_size=5, max_size=25), dice=st.randoms())
def test_random_notifications_end_in_the_same_ledger_as_listings(empty_ledger, acts, dice):
    """Send some of the pending notifications after each action, in any order; list everything at the end."""
    with TemporaryDirectory() as folder:
        shutil.copyfile(empty_ledger, f"{folder}/told.db")
        shutil.copyfile(empty_ledger, f"{folder}/alone.db")
        ledger, alone = (open_ledger(f"sqlite:///{folder}/{name}.db") for name in ("told", "alone"))
        board = Blackboard.open("memory://")
        services = Services(board, ledger, lambda: None, now=lambda: NOW)
        settings = Settings(blackboard=f"s3://{BUCKET}/{ROOT}")
        heard, queue, producer = Notified.of(services, settings, [RAW], set()), Told(), Producer(board)
        for (day, hour, (name, data), is_put), count in acts:
            producer.act(day, hour, name, data if is_put else None)
            queue.messages = dice.choices(producer.told, k=count)
            heard.hear(queue, never)
        discover_all(services, [RAW])
        discover_all(replace(services, ledger=alone), [RAW])
        assert newest(ledger) == newest(alone)
        for each in (ledger, alone):
            each.engine.dispose()
