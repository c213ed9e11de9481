"""Topics with values in JSON and keys of Kafka's own serializers become the same tables as topics with Avro."""

import json
import re
import struct
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from random import Random
from threading import Event
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.serialization import IntegerSerializer, StringSerializer

from feed_assets.core.errors import InvalidDefinition, SchemaRefused
from feed_assets.core.schemas import column_types
from feed_assets.core.topic_columns import record_schema
from feed_assets.core.topics import Topic, signals_of
from feed_assets.kafka import avro, dialect, json_schemas
from feed_assets.kafka.catch_up import catch_up
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.json_schemas import columns_of
from feed_assets.kafka.json_values import SUBJECT
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Message, Tombstone
from feed_assets.kafka.registry_schemas import RegistryFails, Schemas
from feed_assets.kafka.schema_limits import InvalidSchema
from feed_assets.orchestration.declare.topic_tables import kafka_topic
from feed_assets.warehouse import loader as loader_module
from feed_assets_tests.support.connector_thread import Connector
from feed_assets_tests.support.each_case import each_case
from feed_assets_tests.support.kafka_topics import World, header
from feed_assets_tests.support.servers import wait_until
from feed_assets_tests.support.warehouse_connection import opened
from feed_assets_tests.support.warehouse_topics import loading_of, nexts
from feed_assets_tests.warehouse import connect_json
from feed_assets_tests.warehouse.debezium_stream import event
from feed_assets_tests.warehouse.loader_thread import loading_in_thread
from feed_assets_tests.warehouse.stream import Registry, Stream

ORDERS = "id string, n bigint"
COLUMNS = (
    "id bigint, text string, ok boolean, small smallint, x double, single float, price decimal(9,2), day date, "
    "at timestamp, local timestamp_ntz"
)
FINE = {
    "id": 1,
    "text": 'ü, "a"\n',
    "ok": True,
    "small": -7,
    "x": 0.1,
    "single": 0.1,
    "price": 12.5,
    "day": "2026-01-31",
    "at": "2026-01-31T23:59:59.5+01:00",
    "local": "2026-01-31 23:59:59",
}
ROW = {
    "id": 1,
    "text": 'ü, "a"\n',
    "ok": True,
    "small": -7,
    "x": 0.1,
    "single": 0.1,
    "price": Decimal("12.50"),
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 22, 59, 59, 500_000, tzinfo=UTC),
    "local": datetime(2026, 1, 31, 23, 59, 59),  # noqa: DTZ001  It has no time zone.
}


JSON_SCHEMA = """{"type": "object", "definitions": {"name": {"type": "string"}}, "properties": {
    "id": {"type": "integer"}, "text": {"$ref": "#/definitions/name"}, "ok": {"type": ["boolean", "null"]},
    "small": {"type": "integer"}, "x": {"oneOf": [{"type": "null"}, {"type": "number"}]}, "single": {"type": "number"},
    "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    "at": {"type": ["string"], "format": "date-time"}, "local": {"type": "string", "format": "email"}
}}"""
OF_JSON_SCHEMA = (
    "id bigint, text string, ok boolean, small bigint, x double, single double, day date, at timestamp, local string"
)


