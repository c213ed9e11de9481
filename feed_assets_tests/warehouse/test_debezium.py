"""Change events of Debezium become rows: envelopes, their operations, and their dates and times."""

from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from feed_assets.core.topics import Topic
from feed_assets.kafka import avro
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Message
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.warehouse.debezium_stream import DebeziumStream, envelope, event
from feed_assets_tests.warehouse.stream import ID, TEXT, Registry

DAY = {"name": "day", "type": {"type": "int", "connect.name": "io.debezium.time.Date"}}
AT = {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]}
PRICE = {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}
FIELDS = (ID, TEXT, DAY, AT, PRICE)


@pytest.fixture
def stream(loader):
    return DebeziumStream(loader.place.board, f"orders.{id(loader)}")


def order(id_: int, number: int) -> dict[str, Any]:
    at = datetime(2026, 1, 2, 3, 4, 5, number) if number % 3 else None  # noqa: DTZ001  Debezium's have no time zone.
    return {"id": id_, "text": f"{number}", "day": date(2026, 1, 1 + number % 28), "at": at, "price": Decimal(number)}


def test_a_history_of_changes_becomes_the_table_it_came_from(loader, stream):
    random, existing = Random(7), {*range(5)}  # noqa: S311
    schema = stream.schemas.add(*envelope(*FIELDS), name="Envelope")
    stream.send(schema, *(("refresh", order(id_, id_)) for id_ in range(5)))
    for number in range(10, 60):
        id_ = random.randrange(8)
        if id_ in existing and random.random() < 0.4:
            stream.send(schema, ("delete", order(id_, number)), (None, {"id": id_}))
            existing.remove(id_)
        else:
            stream.send(schema, ("update" if id_ in existing else "create", order(id_, number)))
            existing.add(id_)
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()
    assert len(stream.model()) == len(existing)


def test_a_new_column_of_the_table_is_a_new_column_of_the_warehouse(loader, stream):
    stream.send(stream.schemas.add(*envelope(ID, TEXT), name="Envelope"), {"id": 1, "text": "a"})
    more = {"name": "n", "type": ["null", "int"], "default": None}
    stream.send(stream.schemas.add(*envelope(ID, TEXT, more), name="Envelope"), {"id": 2, "text": "b", "n": 3})
    loader.load(stream)
    assert loader.ask(f'SELECT id, text, n FROM "{stream.name}" ORDER BY id') == [(1, "a", None), (2, "b", 3)]


REGISTRY = Registry()
ENVELOPE, FLAT = REGISTRY.add(*envelope(ID, TEXT), name="Envelope"), REGISTRY.add(ID, TEXT)
UNWRAPPED = REGISTRY.add(ID, {"name": "__deleted", "type": "string"})
ROW = {"id": 1, "text": "a"}


def decoded(topic_operation: str, schema_id: int, value: Any) -> Any:
    data = avro.encoded(value, REGISTRY.get(schema_id), schema_id)
    return Decoder(Topic(key=("id",), operation=topic_operation), REGISTRY)(Message(0, None, data, []))  # type: ignore[arg-type]


@each_case(
    "value, reason",
    [
        (event("t", ROW), "the field op is 't': expected one of c, r, u, d"),
        (event("create", ROW) | {"after": None}, "the field after of a create is None: expected a row"),
        (event("delete", ROW) | {"before": None}, "the field before of a delete is None: expected a row"),
        (event("update", ROW | {"text": "__debezium_unavailable_value"}), "text is a long value that was not sent"),
    ],
)
def test_an_event_without_a_whole_row_is_a_dead_letter(value, reason):
    dead = decoded("debezium", ENVELOPE, value)
    assert isinstance(dead, DeadLetter)
    assert dead.reason.startswith(reason)


def test_an_unwrapped_row_with_a_placeholder_is_a_dead_letter():
    dead = decoded("", FLAT, ROW | {"text": "__debezium_unavailable_value"})
    assert dead.reason.startswith("text is a long value that was not sent")
    array = REGISTRY.add(ID, {"name": "texts", "type": {"type": "array", "items": "string"}})
    dead = decoded("", array, {"id": 1, "texts": ["__debezium_unavailable_value"]})
    assert dead.reason.startswith("texts is a long value that was not sent")


@each_case(
    "before, row",
    [
        ([TEXT, ID], {"text": "a", "id": 1}),
        ([ID], {"id": 1}),
        ([ID, TEXT, {"name": "n", "type": "int"}], ROW | {"n": 1}),
    ],
)
def test_a_deleted_row_with_other_fields_than_the_new_row_is_a_dead_letter(before, row):
    """Its cells would not fit the columns of its chunk, which no warehouse could then load."""
    fields = envelope(ID, TEXT)
    fields[0] = fields[0] | {"type": ["null", {"type": "record", "name": "Before", "fields": before}]}
    fields[1] = fields[1] | {"type": ["null", {"type": "record", "name": "After", "fields": [ID, TEXT]}]}
    schema = REGISTRY.add(*fields, name="Envelope")
    kept, dead = (decoded("debezium", schema, each) for each in (event("create", ROW), event("delete", row)))
    assert isinstance(kept, ChunkRow)
    assert isinstance(dead, DeadLetter)
    assert dead.reason.startswith("the row has the fields [")
    assert dead.reason.endswith("]: expected those of the field after (id, text)")


def test_a_plain_row_is_no_envelope():
    dead = decoded("debezium", FLAT, ROW)
    assert "is no envelope of Debezium: expected a record with op, before and after" in dead.reason


@each_case("word, operation", [("true", "delete"), ("false", "update"), ("c", "create"), ("r", "refresh")])
def test_unwrapped_events_have_debeziums_words(word, operation):
    row = decoded("field:__deleted", UNWRAPPED, {"id": 1, "__deleted": word})
    assert isinstance(row, ChunkRow)
    assert row.line.startswith(f'"{operation}"'.encode())
