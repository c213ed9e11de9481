"""Behaviour of Kafka topics only, over a real broker: partitions, transactions, and records that the broker removes."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from itertools import count

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import TopicPartition

from feed_assets.core.errors import SinkUnavailable, SourceUnavailable
from feed_assets.core.limits import REASON_BYTES, REJECT_BYTES, ROW_BYTES
from feed_assets.kafka import avro, topic_reader
from feed_assets.kafka.clients import Clients
from feed_assets.kafka.registry_schemas import Schemas
from feed_assets.sources import topic_events
from feed_assets.sources.event_rows import Columns, Constant
from feed_assets.sources.topic_events import TopicEvents
from feed_assets.sources.topic_sink import TopicSink
from feed_assets_tests.support.foreign_tables import Topics, event, read_all, row
from feed_assets_tests.support.transactions import commit


@pytest.fixture
def theirs(broker):
    return Topics(broker.servers, "integer")


def send(theirs, value, partition=0):
    theirs.producer.begin_transaction()
    theirs.producer.produce(theirs.topic, value, partition=partition)
    commit(theirs.producer, theirs.admin, theirs.topic)


def test_events_behind_an_open_transaction_wait_with_the_reason(theirs):
    theirs.add([row(1, "integer")])
    theirs.send([row(2, "integer")])
    batch = theirs.source().read(None, 10)
    assert [each.correlation_id for each in batch.events] == ["c-1"]
    assert batch.waits == f"a transaction in {theirs.topic}/0 has not ended: it and all later messages wait"
    commit(theirs.producer, theirs.admin, theirs.topic)
    assert [each.correlation_id for each in theirs.source().read(batch.position, 10).events] == ["c-2"]


def test_each_partition_resumes_at_its_position_and_a_new_one_at_its_beginning(theirs):
    theirs.add([row(1, "integer"), row(2, "integer")])
    _, _, position = read_all(theirs.source(), limit=1)
    theirs.grow(3)
    for number, partition in ((3, 2), (4, 0), (5, 1)):
        send(theirs, json.dumps(row(number, "integer"), default=str), partition)
    found, _, _ = read_all(theirs.source(), position, limit=2)
    assert {each.correlation_id for each in found} == {"c-3", "c-4", "c-5"}
    assert len(found) == 3


def test_events_removed_before_their_read_are_an_error_until_reset(theirs):
    theirs.add([row(1, "integer")])
    _, _, position = read_all(theirs.source())
    theirs.add([row(2, "integer"), row(3, "integer")])
    place = TopicPartition(theirs.topic, 0, 4)
    theirs.admin.delete_records([place])[place].result(120)
    with pytest.raises(SourceUnavailable, match=r"/0 was read up to offset 2: expected it within 4 to 5.*reconcile"):
        theirs.source().read(position, 10)
    assert read_all(theirs.source())[0] == []


def test_a_recreated_topic_is_not_read_on_from_the_old_offset(theirs):
    theirs.add([row(1, "integer")])
    _, _, position = read_all(theirs.source())
    theirs.recreate()
    for number in range(2, 6):  # so that the old offset exists in the new topic
        send(theirs, json.dumps(row(number, "integer"), default=str))
    with pytest.raises(SourceUnavailable, match=r"was deleted and recreated, .*`feed-assets reconcile` reads the new"):
        theirs.source().read(position, 10)
    place = json.loads(position)
    del place["topic_id"]  # as positions of earlier releases
    assert theirs.source().read(json.dumps(place), 10).events, "a position without an id takes that of today's topic"
    assert len(read_all(theirs.source())[0]) == 4, "as reconcile reads"


def test_a_topic_that_is_recreated_during_a_read_gives_nothing(theirs, monkeypatch):
    theirs.add([row(1, "integer")])
    read = topic_reader.read

    def read_and_recreate(*args, **named):
        page = read(*args, **named)
        theirs.recreate()
        return page

    monkeypatch.setattr(topic_reader, "read", read_and_recreate)
    with pytest.raises(SourceUnavailable, match="was deleted and recreated"):
        theirs.source().read(None, 10)


def test_an_end_of_a_transaction_that_is_removed_loses_nothing(theirs):
    theirs.add([row(1, "integer")])
    _, _, position = read_all(theirs.source())
    place = TopicPartition(theirs.topic, 0, 2)
    theirs.admin.delete_records([place])[place].result(120)
    theirs.add([row(2, "integer")])
    assert read_all(theirs.source(), position)[0] == [event(2, "integer")]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"not json", "not a JSON object in UTF-8"),
        (b"\xff", "not a JSON object in UTF-8"),
        (b"[1]", "not a JSON object in UTF-8"),
        (None, "not a JSON object in UTF-8"),
        (b" " * ROW_BYTES + b"{}", f"it has more than {ROW_BYTES} bytes"),
    ],
)
def test_a_message_that_is_no_event_is_kept_with_its_place_and_reason(theirs, value, said):
    send(theirs, value)
    theirs.add([row(1, "integer")])
    found, (rejected,), _ = read_all(theirs.source())
    assert found == [event(1, "integer")]
    assert rejected.reason == f"{theirs.topic}/0 offset 0: {said}"


SCHEMA = {
    "type": "record",
    "name": "Written",
    "fields": [
        {"name": "table_name", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "run", "type": "string"},
    ],
}


def test_avro_is_read_by_registry_schemas_with_the_offset_as_a_column(theirs, registry):
    with closing(Schemas(registry.url)) as schemas:
        check_avro(theirs, schemas)


def check_avro(theirs, schemas):
    schema_id = schemas.register(f"{theirs.topic}-value", SCHEMA)
    written = {"table_name": "shop/orders", "at": event(1, "timestamp").marker, "run": "c-1"}
    send(theirs, avro.encoded(written, avro.parsed(json.dumps(SCHEMA), {}), schema_id))
    send(theirs, b"\1poison")
    columns = Columns(
        marker="_offset",
        event_marker="at",
        correlation_id="run",
        write_operation=Constant("INSERT"),
        partition_key="_partition",
        context=None,
    )
    source = TopicEvents(theirs.clients, theirs.topic, "avro", columns, schemas)
    (found,), (rejected,), _ = read_all(source)
    assert (found.marker, found.partition_key, found.correlation_id) == (0, "0", "c-1")
    assert found.event_marker == event(1, "timestamp").marker
    assert "begins with byte 1: expected the magic byte 0" in rejected.reason


LONG = {"type": "enum", "name": "Long", "symbols": ["x" * 1000]}
LISTED = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "listed", "type": {"type": "array", "items": LONG}}]}
"""A schema with which a byte stands for 1,000 characters."""


def listed(schema_id, number, count, table="shop/orders"):
    """Return a message in which so many bytes are as many long symbols."""
    written = {"table_name": table, "at": event(1, "timestamp").marker, "run": f"c-{number}"}
    written["listed"] = LONG["symbols"] * count
    return avro.encoded(written, avro.parsed(json.dumps(LISTED), {}), schema_id)


@pytest.fixture
def with_avro(theirs, registry):
    columns = Columns(marker="_offset", event_marker="at", correlation_id="run", context=None, others_in_context=True)
    with closing(Schemas(registry.url)) as schemas:
        yield TopicEvents(theirs.clients, theirs.topic, "avro", columns, schemas)


def test_a_short_message_that_stands_for_a_long_row_is_rejected_alone_and_kept_as_an_excerpt(theirs, with_avro):
    schema_id = with_avro.schemas.register(f"{theirs.topic}-value", LISTED)
    for number, count_ in enumerate((1, 2_000, 1_000, 2)):
        send(theirs, listed(schema_id, number, count_, "" if count_ == 1_000 else "shop/orders"))
    found, (longer, invalid), _ = read_all(with_avro)
    assert [each.correlation_id for each in found] == ["c-0", "c-3"]
    assert longer.reason == f"{theirs.topic}/0 offset 2: its fields have more than {ROW_BYTES} characters as JSON"
    assert "offset 4: " in invalid.reason
    assert all(len(each.raw) <= REJECT_BYTES and len(each.reason) <= REASON_BYTES for each in (longer, invalid))
    assert len(Columns().read({"of any other source": LONG["symbols"] * 40_000}).raw) < 100


def test_a_read_ends_with_the_message_whose_context_fills_it_and_the_next_read_continues(
    theirs, with_avro, monkeypatch
):
    schema_id = with_avro.schemas.register(f"{theirs.topic}-value", LISTED)
    for number in range(5):
        send(theirs, listed(schema_id, number, 2))
    monkeypatch.setattr(topic_events, "READ_BYTES", 4_000)
    first = with_avro.read(None, 10)
    assert [each.correlation_id for each in first.events] == ["c-0", "c-1"]
    assert (first.is_complete, first.waits) == (False, None)
    assert [each.correlation_id for each in read_all(with_avro, first.position)[0]] == ["c-2", "c-3", "c-4"]


def test_a_read_ends_once_decoding_took_too_long_and_the_next_read_continues(theirs, with_avro, monkeypatch):
    schema_id = with_avro.schemas.register(f"{theirs.topic}-value", LISTED)
    for number in range(3):
        send(theirs, listed(schema_id, number, 2))
    monkeypatch.setattr(topic_events, "monotonic", count(0, 1_000).__next__)
    batch, found = with_avro.read(None, 10), []
    while batch.events:
        found.append([each.correlation_id for each in batch.events])
        batch = with_avro.read(batch.position, 10)
    assert found == [["c-0"], ["c-1"], ["c-2"]]


@pytest.mark.parametrize(("most", "seconds", "rows"), [(3, 0, [3, 3, 2]), (100, 1_000, [1] * 8)])
def test_a_read_ends_after_many_or_slow_requests_for_schemas_and_the_next_read_continues(
    theirs, with_avro, monkeypatch, most, seconds, rows
):
    monkeypatch.setattr(topic_events, "LOOKUPS", most)
    monkeypatch.setattr(topic_events, "monotonic", count(0, seconds).__next__)
    theirs.grow(2)
    for number in range(8):
        send(theirs, avro.HEAD.pack(0, 1_000_000 + number), number % 2)
    position, found, batch = None, [], None
    while batch is None or not batch.is_complete:
        batch = with_avro.read(position, 10)
        position = batch.position
        found.append([each.reason for each in batch.rejected])
    assert [len(each) for each in found if each] == rows
    assert sorted(int(each.split()[-1]) for reasons in found for each in reasons) == [1_000_000 + n for n in range(8)]


def test_a_topic_that_is_not_there_and_a_broker_that_does_not_answer_are_unavailable(broker):
    here, nowhere = Clients({"bootstrap.servers": broker.servers}), Clients({"bootstrap.servers": "127.0.0.1:9"})
    with pytest.raises(SourceUnavailable, match="there is no topic nothing"):
        TopicEvents(here, "nothing", "json").read(None, 10)
    with pytest.raises(SourceUnavailable, match="cannot read nothing"):
        TopicEvents(nowhere, "nothing", "json").read(None, 10, 1)


def numbered(first, last):
    return [(number, event(number, "timestamp")) for number in range(first, last + 1)]


def published(theirs):
    return [each.correlation_id for each in read_all(theirs.source())[0]]


def test_foreign_messages_and_earlier_positions_lose_none_of_our_events(theirs):
    sink = TopicSink(theirs.clients, theirs.topic)
    sink.publish(numbered(1, 3))
    for value in (b"not json", b"[1]", b'{"sequence": "x"}'):
        send(theirs, value)
    sink.publish(numbered(2, 5))
    assert published(theirs) == ["c-1", "c-2", "c-3", "c-4", "c-5"]
    other = [(number, event(number + 10, "timestamp")) for number in (2, 3)]  # Imitates a restored ledger.
    sink.publish(other)
    assert published(theirs)[5:] == ["c-12", "c-13"]


@dataclass(frozen=True)
class Meanwhile(Clients):
    """Clients of a process, beside which another one publishes after this one has begun."""

    clients: Clients
    publish: Callable[[], object]

    def producer(self, transactional_id, seconds):
        return self.clients.producer(transactional_id, seconds)

    def reader(self):
        self.publish()
        return self.clients.reader()


def test_of_two_simultaneous_topic_publishers_one_is_fenced_without_duplicates(theirs):
    other = TopicSink(theirs.clients, theirs.topic)
    slow = TopicSink(Meanwhile(theirs.clients, lambda: other.publish(numbered(1, 3))), theirs.topic)
    with pytest.raises(SinkUnavailable, match="another process does"):
        slow.publish(numbered(1, 5))
    assert published(theirs) == ["c-1", "c-2", "c-3"]
    other.publish(numbered(1, 5))
    assert published(theirs) == ["c-1", "c-2", "c-3", "c-4", "c-5"]


def test_foreign_messages_are_skipped_without_being_kept(theirs, monkeypatch):
    found, tail, clock = [], topic_reader.tail, count()

    def spied(*args):
        found.extend(kept := tail(*args))
        return kept

    monkeypatch.setattr(topic_reader, "tail", spied)
    monkeypatch.setattr(topic_reader, "SECONDS", 60)
    monkeypatch.setattr(topic_reader, "monotonic", lambda: next(clock))
    producer = Producer({"bootstrap.servers": theirs.servers})
    for _ in range(200):
        producer.produce(theirs.topic, b"of somebody else", partition=0)
    assert producer.flush(30) == 0
    sink = TopicSink(Clients({"bootstrap.servers": theirs.servers}), theirs.topic)
    sink.publish(numbered(1, 1))
    assert found == []
    sink.publish(numbered(1, 2))
    assert [json.loads(each.value)["sequence"] for each in found] == [1]
    assert len([each for each in published(theirs) if each is not None]) == 2