class RegisteringRegistry(Registry):
    """Schemas by ids, of which each is registered once under a subject."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[str, int] = {}

    def json_columns(self, schema_id: int, depth: int = 0) -> list[tuple[str, str]]:
        return columns_of({7: JSON_SCHEMA}[schema_id])

    def register(self, subject: str, schema: Any) -> int:
        if subject not in self.ids:
            self.known[len(self.known) + 1] = avro.parsed(json.dumps(schema), {})
            self.ids[subject] = len(self.known)
        return self.ids[subject]


def decoded(value: bytes | None, key: bytes | None = None, registry: Any = None, **topic: Any) -> Any:
    declared = {"key": ("id",), "values": "json", "columns": COLUMNS, **topic}
    return Decoder(Topic(**declared), registry or RegisteringRegistry())(Message(0, key, value, []))


def cells(row: Any) -> dict[str, str | None]:
    assert isinstance(row, ChunkRow), row
    (line,) = dialect.read(row.line)
    return dict(zip(row.columns, line, strict=True))


def test_a_value_has_the_cells_that_avro_would_have():
    registry = RegisteringRegistry()
    row = decoded(json.dumps(FINE).encode(), registry=registry)
    schema = registry.get(row.schema_id)
    same = avro.encoded(ROW, schema, row.schema_id)
    from_avro = Decoder(Topic(key=("id",)), registry)(Message(0, None, same, []))  # type: ignore[arg-type]
    assert row == from_avro
    framed = decoded(b"\0" + struct.pack(">I", 99) + json.dumps(FINE).encode(), registry=registry)
    assert framed == row, "the serializer of a JSON schema"
    assert decoded(connect_json.with_schema(FINE)) == row, "Kafka Connect's JSON, with its schema"
    change = {"before": None, "after": FINE, "op": "c", "source": {"lsn": 1}}
    for value in (connect_json.with_schema(change), json.dumps(change).encode()):
        created = decoded(value, operation="debezium")
        assert created.line == row.line.replace(b"update", b"create"), "Debezium's envelope"
    assert {name for name, cell in cells(decoded(b'{"id": 1}')).items() if cell is None} == {*FINE} - {"id"}


def test_a_value_with_a_json_schema_has_the_columns_of_its_properties():
    value = json.dumps({name: cell for name, cell in FINE.items() if name != "price"}).encode()
    declared = decoded(value, columns=OF_JSON_SCHEMA)
    framed = b"\0" + struct.pack(">I", 7) + value
    assert decoded(framed, values="json_schema", columns=None) == declared
    null = json.dumps({"schema": None, "payload": json.loads(value)}).encode()
    assert decoded(null, columns=OF_JSON_SCHEMA) == declared, "Kafka Connect's data without a schema"
    dead = decoded(value, values="json_schema", columns=None)
    assert dead.reason == f"the value begins with byte {ord('{')}: expected the magic byte 0"


@each_case(
    ("schema", "reason"),
    [
        ("{}", "it has no properties: expected the schema of an object"),
        ("7", "it refers to another schema, or is no object"),
        ('{"properties": {"a": {"type": "object"}}}', "the property a is object: expected one of integer, number"),
        ('{"properties": {"a": {"type": "null"}}}', "the property a is null: expected one of integer, number"),
        (
            '{"properties": {"a": {"type": ["string", "integer"]}}}',
            "the property a is string, integer: expected one of",
        ),
        ('{"properties": {"a": {}}}', "the property a is without a type: expected one of"),
        (
            json.dumps({"properties": {"n" * 1_025: {}}}),
            "1,025 characters of a property's name: expected at most 1,024",
        ),
        ('{"properties": {"a": true}}', "it refers to another schema, or is no object"),
        ('{"properties": {"a": {"$ref": "#/properties/a"}}}', "it refers to another schema, or is no object"),
        ('{"properties": {"a": {"$ref": "https://example.org"}}}', "it refers to another schema, or is no object"),
        (json.dumps({"properties": dict.fromkeys(map(str, range(1_601)))}), "1,601 properties: expected at most 1,600"),
        ('{"properties": {"a": {"type": {}, "format": []}}}', "the property a is no text: expected one of integer"),
        (json.dumps({"properties": {"a": {"anyOf": [{}] * 17}}}), "17 types of a property: expected at most 16"),
        (json.dumps({"properties": {"a": {"type": ["null"] * 17}}}), "17 types of a property: expected at most 16"),
    ],
)
def test_a_json_schema_that_rows_cannot_have_is_refused(schema, reason):
    with pytest.raises(InvalidSchema, match=re.escape(reason)):
        columns_of(schema)


def test_a_reference_is_followed_once_for_all_properties(monkeypatch):
    followed, found = [], json_schemas._Document._at
    monkeypatch.setattr(json_schemas._Document, "_at", lambda *given: followed.append(given[1]) or found(*given))
    types = {"a": {"$ref": "#/b"}, "b": {"anyOf": [{"type": "string"}, {"$ref": "#/c"}]}, "c": {"type": "null"}}
    schema = {"properties": {f"p{number}": {"$ref": "#/a"} for number in range(1_000)}, **types}
    assert len(columns_of(json.dumps(schema))) == 1_000
    assert followed == ["#/a", "#/b", "#/c"]


@each_case(
    ("changes", "reason"),
    [
        ({"id": "1"}, "the field id is not a bigint: found a text"),
        ({"id": 2**63}, "the field id is not a bigint: found a number"),
        ({"id": True}, "the field id is not a bigint: found a boolean"),
        ({"id": 1.5}, "the field id is not a bigint: found a number"),
        ({"id": None}, "the key field id is null"),
        ({"small": 32768}, "the field small is not a smallint: found a number"),
        ({"text": 7}, "the field text is not a string: found a number"),
        ({"text": {}}, "the field text is not a string: found an object"),
        ({"text": "a\0"}, "a text with a NUL, which no database accepts"),
        ({"text": "\ud800"}, "a text that is not valid Unicode"),
        ({"ok": 1}, "the field ok is not a boolean: found a number"),
        ({"single": 3.5e38}, "the field single is not a float: found a number"),
        (
            {"price": 1.005},
            "the field price is not a decimal(9,2): found a number, expected a number with at most 7 digits before the "
            "point and 2 after it",
        ),
        ({"price": 10_000_000}, "the field price is not a decimal(9,2): found a number"),
        ({"price": "1.00"}, "the field price is not a decimal(9,2): found a text"),
        ({"day": "2026-02-30"}, "the field day is not a date: found a text"),
        ({"day": "2026-1-3"}, "the field day is not a date: found a text"),
        (
            {"at": "2026-01-31T23:59:59"},
            "the field at is not a timestamp: found a text, expected a text with an offset, such as 2026-01-31",
        ),
        ({"at": "0001-01-01T00:00:00+05:00"}, "the field at is not a timestamp: found a text"),
        ({"local": "2026-01-31T23:59:59Z"}, "the field local is not a timestamp_ntz: found a text"),
        ({"other": 1}, "the value has a field 'other', which is not declared"),
        ({"schema": 1, "payload": {}}, "the value has a field 'payload', which is not declared"),
    ],
)
def test_a_value_that_does_not_fit_is_a_dead_letter(changes, reason):
    dead = decoded(json.dumps(FINE | changes).encode())
    assert isinstance(dead, DeadLetter)
    assert dead.reason.startswith(reason)


@each_case(
    "value",
    [
        *(b"", b"{", b"[]", b"7", b"null", b"\xff", b"[" * 100_000, b'{"id": 1} x'),
        *(b'{"id": NaN}', b'{"id": 1, "id": 2}', b'{"id": %s}' % (b"9" * 5_000)),
        *(b'{"id": 1, "x": 1e400}', b'{"id": 1, "price": 1e999999999}'),
        *(b'{"id": 1, "x": 1e99999999999999999999}', b'{"id": 1, "x": -0.1e-99999999999999999999}'),
    ],
)
def test_what_is_no_strict_json_object_is_a_dead_letter(value):
    assert isinstance(decoded(value), DeadLetter)


@each_case(
    ("named", "value", "reason"),
    [
        ("io.debezium.time.Date", "2026-01-31", "the field 'x' is not a value of its type io.debezium.time.Date"),
        ("io.debezium.time.Date", 10**9, "the field 'x' is not a value of its type io.debezium.time.Date"),
        ("io.debezium.time.Timestamp", 10**18, "the field 'x' is not a value of its type io.debezium.time.Timestamp"),
        ("org.apache.kafka.connect.data.Decimal", "!", "the field 'x' is not a value of its type org.apache"),
        ("org.apache.kafka.connect.data.Decimal", "AQ==", "the field 'x' is not a value of its type org.apache"),
        (
            "io.debezium.data.VariableScaleDecimal",
            {"value": "", "scale": 2},
            "the field 'x' is not a value of its type",
        ),
        ("io.debezium.data.VariableScaleDecimal", {"value": "AQ=="}, "the field 'x' is not a value of its type io."),
        ("io.debezium.time.NanoTimestamp", 10**18, "the field x is not a timestamp_ntz: found a number"),
    ],
)
def test_a_value_that_is_not_of_its_type_in_the_schema_is_a_dead_letter(named, value, reason):
    fields = [
        {"type": "int64", "field": "id"},
        {"type": "any", "name": named, "field": "x", "parameters": {"scale": "x"}},
    ]
    both = {"schema": {"type": "struct", "fields": fields}, "payload": {"id": 1, "x": value}}
    dead = decoded(json.dumps(both).encode(), columns="id bigint, x timestamp_ntz")
    assert isinstance(dead, DeadLetter)
    assert dead.reason.startswith(reason)


@each_case(
    ("named", "value", "cell"),
    [
        ("io.debezium.time.Timestamp", -1, '"1969-12-31 23:59:59.999000"'),
        ("org.apache.kafka.connect.data.Timestamp", 0, '"1970-01-01 00:00:00.000000+00:00"'),
        ("org.apache.kafka.connect.data.Date", -1, '"1969-12-31"'),
        ("org.apache.kafka.connect.data.Decimal", "/w==", "-0.01"),
        ("org.apache.kafka.connect.data.Decimal", 12.5, "12.50"),  # decimal.format=NUMERIC
        ("io.debezium.data.VariableScaleDecimal", {"value": "BdI=", "scale": 3}, "1.49"),
        ("io.debezium.data.VariableScaleDecimal", {"value": "AQ==", "scale": -3}, "1000.00"),
    ],
)
def test_a_value_of_a_type_that_only_the_schema_tells(named, value, cell):
    kind = {"Timestamp": "timestamp", "Date": "date"}.get(named.rpartition(".")[2], "decimal(9,2)")
    kind = "timestamp_ntz" if named.startswith("io.debezium.time") else kind
    fields = [
        {"type": "int64", "field": "id"},
        {"type": "any", "name": named, "field": "x", "parameters": {"scale": "2"}},
    ]
    both = {"schema": {"type": "struct", "fields": fields}, "payload": {"id": 1, "x": value}}
    row = decoded(json.dumps(both).encode(), columns=f"id bigint, x {kind}")
    assert row.line == f'"update",0,1,{cell}\n'.encode()


@each_case(
    ("keys", "data", "cell"),
    [
        ("string", StringSerializer()("é1", None), '"é1"'),
        ("int", IntegerSerializer()(-7, None), "-7"),
        ("long", struct.pack(">q", 2**40), str(2**40)),
        ("uuid", b"8b2C1c5e-3c1a-4d7e-9c8e-0123456789ab", f'"{UUID("8b2c1c5e-3c1a-4d7e-9c8e-0123456789ab")}"'),
        ("json", b'{"id": 7, "more": 1}', "7"),
        ("json", b"7", "7"),
        ("json", connect_json.with_schema({"id": 7}), "7"),
        ("json", b"\0\0\0\0\7" + b'{"id": 7}', "7"),
    ],
)
def test_keys_of_kafkas_own_serializers_name_the_row(keys, data, cell):
    columns = "id string" if keys in ("string", "uuid") else COLUMNS
    deleted = decoded(None, data, keys=keys, columns=columns)
    assert isinstance(deleted, Tombstone)
    assert dialect.line([*deleted.key.values()]) == f"{cell}\n".encode()
    row = decoded(b'{"n": 5}', data, keys=keys, columns="n int")
    assert row.line == f'"update",0,{cell},5\n'.encode()


@each_case(
    ("kind", "key", "cell"),
    [
        ("bigint", b"-7", "-7"),
        ("bigint", b"7.0", "7"),
        ("decimal(9,2)", b"1.5", "1.50"),
        ("boolean", b"true", "true"),
        ("date", b"2026-01-31", '"2026-01-31"'),
        ("timestamp", b"2026-01-31T00:00:00+02:00", '"2026-01-30 22:00:00.000000+00:00"'),
    ],
)
def test_the_text_of_a_key_has_the_type_of_its_declared_column(kind, key, cell):
    deleted = decoded(None, key, keys="string", columns=f"id {kind}")
    assert dialect.line([*deleted.key.values()]) == f"{cell}\n".encode()


@each_case(
    ("keys", "data", "reason"),
    [
        ("string", b"\xff", "the key is not UTF-8"),
        ("int", b"1234567", "the key has 7 bytes: expected the 4 bytes of an int"),
        ("long", b"1234", "the key has 4 bytes: expected the 8 bytes of a long"),
        ("uuid", b"no", "the key is 'no': expected the text of a UUID"),
        ("uuid", b"{8b2c1c5e3c1a4d7e9c8e0123456789ab}", "the key is '{8b2c1c5e3c1a4d7e9c8e0123456789ab}': expected a"),
        *(
            ("string", text, "the field id is not a bigint: found a ")
            for text in (b"5.7", b" 6 ", b"06", b"x", b"true")
        ),
        ("json", b"{", "the key is not JSON"),
        ("json", b'"a"', "the field id is not a bigint: found a text"),
        ("json", b'{"other": 7}', "the key has no field id"),
        ("json", b"[" * 900 + b"]" * 900, "the field id of the key is an object or an array: expected a plain value"),
        ("json", b"1e999999999", "the key is not JSON (ValueError: 1e999999999 has an exponent beyond 1,000)"),
        ("string", None, "there is no key"),
    ],
)
def test_a_key_of_another_form_is_a_dead_letter(keys, data, reason):
    dead = decoded(None, data, keys=keys)
    assert isinstance(dead, DeadLetter)
    assert dead.reason.startswith(reason)


@each_case(
    ("options", "error"),
    [
        ({"values": "json"}, "topic orders: values are JSON, and no schema is given: expected"),
        (
            {"values": "json", "schema": "id int", "operation": "field:op"},
            "operation is field:op: expected a column of schema, one of id",
        ),
        (
            {"values": "json", "schema": "id int", "snapshot_markers": "field:mark"},
            "snapshot_markers is field:mark: expected a column of schema, one of id",
        ),
        ({"schema": "id int"}, "schema is given, and values are avro, .*: add values='json'"),
        (
            {"values": "json_schema", "schema": "id int"},
            "schema is given, and values are json_schema, .*: remove schema",
        ),
        ({"values": "json", "schema": ""}, "found no column, expected some"),
        ({"values": "json", "schema": "id int, _offset bigint"}, "column '_offset' is one that chunks add"),
        ({"values": "json", "schema": "id int, at bigint not null"}, "expected it without NOT NULL"),
        ({"values": "json", "schema": "id int, at timestamptz"}, "is timestamp meant?"),
        ({"key": []}, "expected one field or more, which identify a row"),
        ({"values": "json_schema", "operation": "debezium"}, "values are json_schema: expected avro or json"),
        ({"values": "json", "schema": "id map<string,int>"}, "schema is 'id map<string,int>': .*'id' is map"),
        ({"values": "json", "schema": "`a b` int"}, "expected letters, digits and '_' in the names"),
        ({"values": "json", "schema": "id int, ID int"}, "column 'id' occurs twice"),
        ({"newest_by": "id"}, "newest_by is id, which is a key field or a column of ours"),
        ({"newest_by": "_offset"}, "newest_by is _offset, which is a key field or a column of ours"),
        ({"newest_by": ""}, "newest_by is '': String should have at least 1 character"),
        ({"newest_by": "at", "operation": "debezium"}, "expected unwrapped events, such as operation='field:__op'"),
        (
            {"values": "json", "schema": "id int, at bigint", "newest_by": "on"},
            "newest_by is on: expected a column of schema, one of id, at",
        ),
        (
            {"values": "json", "schema": "id int, at double", "newest_by": "at"},
            "newest_by is at, which is a double: expected a whole number, a decimal, a date or a timestamp",
        ),
    ],
)
def test_declarations_of_formats_are_checked(options, error):
    with pytest.raises(InvalidDefinition, match=error):
        kafka_topic("t/orders", topic="orders", **{"key": ["id"], **options})


class JsonStream(Stream):
    """A topic of JSON with keys as texts. Its rows are those of `Stream`, but each zero is sent as `1e-46`.

    So small a number is zero in a float, and PostgreSQL refuses its text.
    """

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.schemas = RegisteringRegistry()
        self.topic = Topic(
            key=("id",), operation="header:op", values="json", columns="id bigint, text string, x float", keys="string"
        )

    def _message(self, offset: int, schema_id: int, row: Any) -> Message:
        operation, value = row if isinstance(row, tuple) else ("update", row)
        data = json.dumps(value).replace("0.0", "1e-46").encode() if operation else None
        return Message(offset, str(value["id"]).encode(), data, [("op", str(operation).encode())])


def test_a_history_in_json_becomes_the_table_it_tells(loader):
    random, stream = Random(3), JsonStream(loader.place.board, f"orders.{id(loader)}")  # noqa: S311
    for number in range(60):
        id_ = random.randrange(9)
        row = {"id": id_, "text": None if number % 7 == 0 else f"ü{number}", "x": number % 3 / 2}
        stream.send(0, random.choice([row, row, ("delete", row), (None, {"id": id_})]))
    loader.load(stream)
    assert stream.table(loader.engine) == stream.model()
    assert stream.model()


@each_case("placeholder", ["__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="])
def test_a_long_value_that_was_not_sent_is_no_value_in_json(placeholder):
    row = {"id": 1, "text": placeholder}
    change = {"before": None, "after": row, "op": "u"}
    columns = "id bigint, text string, op string"
    for value, operation in ((change, "debezium"), (row, None), (row | {"op": "u"}, "field:op")):
        dead = decoded(json.dumps(value).encode(), operation=operation, columns=columns)
        assert dead.reason.startswith("text is a long value that was not sent"), operation
    deleted = decoded(json.dumps(row | {"op": "d"}).encode(), operation="field:op", columns=columns)
    assert cells(deleted)["_operation"] == "delete", "its other values do not matter"


class DebeziumJsonStream(Stream):
    """A topic of Debezium's envelopes in JSON, with schemas and without. Its rows are those of `Stream`."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.schemas = RegisteringRegistry()
        columns = "id bigint, text string, day date, local timestamp_ntz, price decimal(9,2)"
        self.topic = Topic(key=("id",), operation="debezium", values="json", columns=columns, keys="json")

    def _message(self, offset: int, schema_id: int, row: Any) -> Message:
        operation, value = row
        data = connect_json.with_schema(event(operation, value)) if operation else None
        return Message(offset, connect_json.with_schema({"id": value["id"]}), data, [])


