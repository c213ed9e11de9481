"""Conversion of messages to rows, tombstones and dead letters; the registry is a mapping here."""

import json
import re
import struct
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feed_assets.core.errors import KafkaUnavailable
from feed_assets.core.limits import REASON_BYTES
from feed_assets.core.topics import OPERATIONS, Topic
from feed_assets.kafka import avro, dialect, messages
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.message_counts import moment_of
from feed_assets.kafka.messages import ChunkRow, DeadLetter, Message, SnapshotMarker, Tombstone
from feed_assets.kafka.poison import Poison
from feed_assets.kafka.signal_message import Signal, minute_of
from feed_assets_tests.support.each_case import each_case

VALUE = """{"type": "record", "name": "click", "fields": [
    {"name": "id", "type": "string"}, {"name": "n", "type": ["null", "long"]},
    {"name": "op", "type": {"type": "enum", "name": "op", "symbols": ["create", "delete", "drop"]}, "default": "create"}
]}"""
KEY = '{"type": "record", "name": "key", "fields": [{"name": "id", "type": ["null", "string"]}]}'
PLAIN = '{"type": "record", "name": "plain", "fields": [{"name": "n", "type": "long"}]}'
TAKEN = '{"type": "record", "name": "taken", "fields": [{"name": "_offset", "type": "long"}]}'
MANY = """{"type": "record", "name": "many", "fields": [
    {"name": "id", "type": "string"},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "raw", "type": "bytes"}, {"name": "ok", "type": "boolean"}, {"name": "ratio", "type": "double"},
    {"name": "tags", "type": {"type": "array", "items": "string"}}
]}"""


NULLABLE = f'["null", {VALUE}]'
SEVERAL = f"[{PLAIN}, {TAKEN}]"
MAP = '{"type": "map", "values": "long"}'

NODE = """{"type": "record", "name": "node", "fields": [
    {"name": "id", "type": "string"}, {"name": "next", "type": ["null", "node"]}
]}"""
AMOUNT = """{"type": "record", "name": "amount", "fields": [{"name": "id", "type": "string"},
    {"name": "exact", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
    {"name": "plain", "type": {"type": "bytes", "logicalType": "decimal"}}
]}"""

ALL = [VALUE, KEY, PLAIN, TAKEN, MANY, '"string"', NULLABLE, SEVERAL, MAP, NODE, AMOUNT]
SCHEMAS = {number: avro.parsed(text, {}) for number, text in enumerate(ALL, 1)}


class Registry:
    """Schemas by id, in the form of `Schemas`."""

    def get(self, schema_id):
        if schema_id not in SCHEMAS:
            raise Poison(f"the registry has no schema {schema_id}")
        return SCHEMAS[schema_id]


def decoder(**changes):
    return Decoder(Topic(**{"key": ["id"], **changes}), Registry())


def wire(schema_id, datum):
    return avro.encoded(datum, SCHEMAS[schema_id], schema_id)


def cells(row):
    assert isinstance(row, ChunkRow), row
    (found,) = dialect.read(row.line)
    return dict(zip(row.columns, found, strict=True))


CLICK = wire(1, {"id": "a", "n": 7, "op": "create"})


def test_a_value_is_a_row_with_its_type_and_offset():
    row = decoder()(Message(5, None, CLICK))
    assert cells(row) == {"_operation": "update", "_offset": "5", "id": "a", "n": "7", "op": "create"}
    assert row.schema_id == 1


def test_a_record_that_may_be_null_is_that_record():
    row = decoder(operation="field:op")(Message(5, None, wire(7, {"id": "a", "n": 7, "op": "create"})))
    assert cells(row) == {"_operation": "create", "_offset": "5", "id": "a", "n": "7", "op": "create"}


