"""Bytes that are no values of their schema, though fastavro reads them; with the compiled and the slow reader."""

import json

import pytest

from feed_assets.core.topics import Topic
from feed_assets.kafka import avro
from feed_assets.kafka.avro import InvalidSchema
from feed_assets.kafka.decode import Decoder
from feed_assets.kafka.messages import DeadLetter, Message
from feed_assets_tests.support.each_case import each_case

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
AGAIN = {"name": "again", "type": ["null", "R"], "default": None}
"""Field that forces the slow reader."""


def varint(number):
    """Encode a number as Avro does."""
    left, found = (number << 1) ^ (number >> 63), b""
    while left > 0x7F:
        found, left = found + bytes([left & 0x7F | 0x80]), left >> 7
    return found + bytes([left])


def schema_of(type_, *more):
    fields = [{"name": "f", "type": type_}, *more]
    return avro.parsed(json.dumps({"type": "record", "name": "R", "fields": fields}), {})


BAD = {
    "an enum below 0": (ENUM, varint(-1), "-1 is not the index of an enum's symbol"),
    "an enum beyond the last": (ENUM, varint(2), "2 is not the index of an enum's symbol"),
    "an enum that may be null": (["null", ENUM], varint(1) + varint(-2), "-2 is not the index of an enum's symbol"),
    "a union below 0": (
        ["null", "string"],
        varint(-1) + varint(1) + b"x",
        "-1 is not the index of .* a union's branch",
    ),
    "a union beyond the last": (["null", "string"], varint(2), "2 is not the index of .* a union's branch"),
    "a long int": ("int", varint(2**42), "4398046511104 is not an int"),
    "the first int that is none": ({"type": "int"}, varint(2**31), "2147483648 is not an int"),
    "the last int that is none": (["null", "int"], varint(1) + varint(-(2**31) - 1), "-2147483649 is not an int"),
    "an int in a list": ({"type": "array", "items": "int"}, varint(1) + varint(2**31), "is not an int"),
    "an int in a map": ({"type": "map", "values": "int"}, varint(1) + b"\x02k" + varint(2**31), "is not an int"),
    "an int of an unknown logical type": ({"type": "int", "logicalType": "x"}, varint(2**31), "is not an int"),
    "a boolean": ("boolean", b"\x07", "a boolean that is neither 0 nor 1"),
    "a boolean that is two bytes as a number": ("boolean", b"\x80\x01", "a boolean that is neither 0 nor 1"),
    "a time before midnight": ({"type": "int", "logicalType": "time-millis"}, varint(-5), "-5 is not a time of day"),
    "micros before it": ({"type": "long", "logicalType": "time-micros"}, varint(-5), "-5 is not a time of day"),
    "a time behind the day": ({"type": "int", "logicalType": "time-millis"}, varint(86_400_000), "hour must be"),
}


@each_case("more", [[], [AGAIN]], ids=["fast", "slow"])
@each_case("name", BAD)
def test_bytes_that_are_no_value_are_a_dead_letter_with_the_reason(name, more):
    type_, data, reason = BAD[name]
    schema = schema_of(type_, *more)
    value = avro.HEAD.pack(0, 1) + data + varint(0) * len(more)
    found = Decoder(Topic(key=("f",)), Registry(schema))(Message(0, None, value))
    assert isinstance(found, DeadLetter)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(found.reason)


class Registry:
    """Registry with one schema."""

    def __init__(self, schema):
        self._schema = schema

    def get(self, _):
        return self._schema


GOOD = {
    "enum": (ENUM, ["A", "B"]),
    "union": (["null", "string", "long"], [None, "x", 2**63 - 1]),
    "int": ("int", [0, -1, 2**31 - 1, -(2**31)]),
    "boolean": (["null", "boolean"], [None, True, False]),
    "nested": ({"type": "map", "values": {"type": "array", "items": ["int", ENUM]}}, [{"k": [1, "B", -(2**31)]}]),
    "fixed": ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 2}}, [[b"ab", b"cd"]]),
    "empty record": ({"type": "record", "name": "Nothing", "fields": []}, [{}]),
}


@each_case("more", [[], [AGAIN]], ids=["fast", "slow"])
@each_case("name", GOOD)
def test_values_are_read_as_they_were_written(name, more):
    type_, values = GOOD[name]
    schema = schema_of(type_, *more)
    for value in values:
        found, left = avro.decoded(avro.encoded({"f": value}, schema, 1), schema)
        assert (found["f"], type(found["f"]), left) == (value, type(value), 0)


def test_a_type_that_is_named_twice_is_strict_at_both_places():
    schema = schema_of(ENUM, {"name": "g", "type": "E"})
    assert avro.decoded(avro.encoded({"f": "A", "g": "B"}, schema, 1), schema) == ({"f": "A", "g": "B"}, 0)
    with pytest.raises(ValueError, match="-1 is not the index of an enum's symbol"):
        avro.decoded(avro.HEAD.pack(0, 1) + varint(0) + varint(-1), schema)


def test_a_type_of_another_schema_is_strict():
    named = {}
    avro.parsed(json.dumps(ENUM), named)
    schema = avro.parsed('{"type": "record", "name": "R", "fields": [{"name": "f", "type": "E"}]}', named)
    assert avro.decoded(avro.encoded({"f": "B"}, schema, 1), schema) == ({"f": "B"}, 0)
    with pytest.raises(ValueError, match="-1 is not the index of an enum's symbol"):
        avro.decoded(avro.HEAD.pack(0, 1) + varint(-1), schema)


@each_case(
    ("text", "value", "bad"),
    [
        ('"int"', 7, varint(2**31)),
        ('["null", "string"]', "x", varint(-1) + b"\x02x"),
        (json.dumps(ENUM), "B", varint(-1)),
        ('{"type": "array", "items": "boolean"}', [True], varint(1) + b"\x07" + varint(0)),
    ],
)
def test_a_schema_that_is_no_record_is_strict(text, value, bad):
    schema = avro.parsed(text, {})
    assert avro.decoded(avro.encoded(value, schema, 1), schema) == (value, 0)
    with pytest.raises(ValueError, match=r"not the index|not an int|a boolean"):
        avro.decoded(avro.HEAD.pack(0, 1) + bad, schema)


NOTHING = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "null"}]}


@each_case("items", ["null", {"type": "null"}, NOTHING, {"type": "fixed", "name": "F", "size": 0}])
def test_an_array_of_what_takes_no_bytes_is_refused(items):
    with pytest.raises(InvalidSchema, match="items of an array have an empty encoding"):
        schema_of({"type": "array", "items": items})


def test_an_array_of_a_named_type_that_takes_no_bytes_is_refused():
    with pytest.raises(InvalidSchema, match="items of an array have an empty encoding"):
        schema_of(NOTHING, {"name": "g", "type": {"type": "array", "items": "N"}})


@each_case("items", [["null"], ["null", "string"], "R"])
def test_an_array_of_what_takes_bytes_ends_where_the_bytes_do(items):
    schema = schema_of({"type": "array", "items": items})
    with pytest.raises((EOFError, ValueError, RecursionError)):
        avro.decoded(avro.HEAD.pack(0, 1) + varint(2**62) + b"\x00" * 100, schema)


def test_a_schema_that_the_avro_library_cannot_parse_is_refused():
    with pytest.raises(InvalidSchema, match="TypeError"):
        schema_of({"type": {"type": "int"}})