def test_changes_of_debezium_in_json_become_the_table_they_tell(loader):
    random, stream = Random(5), DebeziumJsonStream(loader.place.board, f"changes.{id(loader)}")  # noqa: S311
    expected = dict[int, tuple[Any, ...]]()
    for number in range(60):
        id_, cents = random.randrange(9), random.randrange(-999, 999)
        row = {"id": id_, "text": f"ü{number}", "day": f"2026-01-{number % 28 + 1:02}", "price": cents / 100}
        row["local"] = None if number % 7 == 0 else f"2026-01-31T23:59:59.{number:06}"
        operation = random.choice(["create", "refresh", "update", "delete", None])
        stream.send(0, (operation, row))
        expected.pop(id_, None)
        if operation not in ("delete", None):
            local = row["local"] and datetime.fromisoformat(row["local"])
            expected[id_] = (id_, row["text"], date.fromisoformat(row["day"]), local, Decimal(cents).scaleb(-2))
    loader.load(stream)
    rows = loader.ask(f'SELECT id, text, day, local, price FROM "{stream.name}" ORDER BY id')
    assert rows == [expected[id_] for id_ in sorted(expected)]


@pytest.fixture
def world(broker, registry, tmp_path) -> Iterator[World]:
    with World.of(broker, registry, f"file://{tmp_path}") as made:
        made.settings = Topic(
            key=("id",), messages=4, seconds=0.2, operation="header:op", values="json", columns=ORDERS, keys="string"
        )
        made.create()
        yield made


