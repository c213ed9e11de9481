"""The connector as a whole: from a real broker to files, signals and dead letters."""

import math
import re
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from secrets import token_bytes
from time import sleep
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition

from feed_assets.core.errors import MessageUnreadable
from feed_assets.core.topics import dead_letters_of, signals_of
from feed_assets.core.windows import window_of
from feed_assets.kafka import avro, offset_range, service, topic_reader
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.dead_letters import Open, letters, opened, settle
from feed_assets.kafka.lag import lag
from feed_assets.kafka.messages import LATEST
from feed_assets.kafka.signal_message import SCHEMA
from feed_assets.kafka.topic_reader import message_of
from feed_assets.sources.signal_events import _report
from feed_assets_tests.support import raw_batches
from feed_assets_tests.support.kafka_topics import FIELDS, MORE, POISON, World, header
from feed_assets_tests.support.servers import wait_until


def test_produced_messages_become_chunks_on_the_grid(world):
    world.create()
    world.produce(25)
    world.run_until_done()
    world.check()
    first, second, third = world.signals()
    assert [(each.first_offset, each.last_offset) for each in (first, second, third)] == [(0, 9), (10, 19), (20, 24)]
    assert first.path == f"{world.board.url}/chunks/{world.name}/0/00000000000000000000.csv"
    assert (first.topic, first.partition, first.dialect) == (world.name, 0, "feed_assets/1")
    assert first.schema_id == world.schema_id()
    assert world.rows(first)[3] == {"_operation": "update", "_offset": "3", "id": "k3", "n": "3"}


def test_signals_are_avro_by_the_schema_that_is_registered(world):
    world.create()
    world.produce(1)
    world.run_until_done()
    (signal,) = world.messages(signals_of(world.name))
    _, schema_id = avro.HEAD.unpack_from(signal.value())
    subject = f"{signals_of(world.name)}-value"
    assert schema_id == world.schemas.register(subject, SCHEMA)


