"""Messages that exceed the limits of companion topics, and the limits set there."""

import os
from collections import Counter
from contextlib import closing
from time import time

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.cimpl import NewTopic

from feed_assets.core.errors import LetterLeft, SignalRefused
from feed_assets.core.topics import dead_letters_of, signals_of
from feed_assets.kafka import companion_topics, dead_letters
from feed_assets.kafka.catch_up import catch_up
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.signals import CUT, LEFT
from feed_assets_tests.support.kafka_topics import POISON, World, header
from feed_assets_tests.support.servers import wait_until

LONG = b"\1" + os.urandom(499_999)


def narrow(world: World, partitions: int = 1, limit: int = 20_000) -> None:
    """Create the topic of dead letters beforehand, with a small limit for messages."""
    name = dead_letters_of(world.name)
    topic = NewTopic(name, partitions, config={"max.message.bytes": str(limit)})
    world.admin.create_topics([topic])[name].result(120)


def test_the_topics_beside_keep_everything_and_take_what_was_packed_upstream(world):
    world.create(**{"max.message.bytes": "100000"})
    packing = Producer(
        {"bootstrap.servers": world.place.servers, "compression.type": "gzip", "message.max.bytes": 10**7}
    )
    packing.produce(world.name, b"x" * 3_000_000, world.key(1), 0)
    assert packing.flush(30) == 0
    world.run_until_done()
    world.check()
    assert [len(each.value()) for each in world.dead_letters()] == [3_000_000]
    for name in (signals_of(world.name), dead_letters_of(world.name)):
        found = {key: each.value for key, each in companion_topics.config_of(world.admin, name).items()}
        assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")
        assert int(found["max.message.bytes"]) == companion_topics.LEAST


@pytest.mark.parametrize("limit", ["20000000", str(2**31 - 1)])
def test_companion_topics_accept_messages_as_long_as_their_topic(world, limit):
    world.create(**{"max.message.bytes": limit})
    assert companion_topics.prepare(world.admin, world.name).longest > 20_000_000
    for name in (signals_of(world.name), dead_letters_of(world.name)):
        assert int(companion_topics.config_of(world.admin, name)["max.message.bytes"].value) > 20_000_000


def test_an_existing_companion_topic_with_smaller_limits_is_altered(world):
    world.create()
    narrow(world)
    world.send(LONG)
    world.run_until_done()
    world.check()
    assert [each.value() for each in world.dead_letters()] == [LONG]


def test_too_long_dead_letters_are_cut_and_stop_nothing(world, monkeypatch):
    monkeypatch.setattr(companion_topics, "_widen", lambda *_: 20_000)
    world.create()
    narrow(world)
    for value in (POISON, LONG, POISON):
        world.send(value)
    world.produce(2)
    world.run_until_done()
    world.check()
    assert [each.value() for each in world.dead_letters()] == [POISON, LONG[:LEFT], POISON]
    cut = world.dead_letters()[1]
    assert (dict(cut.headers())[CUT], header(cut, "offset")) == (b"500000", "1")
    assert header(cut, "reason").startswith("the value begins with byte")
    clients = Clients({"bootstrap.servers": world.place.servers})
    with pytest.raises(
        LetterLeft, match=r"1 dead letters stay open.*/0 offset 1 has only the beginning of its message"
    ):
        dead_letters.settle(clients, world.name, produces=True)
    wait_until(lambda: [each.value() for each in world.messages()][5:] == [POISON, POISON], "the replayed ones")
    left = [each for each in dead_letters.letters(clients, world.name, 10) if each.is_open]
    assert [(each.offset, each.reason[:22]) for each in left] == [(1, "the value begins with ")]
    assert dead_letters.settle(clients, world.name, produces=False) == 1


def test_long_names_of_headers_count_in_bytes(world):
    """The broker compares bytes: these names have 6 MB in characters, and 24 MB in bytes."""
    world.create()
    packing = Producer(
        {"bootstrap.servers": world.place.servers, "compression.type": "zstd", "message.max.bytes": 10**8}
    )
    packing.produce(world.name, POISON, headers=[("".join(map(chr, range(0x10000, 0x40000))), b"")] * 30)
    assert packing.flush(30) == 0
    world.run_until_done()
    (letter,) = world.dead_letters()
    assert (letter.value(), dict(letter.headers())[CUT]) == (POISON, str(len(POISON)).encode())