def test_messages_of_a_real_broker_reach_the_warehouse_without_a_schema_of_their_own(world, url, engine, monkeypatch):
    monkeypatch.setattr(loader_module, "LEASE_SECONDS", 0.0)  # The tests before this one have a lease.

    def send(key: str, value: bytes | None, operation: str = "update") -> None:
        world.producer.produce(world.name, value, key, 0, headers=[("op", operation.encode())])

    for number in range(10):
        send(f"k{number % 4}", json.dumps({"id": f"k{number % 4}", "n": number}).encode())
    send("k0", b'{"id": "k0"}', "delete")
    send("k1", None)
    send("k2", b'{"id": "k2", "n": "nine"}')
    assert world.producer.flush(30) == 0
    with world.connector() as running:
        running.wait(world.is_done, "the chunks")
    [dead] = world.dead_letters()
    assert header(dead, "reason") == "the field n is not a bigint: found a text, expected a whole number of 64 bits"
    loading = loading_of(world.place, url)
    with closing(loading.schemas), loading_in_thread(loading, world) as ended:
        wait_until(lambda: ended or nexts(engine, world.name) == {0: 13}, "the rows")
        assert ended == []
    with opened(engine) as connection:
        rows = connection.execute(f'SELECT id, n FROM "{world.name}" ORDER BY id')
    assert rows == [("k2", 6), ("k3", 7)]