@each_case(("stamp", "moment"), [(-1, 0), (7, 7), (1_600_000_000_000_000, messages._LATEST_MS)])
def test_a_timestamp_that_no_date_has_is_the_first_or_last_one(stamp, moment):
    row = decoder()(Message(5, None, CLICK, (), stamp))
    assert row.timestamp == decoder()(Message(5, wire(2, {"id": "a"}), None, (), stamp)).timestamp == moment
    assert minute_of(row.timestamp // 60_000) == f"{moment_of(Message(5, None, None, (), stamp)):%Y-%m-%dT%H:%MZ}"


@each_case(("number", "text"), [(1234, "12.34"), (-9999, "-99.99"), (5, "0.05"), (0, "0.00")])
def test_a_decimal_has_all_its_digits_and_one_without_a_precision_is_bytes(number, text):
    exact = number.to_bytes(3, "big", signed=True)
    row = decoder()(Message(5, None, avro.HEAD.pack(0, 11) + b"\x02a\x06" + exact + b"\x02\x07"))
    assert (cells(row)["exact"], cells(row)["plain"]) == (text, "07")


def test_a_decimal_with_more_digits_than_declared_is_not_rounded():
    value = avro.HEAD.pack(0, 11) + b"\x02a\x06" + (123_456).to_bytes(3, "big") + b"\x02\x07"
    assert "a decimal with more than 4 digits" in decoder()(Message(5, None, value)).reason


def test_a_value_of_any_depth_ends_no_process():
    deep = avro.HEAD.pack(0, 10) + b"\x02a\x02" * 10_000 + b"\x02a\x00"
    assert "RecursionError" in decoder()(Message(5, None, deep)).reason
    flat = avro.HEAD.pack(0, 10) + b"\x02a\x02" * 2 + b"\x02a\x00"
    assert cells(decoder()(Message(5, None, flat)))["next"] == '{"id":"a","next":{"id":"a","next":null}}'


def test_an_error_of_ours_is_a_dead_letter_and_an_outage_is_not(monkeypatch):
    monkeypatch.setattr(dialect, "line", mock.Mock(side_effect=KeyError("secret")))
    dead = decoder()(Message(5, None, CLICK))
    assert re.match(r"an error of feed_assets \(KeyError in mock\.py, line \d+\): report it", dead.reason)
    monkeypatch.setattr(dialect, "line", mock.Mock(side_effect=KafkaUnavailable("no answer")))
    with pytest.raises(KafkaUnavailable):
        decoder()(Message(5, None, CLICK))


def test_the_reason_of_a_dead_letter_is_short(monkeypatch):
    long = decoder(operation="header:op")(Message(5, None, CLICK, [("op", b"z" * 600_000)]))
    words = f"{', '.join(OPERATIONS)}, c, r, u, d, true, false"
    assert long.reason == f"the header op is '{'z' * 12}...{'z' * 13}': expected one of {words}"
    monkeypatch.setitem(SCHEMAS, 20, avro.parsed(PLAIN, {}))
    absent = decoder(key=["k" * 100_000])(Message(5, wire(20, {"n": 1}), None))
    assert absent.reason.startswith("the key (schema 20) has no field kkk")
    assert len(absent.reason) <= REASON_BYTES


def test_every_kind_of_value_is_written_in_the_dialect():
    at = datetime(1969, 7, 20, 20, 17, 40, 123_456, tzinfo=UTC)
    datum = {"id": "a", "price": Decimal("-1.10"), "at": at, "day": at.date(), "raw": b"\0\1", "ok": True}
    row = decoder()(Message(5, None, wire(5, {**datum, "ratio": 0.1, "tags": ["x", "y"]})))
    assert [*cells(row).values()][3:] == [
        "-1.10",
        "1969-07-20 20:17:40.123456+00:00",
        "1969-07-20",
        "0001",
        "true",
        "0.1",
        '["x","y"]',
    ]


@each_case(
    ("operation", "headers", "op", "expected"),
    [
        ("header:op", [("op", b"refresh")], "create", "refresh"),
        ("header:op", [("x", None), ("op", b"delete"), ("op", b"create")], "create", "delete"),
        ("field:op", [], "delete", "delete"),
        (None, [("operation", b"delete")], "delete", "update"),
    ],
)
def test_the_operation_is_in_a_header_or_a_field(operation, headers, op, expected):
    message = Message(5, None, wire(1, {"id": "a", "n": None, "op": op}), headers)
    assert cells(decoder(operation=operation)(message))["_operation"] == expected


NANOS = 1_767_225_600_000_000_001
UNNAMED = {
    "timestamp-nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, NANOS, str(NANOS)),
    "local-timestamp-nanos": ({"type": "long", "logicalType": "local-timestamp-nanos"}, -NANOS, str(-NANOS)),
    "duration": (
        {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
        b"\0" * 11 + b"\1",
        "0" * 23 + "1",
    ),
    "uuid": ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, b"\xab" * 16, "ab" * 16),
    "big-decimal": ({"type": "bytes", "logicalType": "big-decimal"}, b"\1\2", "0102"),
    "decimal": ({"type": "bytes", "logicalType": "decimal"}, b"\1\2", "0102"),
    "nobody's": ({"type": "int", "logicalType": "celsius"}, -273, "-273"),
}


@each_case("name", UNNAMED)
def test_an_unknown_logical_type_is_written_as_its_base_type(name, monkeypatch):
    type_, value, text = UNNAMED[name]
    fields = [{"name": "id", "type": "string"}, {"name": "f", "type": ["null", type_]}]
    schema = avro.parsed(json.dumps({"type": "record", "name": "R", "fields": fields}), {})
    monkeypatch.setitem(SCHEMAS, 20, schema)
    row = decoder()(Message(5, None, wire(20, {"id": "a", "f": value})))
    assert cells(row)["f"] == text


def test_a_message_without_a_value_is_a_tombstone_of_its_key(monkeypatch):
    assert decoder()(Message(5, wire(2, {"id": "a"}), None)) == Tombstone(5, {"id": "a"})
    assert decoder(operation="header:op")(Message(5, b"\0\0\0\0\6\2a", None)) == Tombstone(5, {"id": "a"})
    # The chunk writes a nested key again, in deeper calls, where a very deep one could not be written.
    fields = [{"name": "id", "type": {"type": "array", "items": "string"}}]
    monkeypatch.setitem(SCHEMAS, 20, avro.parsed(json.dumps({"type": "record", "name": "K", "fields": fields}), {}))
    assert decoder()(Message(5, wire(20, {"id": ["a"]}), None)) == Tombstone(5, {"id": '["a"]'})


def test_key_fields_missing_in_the_value_come_from_the_message_key():
    row = decoder()(Message(5, wire(2, {"id": "a"}), wire(3, {"n": 1})))
    assert cells(row) == {"_operation": "update", "_offset": "5", "id": "a", "n": "1"}


def test_a_key_that_is_not_needed_may_be_anything():
    assert isinstance(decoder()(Message(5, b"plain text", CLICK)), ChunkRow)


POISON = {
    "an empty value": (Message(5, None, b""), "the value has 0 bytes"),
    "a short value": (Message(5, None, b"\0\0\0\0"), "the value has 4 bytes"),
    "another magic byte": (Message(5, None, b"\1" + CLICK[1:]), "the value begins with byte 1: expected the magic"),
    "JSON": (Message(5, None, b'{"id": "a"}'), "the value begins with byte 123: expected the magic byte 0"),
    "an unknown schema": (Message(5, None, b"\0\0\0\x03\xe7" + CLICK[5:]), "the registry has no schema 999"),
    "no schema id": (Message(5, None, b"\0\x80\0\0\0" + CLICK[5:]), "the value has the schema id 2147483648: expected"),
    "a truncated value": (Message(5, None, CLICK[:-2]), "the value is not Avro of schema 1 (EOFError"),
    "more than a value": (Message(5, None, CLICK + b"x"), "the value has 1 bytes after the Avro of schema 1"),
    "a value that is no record": (Message(5, None, b"\0\0\0\0\6\2a"), "the value (schema 6) is not a record"),
    "a null": (Message(5, None, wire(7, None)), "the value (schema 7) is not a record"),
    "one of several records": (Message(5, None, wire(8, {"n": 1})), "schema 8 is neither a record"),
    "a map": (
        Message(5, None, wire(9, {"id": 1})),
        "schema 9 is neither a record nor a union of null and a record: exp",
    ),
    "no UTF-8": (Message(5, None, b"\0\0\0\0\1\2\xff\0\0"), "the value is not Avro of schema 1 (UnicodeDecodeError"),
    "a lone surrogate": (Message(5, None, b"\0\0\0\0\1\6\xed\xa0\x80\0\0"), "the value is not Avro of schema 1 (Unico"),
    "a NUL": (Message(5, None, wire(1, {"id": "\0", "n": 1})), "a text with a NUL"),
    "a taken column": (Message(5, wire(2, {"id": "a"}), wire(4, {"_offset": 1})), "schema 4 has a field _offset"),
    "no key": (Message(5, None, wire(3, {"n": 1})), "there is no key"),
    "a null in the key": (Message(5, wire(2, {"id": None}), wire(3, {"n": 1})), "the key field id is null"),
    "a tombstone without a key": (Message(5, None, None), "there is no key"),
    "a tombstone of null": (Message(5, wire(2, {"id": None}), None), "a tombstone whose key field id is null"),
    "a tombstone of a NUL": (Message(5, wire(2, {"id": "\0"}), None), "a text with a NUL"),
    "a tombstone of another key": (Message(5, wire(3, {"n": 1}), None), "the key (schema 3) has no field id"),
    "a tombstone of JSON": (Message(5, b'{"id": 1}', None), "the key begins with byte 123"),
}


@each_case("name", POISON)
def test_an_undecodable_message_is_a_dead_letter_with_its_reason(name):
    message, reason = POISON[name]
    found = decoder()(message)
    assert isinstance(found, DeadLetter), found
    assert found.message == message
    assert found.reason.startswith(reason)


@each_case(
    ("operation", "headers", "reason"),
    [
        ("header:op", [], "the header op is null or missing: expected one of create, update, delete, refresh"),
        ("header:op", [("op", None)], "the header op is null or missing"),
        ("header:op", [("op", b"\xff")], "the header op is '\ufffd'"),
        ("field:op", [], "the field op is 'drop'"),
        ("field:kind", [], "the field kind is null or missing"),
    ],
)
def test_an_unknown_operation_is_a_dead_letter(operation, headers, reason):
    message = Message(5, None, wire(1, {"id": "a", "n": 1, "op": "drop"}), headers)
    found = decoder(operation=operation)(message)
    assert isinstance(found, DeadLetter)
    assert found.reason.startswith(reason)


@given(st.binary(max_size=40), st.sampled_from([1, 2, 5]), st.binary(max_size=12) | st.none())
def test_any_bytes_become_a_row_or_a_dead_letter(data, schema_id, key):
    value = struct.pack(">BI", 0, schema_id) + data
    found = decoder()(Message(5, key, value))
    assert isinstance(found, ChunkRow | DeadLetter)
    assert not isinstance(found, DeadLetter) or "an error of feed_assets" not in found.reason
    assert not isinstance(found, ChunkRow) or [*dialect.read(found.line)]


class OwnSchemas(Registry):
    """A registry in which declared columns are registered, as the last schema."""

    def register(self, _, schema):
        self.record = avro.parsed(json.dumps(schema), {})
        return 0

    def get(self, schema_id):
        return super().get(schema_id) if schema_id else self.record


def in_json(columns, value, **changes):
    topic = Topic(key=["id"], values="json", keys="json", columns=columns, **changes)
    return Decoder(topic, OwnSchemas())(Message(5, None, json.dumps(value).encode()))


A_KEY = {"id": "a"}
MARKS = [
    # The message's key, its value's field n, the header, and the marker; a text that begins with "the" is a reason.
    (A_KEY, 1, b"begin", "begin"),
    (A_KEY, 1, b"end", "end"),
    (A_KEY, 1, None, ""),
    (A_KEY, None, b"begin", "begin"),
    (None, None, b"end", "end"),
    (A_KEY, 1, b"first", "the header mark is another word than begin or end"),
    (None, None, None, "there is no key"),
]


@each_case("key, number, header, marker", MARKS)
def test_messages_mark_snapshots_by_a_header_unless_they_are_replayed(key, number, header, marker):
    value = wire(1, {"id": "a", "n": number, "op": "create"}) if number else None
    headers = [("mark", header)] if header else []
    message = Message(5, wire(2, key) if key else None, value, headers)
    decoded = decoder(snapshot_markers="header:mark")(message)
    if isinstance(decoded, DeadLetter):
        assert decoded.reason.startswith(marker)
        assert marker
        return
    assert decoded.marker == marker
    assert isinstance(decoded, SnapshotMarker) == (key is None and number is None)
    again = decoder(snapshot_markers="header:mark")(
        message._replace(headers=[*headers, ("feed_assets.replayed", b"1")])
    )
    assert getattr(again, "marker", "") == ""


@each_case(
    "word, marker",
    [("first", "begin"), ("last_in_data_collection", "end"), ("true", ""), ("incremental", ""), (None, ""), (True, "")],
)
def test_debezium_marks_snapshots_in_the_envelope_and_in_unwrapped_rows(word, marker):
    envelope = {"op": "r", "before": None, "after": {"id": "a"}, "source": {"snapshot": word}}
    assert in_json("id string", envelope, operation="debezium", snapshot_markers="debezium").marker == marker
    if word is not True:
        row = {"id": "a", "__source_snapshot": word}
        assert in_json("id string, __source_snapshot string", row, snapshot_markers="debezium").marker == marker


@each_case("word, marker", [("begin", "begin"), (None, ""), ("", ""), ("first", None)])
def test_a_field_marks_snapshots(word, marker):
    decoded = in_json("id string, mark string", {"id": "a", "mark": word}, snapshot_markers="field:mark")
    assert getattr(decoded, "marker", None) == marker


def test_signals_without_marks_of_snapshots_stay_readable():
    signal = Signal("t", 0, 0, 9, 0, 10, "d", None, 0, None, None, {}, "id", snapshot_begins=True)
    written = signal.encoded(1)
    assert Signal.of(written) == signal
    assert Signal.of(written[:-2]) == replace(signal, snapshot_begins=False)