def test_letters_that_the_broker_refuses_are_cut(world, monkeypatch):
    monkeypatch.setattr(companion_topics, "_widen", lambda *_: companion_topics.LEAST)
    world.create()
    narrow(world)
    for value in (POISON, LONG):
        world.send(value)
    world.run_until_done()
    assert [each.value() for each in world.dead_letters()] == [POISON, LONG[:LEFT]]


def test_letters_that_cannot_be_written_stop_their_partition_alone(world, monkeypatch, capfd):
    monkeypatch.setattr(companion_topics, "_widen", lambda *_: companion_topics.LEAST)
    world.create(2)
    narrow(world, 2, 200)
    world.send(os.urandom(5000))
    refused, chunking = "offsets 0 to 0.*MSG_SIZE_TOO_LARGE.*take messages of 8388608 bytes", world.place.chunking()
    with closing(chunking.schemas), pytest.raises(SignalRefused, match=refused):
        catch_up(chunking, world.name, world.settings)
    with world.connector() as running:
        running.wait(lambda: "does not read" in capfd.readouterr().err, "the partition to be left")
        world.produce(10, 1)
        running.wait(lambda: world.reached(1) == 10, "the other partition")
        running.stopping.set()
        running.thread.join(60)
        assert isinstance(running.ended_with(), SignalRefused)
    assert world.reached(0) == 0


def test_letters_that_their_topic_would_remove_at_once_stay_open(world):
    day = 86_400_000
    world.create(**{"retention.ms": str(day)})
    now = int(time() * 1000)
    for number, timestamp in enumerate((now - 2 * day, now)):
        headers = [("op", b"update")]
        world.producer.produce(world.name, POISON, world.key(number), 0, headers=headers, timestamp=timestamp)
    assert world.producer.flush(30) == 0
    world.run_until_done()
    clients = Clients({"bootstrap.servers": world.place.servers})
    with pytest.raises(LetterLeft, match=r"/0 offset 0 is older than clicks.* keeps messages.*raise its retention.ms"):
        dead_letters.settle(clients, world.name, produces=True)
    wait_until(lambda: [each.timestamp()[1] for each in world.messages()][2:] == [now], "the replayed one")
    world.configure(**{"retention.ms": "-1"})
    assert dead_letters.settle(clients, world.name, produces=True) == 1
    wait_until(lambda: [each.timestamp()[1] for each in world.messages()][3:] == [now - 2 * day], "the other one")


def test_many_dead_letters_are_handled_in_several_reads(world, monkeypatch):
    monkeypatch.setattr(dead_letters, "LETTERS_PER_READ", 2)
    world.create(partitions=2)
    for number in range(7):
        world.send(POISON, number, number % 2)
    world.run_until_done(2)
    clients = Clients({"bootstrap.servers": world.place.servers})
    assert dead_letters.settle(clients, world.name, produces=True) == 7
    twice = Counter({(number % 2, world.key(number)): 2 for number in range(7)})
    wait_until(lambda: Counter((each.partition(), each.key()) for each in world.messages()) == twice, "all of them")
    assert not any(each.is_open for each in dead_letters.letters(clients, world.name, 10))


def test_a_missing_right_to_alter_a_topic_names_the_setting(capfd, monkeypatch):
    def refused(*_):
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    monkeypatch.setattr(companion_topics, "partitions", lambda *_: 1)
    monkeypatch.setattr(companion_topics, "config_of", refused)
    companion_topics._widen(None, "clicks-signals", 9_000_000)
    assert "clicks-signals has too small a message limit" in (said := capfd.readouterr().err)
    assert "Set its max.message.bytes to 9000000: otherwise longer dead letters are cut." in said


def test_letters_go_back_to_a_topic_that_takes_little_at_a_time(world):
    world.create(**{"max.message.bytes": "20000"})
    for number in range(5):
        world.send(b"\1" + os.urandom(9000), number)
    world.run_until_done()
    clients = Clients({"bootstrap.servers": world.place.servers})
    assert dead_letters.settle(clients, world.name, produces=True) == 5
    values = [each.value() for each in world.messages()][:5]
    wait_until(lambda: [each.value() for each in world.messages()] == values * 2, "all of them")
