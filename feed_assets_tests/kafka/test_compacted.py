"""Compacted topics: chunks have the remaining messages, and their ranges include removed offsets."""

from contextlib import closing, suppress
from random import Random
from time import time
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer

from feed_assets.core.chunks import OffsetRange
from feed_assets.kafka import range_reader as module
from feed_assets_tests.kafka.topic_steps import catch_up_once
from feed_assets_tests.support.fault_seeds import seeds
from feed_assets_tests.support.kafka_topics import World
from feed_assets_tests.support.servers import wait_until

CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1",
}
"""Settings by which the broker cleans all but the newest segment; each message has its own segment."""

CLEANER_SECONDS = 180
"""Patience: the broker has one cleaner for the topics of all tests."""

WAYS = [World.run_until_done, catch_up_once]


class Sent(NamedTuple):
    """A message: its key is a digit up to 6, and its number is unique."""

    key: int
    number: int
    operation: str


class Compacted:
    """A topic, and all messages ever sent to it."""

    def __init__(self, world: World, **config: str) -> None:
        self.world, self.sent = world, list[Sent]()
        world.create(**CLEANED, **config)
        self._began = int(time() * 1000) - 3_600_000

    def send(self, keys: str, operation: str = "update") -> None:
        """Send a message for each key; a delete has no value."""
        for key in map(int, keys):
            sent = Sent(key, 7 * len(self.sent) + key, operation)
            value = None if operation == "delete" else self.world.value(sent.number)
            stamp, headers = self._began + 1000 * len(self.sent), [("op", operation.encode())]
            self.world.producer.produce(
                self.world.name, value, self.world.key(sent.number), 0, headers=headers, timestamp=stamp
            )
            assert self.world.producer.flush(30) == 0
            self.sent.append(sent)

    def wait(self, *gone: int) -> None:
        """Wait until the broker keeps only the last message of each key, without offsets in `gone`, and the newest."""
        *closed, _ = self.sent
        left = {offset for offset, _ in _newest(closed).values()} - {*gone} | {len(closed)}
        wait_until(
            lambda: self.there() == left, f"the broker to leave {sorted(left)} of {len(self.sent)}", CLEANER_SECONDS
        )

    def there(self) -> set[int]:
        """Return the offsets that the broker still has."""
        return {each.offset() for each in self.world.messages()}

    def check(self) -> None:
        """Check that chunks have all messages once, and that the newest row of each key is its newest message."""
        told = self.world.told()
        assert {*told.values()} == {1}, "twice"
        assert {(0, offset) for offset in self.there()} <= told.keys()
        chunks = [self.world.rows(each) for each in self.world.signals() if each.path]
        rows = {row["id"]: (row["_offset"], row["_operation"], row.get("n")) for rows in chunks for row in rows}
        for key, (offset, sent) in _newest(self.sent).items():
            number = None if sent.operation == "delete" else str(sent.number)
            assert rows[f"k{key}"] == (str(offset), sent.operation, number)


def _newest(sent: list[Sent]) -> dict[int, tuple[int, Sent]]:
    return {each.key: (offset, each) for offset, each in enumerate(sent)}


@pytest.fixture
def topic(world: World) -> Compacted:
    return Compacted(world)


def ranges(world: World) -> list[tuple[int, int, int]]:
    return [(each.first_offset, each.last_offset, each.records) for each in world.signals()]


@pytest.mark.parametrize("way", WAYS)
def test_the_ranges_of_chunks_cover_what_was_removed_and_records_count_what_was_left(world, topic, way):
    """Grid lines, the last offsets before and the first behind them, and two lines without messages."""
    topic.send("0123456" + 15 * "6" + "26656666666666666" + "3" + "64661" + "600")
    topic.wait()
    assert topic.there() == {22, 25, 39, 41, 44, 45, 46, 47}
    way(world)
    world.check()
    topic.check()
    assert ranges(world) == [(0, 19, 0), (20, 29, 2), (30, 39, 1), (40, 47, 5)]
    assert world.signals()[0].path is None


def test_a_range_ending_in_a_compaction_gap_is_read_once_a_later_message_arrives(world, topic):
    """Use a reader that does not learn where its partition ends."""
    topic.send(25 * "1" + "2")
    topic.wait()
    conf = {"bootstrap.servers": world.place.servers, "group.id": world.name, "isolation.level": "read_committed"}
    with closing(Consumer(conf)) as reader:
        found = [*module.follow(reader, world.name, {0: OffsetRange(3, 20)})]
    assert found == [module.Reached(0, 20)]


@pytest.mark.parametrize("way", WAYS)
def test_deletes_that_were_removed_too_are_in_no_chunk_and_hold_nothing_up(world, way):
    topic = Compacted(world, **{"delete.retention.ms": "0"})
    topic.send("012")
    topic.send("2", "delete")
    topic.send("11")
    wait_until(lambda: 1 not in topic.there(), "the broker to meet the delete", CLEANER_SECONDS)
    topic.send("013")
    topic.wait(3)
    way(world)
    world.check()
    assert ranges(world) == [(0, 8, 3)]


@pytest.mark.parametrize("way", WAYS)
def test_compaction_removes_aborted_messages_and_transaction_markers(world, way):
    world.create(**CLEANED)
    producer, began = world.place.chunking().clients.producer(world.name, 60), int(time() * 1000)
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        stamp, headers = began + 1000 * number, [("op", b"update")]
        producer.produce(world.name, world.value(number), world.key(0), 0, headers=headers, timestamp=stamp)
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if number % 3 == 2 else producer.commit_transaction(30)
    wait_until(
        lambda: [each.offset() for each in world.messages()] == [20],
        "the broker to leave one of twelve",
        CLEANER_SECONDS,
    )
    way(world)
    world.produce()
    way(world)
    world.check()
    assert ranges(world) == [(0, 19, 0), (20, 20, 1), (21, 24, 1)]


@pytest.mark.parametrize(
    ("more", "way"), [("000", catch_up_once), *(("12300", way) for way in WAYS), ("000012300", catch_up_once)]
)
def test_a_chunk_compacted_away_before_its_signal_is_cut_anew(world, topic, more, way):
    """Remove the last rows of a killed connector's file; all of them; and all up to the next grid line."""
    topic.send("0123000")
    killed(world, "signal")
    topic.send(more)
    topic.wait()
    way(world)
    world.check()
    topic.check()


def killed(world: World, step: str) -> None:
    """Catch up, and be killed before a step; do nothing if the step never comes."""

    def kill(what: str) -> None:
        if what == step:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        catch_up_once(world, on_step=kill)


@pytest.mark.parametrize("chances", seeds(2, 40))
def test_the_newest_message_of_each_key_survives_kills_and_compaction(world, topic, chances):
    for chance in map(Random, chances):
        keys = "".join(chance.choices("0123456", k=chance.randint(1, 25)))
        topic.send(keys, chance.choice(["update", "update", "delete"]))
        if chance.random() < 0.7:
            topic.wait()
        if chance.random() < 0.7:
            killed(world, chance.choice(["put", "signal", "signalled", "none"]))
    topic.send("06")
    topic.wait()
    world.run_until_done()
    topic.check()