def test_messages_with_a_json_schema_of_a_real_registry_become_chunks(world, registry):
    world.settings = Topic(key=("id",), messages=4, seconds=0.2, values="json_schema", keys="string")
    schema = json.dumps({"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}})
    with closing(SchemaRegistryClient({"url": registry.url})) as client:
        schema_id = client.register_schema(f"{world.name}-value", Schema(schema, "JSON"))
        avro_id = client.register_schema(f"{world.name}-key", Schema('"string"', "AVRO"))
    for number, known in enumerate([schema_id, avro_id, 999_999, schema_id]):
        value = json.dumps({"id": f"k{number}", "n": number}).encode()
        world.producer.produce(world.name, b"\0" + struct.pack(">I", known) + value, f"k{number}", 0)
    assert world.producer.flush(30) == 0
    with world.connector() as running:
        running.wait(world.is_done, "the chunks")
    assert [header(each, "reason") for each in world.dead_letters()] == [
        f"schema {avro_id} cannot be read: it is AVRO, not JSON",
        "the registry has no schema 999999",
    ]
    ids = [row["id"] for each in world.signals() if each.path for row in world.rows(each)]
    assert ids == ["k0", "k3"]


@pytest.mark.parametrize("subject", ["signals", "rows"])
def test_another_schema_under_our_subject_stops_its_topic_alone_with_what_to_do(world, registry, subject, capfd):
    """The registry refuses an incompatible schema. Others' topics are still read: the error is of a partition."""
    columns = f"id string, {world.name.replace('.', '_')} int"  # A schema that no other test has registered.
    world.settings = world.settings.model_copy(update={"columns": columns})
    digest = sha256(json.dumps(record_schema(column_types(columns))).encode()).hexdigest()[:16]
    name = f"{signals_of(world.name)}-value" if subject == "signals" else f"{SUBJECT}-{digest}"
    with closing(SchemaRegistryClient({"url": registry.url})) as client:
        client.register_schema(name, Schema('"string"', "AVRO"))
        client.set_compatibility(subject_name=name, level="BACKWARD")
        world.producer.produce(world.name, b'{"id": "a"}', "a", 0, headers=[("op", b"update")])
        assert world.producer.flush(30) == 0
        with world.connector() as running:
            running.thread.join(60)
            error = running.ended_with()
        client.delete_subject(name)
    assert isinstance(error, SchemaRefused)
    assert f"connector: does not read {world.name}/0: {error}" in capfd.readouterr().err, "its partition is set aside"
    assert f"the registry refuses our schema under the subject {name}: " in str(error)


def test_a_registry_that_fails_with_one_schema_lets_only_its_partition_wait(world, broker, registry, monkeypatch):
    """Each message before and after the failures is in one chunk, once, and topics beside it are read meanwhile."""
    monkeypatch.setattr("feed_assets.kafka.service.LOOKUP_SECONDS", 0.2)
    world.settings = world.settings.model_copy(update={"columns": f"id string, {world.name.replace('.', '_')} int"})
    register, fails = SchemaRegistryClient.register_schema, Event()
    fails.set()

    def registered(client: SchemaRegistryClient, subject: str, *schema: Any) -> int:
        if subject.startswith(SUBJECT) and fails.is_set():
            raise SchemaRegistryError(500, 500, "StackOverflowError")
        return register(client, subject, *schema)

    monkeypatch.setattr(SchemaRegistryClient, "register_schema", registered)
    with World.of(broker, registry, world.place.board) as beside:
        beside.create()
        beside.produce(3)
        for number in range(3):
            world.producer.produce(world.name, b'{"id": "%d"}' % number, f"{number}", 0, headers=[("op", b"update")])
        assert world.producer.flush(30) == 0
        topics = {world.name: world.settings, beside.name: beside.settings}
        with Connector(world.place.chunking("one"), topics).running() as running:
            running.wait(lambda: beside.reached() >= 3, "the other topic")
            assert world.signals() == []
            fails.clear()
            running.wait(world.is_done, "the chunks")
    ids = [row["id"] for each in world.signals() if each.path for row in world.rows(each)]
    assert ids == ["0", "1", "2"]


def test_catching_up_finishes_the_partitions_that_a_failing_registry_leaves(world, monkeypatch):
    def registered(client: SchemaRegistryClient, subject: str, *schema: Any) -> int:
        if subject.startswith(SUBJECT):
            raise SchemaRegistryError(500, 500, "StackOverflowError")
        return register(client, subject, *schema)

    world.settings = world.settings.model_copy(update={"columns": f"id string, {world.name.replace('.', '_')} int"})
    register = SchemaRegistryClient.register_schema
    monkeypatch.setattr(SchemaRegistryClient, "register_schema", registered)
    world.producer.produce(world.name, b'{"id": "a"}', "a", 0, headers=[("op", b"update")])
    assert world.producer.flush(30) == 0
    world.grow(2)
    world.producer.produce(world.name, None, "b", 1)  # A tombstone has no schema.
    assert world.producer.flush(30) == 0
    chunking = world.place.chunking()
    with closing(chunking.schemas), pytest.raises(RegistryFails, match="StackOverflowError"):
        catch_up(chunking, world.name, world.settings)
    assert [world.signals(partition=0), len(world.signals(partition=1))] == [[], 1]


def test_a_schema_that_another_connector_registers_at_the_same_moment_is_no_refusal(registry, monkeypatch):
    register, conflicts = SchemaRegistryClient.register_schema, [409]

    def registered(client: SchemaRegistryClient, *arguments: Any) -> int:
        if conflicts:
            raise SchemaRegistryError(conflicts.pop(), 409, "exists")
        return register(client, *arguments)

    monkeypatch.setattr(SchemaRegistryClient, "register_schema", registered)
    with closing(Schemas(registry.url)) as schemas:
        assert schemas.register(f"new-{uuid4().hex}", record_schema(column_types(ORDERS))) > 0