def test_settings_cannot_change_the_isolation_of_reads(world):
    world.create()
    conf = {"bootstrap.servers": world.place.servers}
    producer = Producer({**conf, "transactional.id": world.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.name, world.value(1), world.key(1), 0)
    producer.flush(30)
    producer.abort_transaction(30)
    reading = {"isolation.level": "read_uncommitted", "enable.partition.eof": "false", "auto.offset.reset": "latest"}
    assert topic_reader.read(Clients({**conf, **reading}), world.name, {}, 10, 1000, 10).messages == []


def test_keys_and_headers_count_as_bytes_of_a_read_and_are_not_kept(world):
    world.create()
    for _ in range(10):
        world.producer.produce(world.name, b"x", b"k" * 4000, 0, headers=[("a", b"b" * 6000)])
    assert world.producer.flush(30) == 0
    clients = world.place.chunking().clients
    found = topic_reader.read(clients, world.name, {}, limit=10, size=30_000, seconds=10)
    assert [(each.message.offset, each.message.key, each.message.headers) for each in found.messages] == [
        (0, None, ()),
        (1, None, ()),
        (2, None, ()),
    ]


def test_few_batches_are_unpacked_at_once_however_short_they_are(world):
    """100 batches of 1 kB unpack to 0.9 MB each. librdkafka unpacks all batches of one answer."""
    world.create()
    producer = Producer({**world._conf, "compression.type": "zstd", "batch.num.messages": 1})
    for _ in range(100):
        producer.produce(world.name, token_bytes(1000) + bytes(900_000), partition=0)
    assert producer.flush(30) == 0
    clients = world.place.chunking().clients
    for reader in (clients.consumer(), clients.reader(), clients.page_reader()):
        reader.assign([TopicPartition(world.name, 0, 0)])
        assert reader.poll(30).error() is None
        sleep(1)  # The client reads ahead, up to its limits.
        unpacked = reader.consume(1_000, 0)
        reader.close()
        assert len(unpacked) < 40


def test_the_connector_logs_its_progress_from_time_to_time(world, monkeypatch, capfd):
    monkeypatch.setattr(service, "SAY_SECONDS", 0.1)
    world.create()
    world.produce(12)
    world.send(POISON)
    producer = Producer({"bootstrap.servers": world.place.servers, "transactional.id": world.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.name, world.value(1), world.key(1), 0)
    producer.flush(30)
    lines, pattern = [], r"in \d+ s ([\d,]+) messages, (\d+) chunks, (\d+) dead letters; (\d+) messages behind"

    def is_said():
        lines.extend(tuple(map(int, each)) for each in re.findall(pattern, capfd.readouterr().err))
        return [*map(sum, zip(*lines, strict=True))][:3] == [13, 2, 1] and lines[-1][3] == 1

    with world.connector() as running:
        running.wait(is_said, "the lines")
        standing = f"connector: {world.name}/0 stands at offset 13, with 1 offsets behind: either a producer has not"
        running.wait(lambda: standing in capfd.readouterr().err, "the line of a partition that stands")
        producer.abort_transaction(30)
        running.wait(lambda: "; 0 messages behind" in capfd.readouterr().err, "the end of the transaction")


def test_messages_that_cannot_be_unpacked_stop_their_partition_alone(world, monkeypatch, capfd):
    """librdkafka answers so to a packed message that unpacks to more than it takes: kilobytes may be any size."""
    error = KafkaError(KafkaError._BAD_COMPRESSION, "Decompression failed")
    take = service.ConnectorSession._take

    def take_what_librdkafka_unpacks(session, consumer, received):
        bad = SimpleNamespace(error=lambda: error, topic=received.topic, partition=received.partition)
        take(session, consumer, bad if received.value() == POISON else received)

    monkeypatch.setattr(service.ConnectorSession, "_take", take_what_librdkafka_unpacks)
    world.create(2)
    with world.connector() as running:
        for partition in range(2):
            world.produce(10, partition)
        running.wait(lambda: world.is_done(2), "both partitions")
        world.send(POISON)
        world.produce(10, 1)
        running.wait(lambda: world.reached(1) == 20, "the other partition")
        wait_until(lambda: "from offset 10 on cannot be unpacked: Decompression failed" in capfd.readouterr().err, "it")
        world.produce(10)
        world.produce(10, 1)
        running.wait(lambda: world.reached(1) == 30, "the other partition again")
        running.stopping.set()
        running.thread.join(60)
        assert isinstance(running.ended_with(), MessageUnreadable)
    assert world.reached(0) == 10


@pytest.mark.parametrize(("lookups", "seconds", "letters"), [(5, math.inf, 4), (1_000, 0.0, 1)])
def test_many_or_slow_unknown_schema_ids_pause_their_partition_and_are_dead_letters(
    world, monkeypatch, lookups, seconds, letters
):
    monkeypatch.setattr(service, "LOOKUPS", lookups)
    monkeypatch.setattr(service, "LOOKUP_SECONDS", 3600.0)
    world.create(2)
    with world.connector() as running:
        world.produce(1, 1)
        running.wait(lambda: world.reached(1) == 1, "a known schema")
        monkeypatch.setattr(service, "EXTRA_SECONDS", seconds)
        for number in range(20):
            world.send(avro.HEAD.pack(0, 1_000_000 + number))
        running.wait(lambda: world.reached(0) == letters, "the first letters")
        world.produce(9, 1)
        running.wait(lambda: world.reached(1) == 10, "the other partition")
        signals_and_known = 2
        assert (running._chunking.schemas.lookups, world.reached(0)) == (signals_and_known + letters, letters)
        monkeypatch.setattr(service, "LOOKUP_SECONDS", 0.1)
        running.wait(lambda: world.is_done(2), "all letters")
    assert len(world.dead_letters()) == 20


def test_poison_goes_to_the_dead_letters_with_its_reason(world):
    world.create()
    world.produce(2)
    world.send(POISON, 5)
    world.produce(1)
    world.run_until_done()
    world.check()
    (letter,) = world.dead_letters()
    assert letter.value() == POISON
    assert letter.key() == world.key(5)
    assert dict(letter.headers())["op"] == b"update"
    assert header(letter, "reason").startswith("the value begins with byte 110")
    assert [(each.records, each.dead_letters) for each in world.signals()] == [(3, 1)]


def test_a_new_schema_is_a_new_chunk(world):
    world.create()
    world.produce(3)
    world.produce(4, fields=MORE)
    world.send(None, 1)
    world.run_until_done()
    world.check()
    first, second = world.signals()
    assert (first.schema_id, second.schema_id) == (world.schema_id(), world.schema_id(MORE))
    assert world.rows(second)[0]["note"] == "é, 3"
    assert world.rows(second)[-1] == {"_operation": "delete", "_offset": "7", "id": "k1", "n": None, "note": None}


def test_values_of_any_schema_end_no_service(world):
    record = {"type": "record", "name": "value", "fields": FIELDS}
    datum = {"id": "a", "n": 1}
    world.create()
    for schema, value in ((["null", record], datum), ({"type": "map", "values": "long"}, {"n": 1})):
        schema_id = world.schemas.register(f"{world.name}-any", schema)
        world.send(avro.encoded(value, world.schemas.get(schema_id), schema_id))
    world.run_until_done()
    world.check()
    assert [(each.records, each.dead_letters) for each in world.signals()] == [(1, 1)]


def test_a_dead_letter_keeps_a_timestamp_that_the_broker_would_refuse(world):
    world.create(**{"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1"})
    stamp = 4_000_000_000_000
    world.producer.produce(world.name, b"poison", world.key(1), 0, timestamp=stamp)
    assert world.producer.flush(30) == 0
    world.run_until_done()
    clients = world.place.chunking().clients
    (letter,) = letters(clients, world.name, 10)
    assert letter.at.timestamp() * 1000 == stamp
    assert settle(clients, world.name, produces=True) == 1
    assert [each.timestamp()[1] for each in world.messages()] == [stamp, stamp]


def test_headers_of_a_producer_cannot_forge_a_receipt(world):
    world.create()
    world.produce(3)
    headers = [("feed_assets.upto", b"99999"), ("feed_assets.count", b"abc")]
    world.producer.produce(world.name, b"poison", world.key(1), 0, headers=headers)
    assert world.producer.flush(30) == 0
    world.run_until_done()
    clients = world.place.chunking().clients
    assert [(each.offset, each.is_open) for each in letters(clients, world.name, 10)] == [(3, True)]
    assert opened(clients, world.name, Open({}), 100, 10).count == 1
    assert settle(clients, world.name, produces=False) == 1
    assert opened(clients, world.name, Open({}), 100, 10).count == 0


def test_a_message_that_the_connector_has_not_written_is_no_dead_letter_and_no_receipt(world):
    """Each once ended all commands about dead letters, and the alert about them was never counted again."""
    world.create()
    world.send(b"poison")
    world.run_until_done()
    named = {"feed_assets.offset": b"0", "feed_assets.timestamp": b"1", "feed_assets.reason": b"forged"}
    for headers in (
        {},
        {"feed_assets.upto": b"x"},
        {"feed_assets.upto": b"9" * 5000, "feed_assets.count": b"1"},
        {"feed_assets.upto": b"9"},
        {"feed_assets.own": b"-3"},
        named | {"feed_assets.offset": b"x"},
        named | {"feed_assets.timestamp": b"9" * 19},
        named | {"feed_assets.timestamp": b""},
    ):
        world.producer.produce(dead_letters_of(world.name), b"junk", partition=0, headers=[*headers.items()])
    assert world.producer.flush(30) == 0
    clients = world.place.chunking().clients
    assert [(each.offset, each.is_open) for each in letters(clients, world.name, 10)] == [(0, True)]
    assert opened(clients, world.name, Open({}), 100, 10).count == 1
    assert settle(clients, world.name, produces=True) == 1
    assert opened(clients, world.name, Open({}), 100, 10).count == 0


def test_headers_of_a_producer_with_our_names_are_replayed_as_they_were(world):
    world.create()
    headers = [("feed_assets.cut", b"7"), ("feed_assets.offset", b"abc"), ("feed_assets.own", b"0")]
    world.producer.produce(world.name, b"poison", world.key(1), 0, headers=headers)
    assert world.producer.flush(30) == 0
    world.run_until_done()
    assert settle(world.place.chunking().clients, world.name, produces=True) == 1
    assert [each.headers() for each in world.messages()] == [headers, headers]


def test_schemas_in_turn_pause_their_partition_and_other_partitions_are_read(world, monkeypatch):
    monkeypatch.setattr(service, "LOOKUP_SECONDS", 3600.0)
    world.create(2)
    with world.connector() as running:
        world.produce(1, 1)
        world.produce(1, 1, MORE)
        running.wait(lambda: world.reached(1) == 2, "both schemas to be known")
        monkeypatch.setattr(service, "EXTRA_SECONDS", 0.0)
        for number in range(6):
            world.produce(1, fields=(FIELDS, MORE)[number % 2])
        running.wait(lambda: world.reached(0) == 2, "a chunk that another schema ended, and the one of that schema")
        world.produce(8, 1)
        running.wait(lambda: world.reached(1) == 10, "the other partition")
        assert world.reached(0) == 2
        monkeypatch.setattr(service, "LOOKUP_SECONDS", 0.1)
        running.wait(lambda: world.is_done(2), "all chunks")
    world.check(2)


ENUM = {"type": "enum", "name": "Long", "symbols": ["x" * 1000]}


@pytest.mark.parametrize(
    ("seconds", "items", "many", "is_tombstone"),
    [
        (3600.0, ENUM, 2_000, False),
        (3600.0, ENUM, 2_000, True),
        (offset_range.SLOW_SECONDS, "long", 60_000, False),
        (0.0, ENUM, 4, False),
    ],
    ids=["long lines", "long tombstones", "many values", "slow messages"],
)
def test_short_messages_that_stand_for_long_lines_or_are_slow_pause_their_partition(
    world, monkeypatch, seconds, items, many, is_tombstone
):
    name = "id" if is_tombstone else "listed"
    listed = {"name": name, "type": {"type": "array", "items": items}}
    fields = [listed] if is_tombstone else [*FIELDS, listed]
    monkeypatch.setattr(service, "LOOKUP_SECONDS", 3600.0)
    world.create(2)

    def send(count, partition):
        schema_id = world.schema_id(fields, "key" if is_tombstone else "value")
        item = ENUM["symbols"][0] if items is ENUM else 0
        datum = {"id": "k", "n": 1, name: [item] * count}
        data = avro.encoded(datum, world.schemas.get(schema_id), schema_id)
        key, value = (data, None) if is_tombstone else (world.key(0), data)
        world.producer.produce(world.name, value, key, partition, headers=[("op", b"update")])
        assert world.producer.flush(30) == 0

    with world.connector() as running:
        send(1, 1)
        running.wait(lambda: world.reached(1) == 1, "the schema to be known")
        monkeypatch.setattr(offset_range, "SLOW_SECONDS", seconds)
        monkeypatch.setattr(service, "EXTRA_SECONDS", 0.0)
        for _ in range(3):
            send(many, 0)
        running.wait(lambda: world.reached(0) == 1, "the first long line")
        send(many // 2, 1)
        running.wait(lambda: world.reached(1) == 2, "the other partition")
        assert world.reached(0) == 1
        monkeypatch.setattr(service, "LOOKUP_SECONDS", 0.1)
        running.wait(lambda: world.is_done(2), "all lines")


def test_a_connector_started_again_at_once_with_other_topics_reads_these(world):
    other = World(world.place)
    world.create()
    other.create()
    with closing(other.schemas):
        for each in (world, other):
            each.produce(1)
            each.run_until_done()
            each.check()


def test_partitions_added_while_no_connector_runs_are_read_at_the_next_start(world, capfd):
    """The broker gives a process with its `group.instance.id` the assignment of before."""
    world.create()
    world.produce(5)
    world.run_until_done()
    world.grow(3)
    world.produce(5, partition=2)
    world.run_until_done(3)
    world.check(3)
    assert f"joins the group again: no process reads {world.name}/1, {world.name}/2\n" in capfd.readouterr().err


def test_headers_that_the_client_cannot_give_are_none(world):
    """Python specializes calls that are made often, so the first messages would not show the error."""
    world.create()
    world.produce(100)
    for _ in range(100):
        assert raw_batches.send(world.place.servers, world.name, 0, raw_batches.with_header_that_is_no_text(b"v")) == 0
    messages = []
    with closing(world.place.chunking().clients.peeker()) as reader:
        reader.assign([TopicPartition(world.name, 0, 0)])
        while len(messages) < 150:
            received = reader.poll(1)
            messages += [message_of(received)] if received is not None and received.error() is None else []
    assert {(each.value == b"v", bool(each.headers)) for each in messages} == {(False, True), (True, False)}


def test_a_timestamp_in_microseconds_is_one_of_the_last_year(world):
    world.create(**{"message.timestamp.after.max.ms": str(2**62), "retention.ms": "-1"})
    for stamp in (1_600_000_000_000_000, 1_700_000_000_000_000):
        world.producer.produce(
            world.name, world.value(1), world.key(1), 0, headers=[("op", b"update")], timestamp=stamp
        )
    assert world.producer.flush(30) == 0
    (found,) = lag(world.place.chunking().clients, world.name)
    assert (found.behind, found.since) == (2, LATEST)
    world.run_until_done()
    world.check()
    (signal,) = world.signals()
    assert signal.minutes == {"9998-12-31T23:59Z": 2}
    earlier = replace(signal, minutes={"9999-01-01T00:00Z": 2})
    for each in (signal, earlier):
        (counted,) = _report(each, "ads/hours", timedelta(minutes=5))["windows"]
        assert counted == {"start": datetime(9998, 12, 31, 23, 55, tzinfo=UTC), "records": 2}
    for grain, zone in (("5min", "UTC"), ("hour", "UTC"), ("day", "Etc/GMT-14"), ("day", "Etc/GMT+12")):
        assert window_of(grain, LATEST, zone).end > LATEST
